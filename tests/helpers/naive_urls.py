"""Hosts, pages and words of URLs, one character at a time."""

import re
import unicodedata
from urllib.parse import unquote

from hypothesis import strategies as st

from etl.text.hosts import normalize_host

SPACE = "".join(map(chr, range(33)))
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def naive_parts(url: str) -> tuple[str, str, str]:
    """Return the host, the port with its colon unless it is a default one, and path and query."""
    url = "".join(char for char in url.strip(SPACE) if char not in "\t\n\r")
    authority, rest = split_at(without_scheme(url), "/\\?#")
    authority = authority.rpartition("@")[2]
    in_brackets, size = False, 0
    while size < len(authority) and (in_brackets or authority[size] != ":"):
        in_brackets = (in_brackets or authority[size] == "[") and authority[size] != "]"
        size += 1
    host, after = authority[:size], authority[size + 1 :]
    digits, after = split_at(after, set(after) - set("0123456789"))
    port = f":{digits.lstrip('0') or 0}" if digits else ""
    path, query = split_at(split_at(after + rest, "#")[0], "?")
    host = normalize_host(host) or host.lower().strip(SPACE).rstrip(".")
    return host, "" if port in (":80", ":443") else port, path.replace("\\", "/") + query


def without_scheme(url: str) -> str:
    """Return what follows the scheme and the slashes after it."""
    scheme, colon, rest = url.partition(":")
    if colon and scheme.lower() in ("http", "https", "ws", "wss", "ftp"):
        return rest.lstrip("/\\")
    is_scheme = scheme.isascii() and scheme[:1].isalpha()
    is_scheme &= all(char.isalnum() or char in "+-." for char in scheme)
    if is_scheme and rest.startswith("//"):
        return rest[2:]
    rest = url.lstrip("/\\")
    return rest if len(url) - len(rest) >= 2 else url


def split_at(text: str, chars) -> tuple[str, str]:
    """Return the text before the first of some characters, and the text from there."""
    size = next((k for k, char in enumerate(text) if char in chars), len(text))
    return text[:size], text[size:]


def naive_page(url: str) -> str:
    host, port, rest = naive_parts(url)
    return host + port + rest.rstrip(SPACE + "/")


def naive_words(url: str) -> list[str]:
    plain = unicodedata.normalize("NFKC", unquote(url)).lower()
    plain = re.sub(r"\bxn--[a-z0-9-]+", lambda match: _from_punycode(match[0]), plain)
    kept = [char if unicodedata.category(char)[0] in "LMN" else " " for char in plain]
    return "".join(kept).split()


def _from_punycode(label: str) -> str:
    try:
        decoded = label[4:].encode().decode("punycode")
        return decoded.encode().decode() if len(label) < 64 else label
    except ValueError:
        return label


def known_to_both(text: str) -> bool:
    """Return whether Python knows all characters: Polars follows a later Unicode version."""
    return all(unicodedata.category(char) not in ("Cn", "Co") for char in unquote(text).lower())


pieces = st.sampled_from(
    [
        *":/?#@.-_%[]\\ \n\t",
        "http",
        "://",
        "//",
        "%20",
        "%d0%bf",
        "www",
        "Example",
        "org",
        "80",
        "443",
    ]
) | st.sampled_from(
    ["10", *"aÉßİ東😀。\u200d\x01", "e\u0301", "https:", "ex%61mple.org", ":080", "0x7f"]
)


urls = st.lists(pieces, max_size=14).map("".join) | st.text(max_size=20)
