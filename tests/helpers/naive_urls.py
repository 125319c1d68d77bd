"""Hosts, pages and words of URLs, by regular expressions and string methods."""

import re
import unicodedata
from urllib.parse import unquote

from hypothesis import strategies as st

SPACE = " \t\n\f\r"


def naive_parts(url: str) -> tuple[str, str, str]:
    """Return the host, the port with its colon, and the rest up to the fragment."""
    url = url.lstrip(SPACE)
    scheme, sign, rest = url.partition("//")
    if sign and (scheme == "" or re.fullmatch(r"[A-Za-z][A-Za-z0-9+.\-]*:", scheme)):
        url = rest
    size = next((k for k, char in enumerate(url) if char in "/?#"), len(url))
    authority, rest = url[:size], url[size:].partition("#")[0]
    kept = authority.rpartition("@")[2]
    bracketed = re.match(r"\[[^\]]*\]", kept)
    host = bracketed[0] if bracketed else kept.partition(":")[0]
    after = kept[len(host) :]
    digits = len(after[1:]) - len(after[1:].lstrip("0123456789"))
    port = after[: 1 + digits] if after[:1] == ":" else ""
    return host.lower().strip(SPACE).rstrip("."), port, after[len(port) :] + rest


def naive_words(url: str) -> list[str]:
    kept = [
        char if unicodedata.category(char)[0] in "LMN" else " " for char in unquote(url).lower()
    ]
    return "".join(kept).split()


def known_to_both(text: str) -> bool:
    """Return whether Python knows all characters: Polars follows a later Unicode version."""
    return all(unicodedata.category(char) not in ("Cn", "Co") for char in unquote(text).lower())


pieces = st.sampled_from(
    [*":/?#@.-_%[] \n", "http", "://", "//", "%20", "%d0%bf", "www", "Example", "org", "80", "443"]
) | st.sampled_from(["10", *"aÉßİ東😀\u200d", "e\u0301"])


urls = st.lists(pieces, max_size=14).map("".join) | st.text(max_size=20)
