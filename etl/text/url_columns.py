"""Split columns of URLs into hosts, normalized URLs and words.

URLs are split as browsers do (WHATWG, url.spec.whatwg.org, "URL parsing"), as if all schemes were like http:
tabs and line ends are removed, spaces and control characters around a URL too, and backslashes are slashes.
Two rules differ: a URL without a scheme is read as a host and a path, as in most URL lists; and invalid URLs
are split by the same rules, their hosts kept as written, in lower case.
"""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

import polars as pl

from etl.text.hosts import normalize_host

_SPACE: Final = "".join(map(chr, range(0x21)))
_IGNORED: Final = str.maketrans("", "", "\t\n\r")

_NAME: Final = r"(?:[A-Za-z0-9_\-]+\.)+[A-Za-z_\-][A-Za-z0-9_\-]*"
"""A host that only needs to be put in lower case: its last label does not begin with a digit as in IPv4."""
_PLAIN_HOST: Final = rf"^{_NAME}$"
_PLAIN_START: Final = (
    r"^((?:(?:[A-Za-z][A-Za-z0-9+.\-]*:)?//)?"
    rf"(?P<host>{_NAME})\.?(?P<port>:[1-9][0-9]*)?)(?:[/?#]|$)"
)

_START: Final = re.compile(
    r"(?:https?|wss?|ftp):[/\\]*|[a-z][a-z0-9+.\-]*://|[/\\]{2,}", re.IGNORECASE
)
_PARTS: Final = re.compile(
    r"(?:[^/\\?#]*@)? (?P<host>(?:\[[^\]/\\?#]*\]?|[^:/\\?#\[])*) (?::(?P<port>[0-9]*))?"
    r"(?P<path>[^?#]*) (?P<query>[^#]*)",
    re.VERBOSE,
)
_ENCODED_LABEL: Final = re.compile(r"\bxn--([a-z0-9-]{1,59})(?![a-z0-9-])")  # RFC 3492, RFC 1035
_MAX_HOST_BYTES: Final = 255  # RFC 1035
_DEFAULT_PORTS: Final = [":80", ":443"]


def extract_hosts(urls: pl.Series) -> pl.Series:
    """Return the host of each URL as in ``normalize_host``, or as written if invalid; null for null.

    >>> urls = ["https://User@Www.Example.ORG.:8080/a", "example.org/b", "http:0x7f.1", "//Ü.example?q", None]
    >>> extract_hosts(pl.Series(urls)).to_list()
    ['www.example.org', 'example.org', '127.0.0.1', 'xn--tda.example', None]
    """
    hosts = urls.str.extract(_PLAIN_START, 2).str.to_lowercase()
    return _fill(hosts, urls, lambda url: _split(url)[0])


def normalize_urls(urls: pl.Series) -> pl.Series:
    """Return each URL without scheme, user, default port, fragment and trailing slash; null for null.

    The host is as in ``extract_hosts``; path and query are not decoded.

    >>> normalize_urls(pl.Series(["HTTPS://Example.org:443/Index/#top", "//example.org?q=1"])).to_list()
    ['example.org/Index', 'example.org?q=1']
    """
    frame = urls.to_frame("url").with_columns(start=pl.col("url").str.extract_groups(_PLAIN_START))
    start = pl.col("start").struct
    rest = (
        pl.col("url").str.strip_prefix(start.field("1")).str.splitn("#", 2).struct.field("field_0")
    )
    is_plain = ~rest.str.contains(r"[\\\t\n\r]")
    port = start.field("port").fill_null("").replace(_DEFAULT_PORTS, "")
    page = start.field("host").str.to_lowercase() + port + rest.str.strip_chars_end(_SPACE + "/")
    pages = frame.select(pl.when(is_plain).then(page)).to_series()
    return _fill(pages, urls, _normalize_url)


def _fill(results: pl.Series, urls: pl.Series, function: Callable[[str], str | None]) -> pl.Series:
    """Return the results, computed by a function for the URLs that have none."""
    rows = (results.is_null() & urls.is_not_null()).arg_true()
    values = [function(url) for url in urls.gather(rows).to_list()]
    return results.scatter(rows, pl.Series(values, dtype=pl.String)).alias(urls.name)


def _normalize_url(url: str) -> str:
    host, port, rest = _split(url)
    return host + ("" if port in _DEFAULT_PORTS else port) + rest.rstrip(_SPACE + "/")


def _split(url: str) -> tuple[str, str, str]:
    """Return the host, the port with its colon, and the path and query of a URL: 4 us."""
    url = url.strip(_SPACE).translate(_IGNORED)
    start = _START.match(url)
    parts = _PARTS.match(url, start.end() if start else 0)
    assert parts is not None
    host = normalize_host(parts["host"])
    if host is None:
        host = parts["host"].lower().strip(_SPACE).rstrip(".")
    port = f":{parts['port'].lstrip('0') or '0'}" if parts["port"] else ""
    return host, port, parts["path"].replace("\\", "/") + parts["query"]


def normalize_hosts(hosts: pl.Series) -> pl.Series:
    """Return the hosts as in ``normalize_host``; null for those that are invalid.

    >>> normalize_hosts(pl.Series(["Example.org", "ü.example", "xn--a", "a b"])).to_list()
    ['example.org', 'xn--tda.example', None, None]
    """
    is_plain = hosts.str.contains(_PLAIN_HOST) & ~hosts.str.contains(r"(?i)(?:^|\.)xn--")
    return _fill(hosts.str.to_lowercase().set(~is_plain, None), hosts, normalize_host)


def list_parent_domains(names: pl.Series) -> list[pl.Series]:
    """Return the host names, then their parent domains, one series per level; null where there is none.

    IP addresses have no parents, and neither do names that are too long for a host.

    >>> [level.to_list() for level in list_parent_domains(pl.Series(["a.b.org", "10.0.0.1"]))]
    [['a.b.org', '10.0.0.1'], ['b.org', None], ['org', None]]
    """
    levels = [names]
    names = names.set(names.str.len_bytes() > _MAX_HOST_BYTES, None)
    while True:
        names = names.str.extract(r"^[^.\[]*\.(.*[^.0-9][^.]*)$", 1)
        if names.null_count() == len(names):
            return levels
        levels.append(names)


def extract_words(urls: pl.Series) -> pl.Series:
    """Return the words of each URL, decoded and in lower case: runs of letters, marks and digits.

    Percent signs, Punycode and compatibility characters (NFKC) are decoded.

    >>> extract_words(pl.Series(["https://xn--bcher-kva.org/Free%20Ｇames?id=Ž1"])).to_list()
    [['https', 'bücher', 'org', 'free', 'games', 'id', 'ž1']]
    """
    return _decode(urls).str.extract_all(r"[\p{L}\p{M}\p{N}]+")


def squeeze_urls(urls: pl.Series) -> pl.Series:
    """Return the words of each URL joined without separators.

    >>> squeeze_urls(pl.Series(["example.org/Free-Games"])).to_list()
    ['exampleorgfreegames']
    """
    return _decode(urls).str.replace_all(r"[^\p{L}\p{M}\p{N}]+", "")


def _decode(urls: pl.Series) -> pl.Series:
    plain = [  # 0.1 us per URL, 2 us with a percent sign
        unquote(url) if url is not None and "%" in url else url for url in urls.to_list()
    ]
    decoded = pl.Series(urls.name, plain, pl.String).str.normalize("NFKC").str.to_lowercase()
    encoded = decoded.str.contains("xn--", literal=True).fill_null(value=False).arg_true()
    labels = [_ENCODED_LABEL.sub(_decode_label, url) for url in decoded.gather(encoded).to_list()]
    return decoded.scatter(encoded, pl.Series(labels, dtype=pl.String))


def _decode_label(match: re.Match[str]) -> str:
    """Return a label of a host in Unicode, or as it is if it is not valid Punycode."""
    try:
        label = match[1].encode().decode("punycode")
        label.encode()  # no surrogates
    except ValueError:
        return match[0]
    return label
