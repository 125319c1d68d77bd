"""Split columns of URLs into hosts, normalized URLs and words.

A URL without a scheme is read as a host and a path, as in most URL lists. Invalid URLs raise no error:
they are split by the same rules.
"""

from typing import Final
from urllib.parse import unquote

import polars as pl

_SPACE: Final = " \t\n\f\r"
_PARTS: Final = (
    rf"^[{_SPACE}]*(?:(?:[A-Za-z][A-Za-z0-9+.\-]*:)?//)?(?:[^/?#]*@)?"
    r"(?P<host>\[[^\]/?#]*\]|[^/?#:]*)(?P<port>:[0-9]*)?(?P<rest>[^#]*)"
)
_MAX_HOST_BYTES: Final = 255  # RFC 1035
_DEFAULT_PORTS: Final = ("", ":", ":80", ":443")


def extract_hosts(urls: pl.Series) -> pl.Series:
    """Return the host of each URL in lower case, without user, port and trailing dot; null for null.

    >>> extract_hosts(pl.Series(["https://User@Www.Example.ORG.:8080/a", "example.org/b", None])).to_list()
    ['www.example.org', 'example.org', None]
    """
    return _normalize_hosts(urls.str.extract(_PARTS, 1))


def normalize_urls(urls: pl.Series) -> pl.Series:
    """Return each URL without scheme, user, default port, fragment and trailing slash; null for null.

    The host is in lower case; path and query are unchanged.

    >>> normalize_urls(pl.Series(["HTTPS://Example.org:443/Index/#top", "//example.org?q=1"])).to_list()
    ['example.org/Index', 'example.org?q=1']
    """
    parts = urls.str.extract_groups(_PARTS).struct
    port = parts.field("port").fill_null("")
    port = port.set(port.is_in(_DEFAULT_PORTS), "")
    rest = parts.field("rest").str.strip_chars_end(_SPACE).str.strip_chars_end("/")
    return _normalize_hosts(parts.field("host")) + port + rest


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

    >>> extract_words(pl.Series(["https://example.org/Free%20Games?id=Ž1"])).to_list()
    [['https', 'example', 'org', 'free', 'games', 'id', 'ž1']]
    """
    return _decode(urls).str.extract_all(r"[\p{L}\p{M}\p{N}]+")


def squeeze_urls(urls: pl.Series) -> pl.Series:
    """Return the words of each URL joined without separators.

    >>> squeeze_urls(pl.Series(["example.org/Free-Games"])).to_list()
    ['exampleorgfreegames']
    """
    return _decode(urls).str.replace_all(r"[^\p{L}\p{M}\p{N}]+", "")


def _normalize_hosts(hosts: pl.Series) -> pl.Series:
    return hosts.str.to_lowercase().str.strip_chars(_SPACE).str.strip_chars_end(".")


def _decode(urls: pl.Series) -> pl.Series:
    plain = [  # 0.1 us per URL, 2 us with a percent sign
        unquote(url) if url is not None and "%" in url else url for url in urls.to_list()
    ]
    return pl.Series(urls.name, plain, pl.String).str.to_lowercase()
