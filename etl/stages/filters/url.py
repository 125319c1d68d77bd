"""The Url stage: reject documents whose URL matches an entry of a list."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from pydantic import Field

from etl.errors import RecipeError, StorageError
from etl.kernels.bytes.one_chunk import one_chunk
from etl.stages.base import Filter, Rules
from etl.storage.list_files import FileInfo
from etl.storage.referenced_files import (
    Paths,
    find_referenced_files,
    find_referenced_files_cached,
    find_unreadable_files,
    hash_referenced_files,
    read_list_entries,
)
from etl.text import url_columns as addresses

_RULES: Final = {
    "domains": "domain",
    "hosts": "host",
    "urls": "url",
    "words": "word",
    "soft_words": "soft_words",
    "substrings": "substring",
}
"""List -> the name of its rule over the column ``url_<list>``, in the order of the rules."""

_HOST_HINT: Final = (
    "write one host per line, without scheme, port and path; use the list `urls` for URLs"
)
_HINTS: Final = {
    "domains": _HOST_HINT,
    "hosts": _HOST_HINT,
    "urls": "write one URL per line, such as example.org/path",
    **dict.fromkeys(("words", "soft_words", "substrings"), "write one word per line"),
}
_BATCH_ENTRIES: Final = 1 << 16
_MAX_SHOWN: Final = 60


class Url(Filter):
    """Keep documents whose URL matches no entry of some lists; documents without a URL are kept.

    A list is a text file, plain or .gz, with one entry per line; lines that begin with # are comments. For
    each list that is set, ``url_<list>`` counts the entries that match the URL:

    Of a folder or glob of lists, files that cannot be read are quarantined, and the others are used.

    - ``domains`` match the host or any of its parent domains, so ``example.org`` matches
      ``www.example.org`` too, and no list of public suffixes is needed;
    - ``hosts`` match only that host; ``urls`` match that URL, regardless of scheme, fragment and trailing
      slash;
    - ``words`` match a word of the URL, and one rejects the document; ``soft_words`` do too, but it takes
      ``min_soft_words`` of them;
    - ``substrings`` match anywhere in the letters and digits of the URL, across punctuation.

    The rules are from RefinedWeb (Penedo et al. 2023, arXiv 2306.01116, appendix G) as in datatrove
    0.10.1. datatrove matches words in the URL as written; here percent signs, Punycode and full-width
    letters are decoded, and letters of all scripts count, in lower case. Lists may have millions of entries.

    Hosts are compared as browsers see them (WHATWG, url.spec.whatwg.org): ``bücher.example``,
    ``xn--bcher-kva.example`` and ``b%C3%BCcher。example`` are equal, and so are ``127.0.0.1`` and ``0x7f.1``.
    A list with an invalid host is an error. In a document, an invalid host is compared as written, in lower
    case, with its parent domains.
    """

    kind: Literal["url"] = "url"
    example = "url: {domains: [blocked-domains.txt], words: [blocked-words.txt]}"
    paths = ("domains", "hosts", "urls", "words", "soft_words", "substrings")
    thresholds = ("min_soft_words",)
    domains: Paths = ()
    """Files of domains; each matches the host of a URL and all its subdomains."""
    hosts: Paths = ()
    """Files of hosts; each matches that host only."""
    urls: Paths = ()
    """Files of URLs; scheme, fragment and trailing slash are ignored."""
    words: Paths = ()
    """Files of words; one of them in a URL rejects the document."""
    soft_words: Paths = ()
    """Files of words of which a URL needs several to be rejected, see ``min_soft_words``."""
    min_soft_words: int = Field(default=2, ge=1)
    """Number of ``soft_words`` in a URL that rejects the document; 2 as in RefinedWeb."""
    substrings: Paths = ()
    """Files of strings that reject wherever they occur among the letters and digits of a URL."""

    def check(self) -> None:
        """Read the first entries of each list; raise RecipeError if one cannot match or be read."""
        for name in self._lists():
            for file in (
                file for path in getattr(self, name) for file in find_referenced_files(path)
            ):
                next(_normalized_entries(name, (file,)), None)

    def identity(self) -> dict[str, Any]:
        """Return the settings, with the sha256 of each list's files in place of their paths.

        Raises RecipeError if a file does not exist.
        """
        lists = {
            name: [hash_referenced_files(p) for p in getattr(self, name)] for name in self.paths
        }
        return {**super().identity(), **lists}

    def unreadable_files(self) -> list[StorageError]:
        """Return why files of lists cannot be read."""
        paths = (path for name in self._lists() for path in getattr(self, name))
        return [error for path in paths for error in find_unreadable_files(path)]

    def columns(self) -> dict[str, str]:
        """Return ``url_<list>`` for each list that is set."""
        return {f"url_{name}": f"entries of {name}" for name in self._lists()}

    def rules(self) -> Rules:
        """Return one rule per list: one entry rejects, of ``soft_words`` it takes ``min_soft_words``."""
        minimum = {name: self.min_soft_words if name == "soft_words" else 1 for name in _RULES}
        return {_RULES[name]: pl.col(f"url_{name}") >= minimum[name] for name in self._lists()}

    def signals(self) -> list[str]:
        """Return ``url`` and the columns of the rules."""
        return ["url", *super().signals()]

    def measure(self, table: pa.Table) -> pa.Table:
        """Count the entries of each list that match the column ``url``; null where that is null.

        Raises RecipeError if a list cannot be read or has an entry that cannot match.
        """
        urls = pl.Series("url", one_chunk(table["url"]), pl.String)
        is_null = urls.is_null().to_numpy()
        columns = {}
        for name in self._lists():
            current = tuple(
                file for path in getattr(self, name) for file in find_referenced_files_cached(path)
            )
            counts = _COUNTS[name](urls, _load(name, current))
            columns[f"url_{name}"] = pa.array(counts, pa.float64(), mask=is_null)
        return pa.table(columns)

    def _lists(self) -> Iterator[str]:
        """Yield the names of the lists that are set."""
        return (name for name in _RULES if getattr(self, name))


_Keys = NDArray[np.uint64]
"""The entries of a list as sorted 64-bit XXH3 hashes: 8 bytes per entry.

A lookup in n entries gives a false match with a probability of n / 2**64: for 10**12 URLs and 5 million
entries, less than one false match is expected.
"""


def _count_domains(urls: pl.Series, keys: _Keys) -> NDArray[np.float64]:
    counts = np.zeros(len(urls))
    for names in addresses.list_parent_domains(addresses.extract_hosts(urls)):
        counts += _are_in(names, keys)
    return counts


def _count_hosts(urls: pl.Series, keys: _Keys) -> NDArray[np.float64]:
    return _are_in(addresses.extract_hosts(urls), keys).astype(np.float64)


def _count_urls(urls: pl.Series, keys: _Keys) -> NDArray[np.float64]:
    return _are_in(addresses.normalize_urls(urls), keys).astype(np.float64)


def _count_words(urls: pl.Series, keys: _Keys) -> NDArray[np.float64]:
    words = (
        pl.DataFrame({"words": addresses.extract_words(urls)})
        .with_row_index("url")
        .explode("words")
    )
    matches = words.filter(_are_in(words["words"], keys)).unique()
    return np.bincount(matches["url"].to_numpy(), minlength=len(urls)).astype(np.float64)


def _count_substrings(urls: pl.Series, patterns: pl.Series) -> NDArray[np.float64]:
    if patterns.is_empty():
        return np.zeros(len(urls))
    squeezed = addresses.squeeze_urls(urls).to_frame("url")
    matches = pl.col("url").str.extract_many(pl.lit(patterns).implode(), overlapping=True)
    counts = squeezed.select(count=matches.list.n_unique())["count"]
    return counts.fill_null(0).cast(pl.Float64).to_numpy()


_COUNTS: Final[dict[str, Callable[..., NDArray[np.float64]]]] = {
    "domains": _count_domains,
    "hosts": _count_hosts,
    "urls": _count_urls,
    "words": _count_words,
    "soft_words": _count_words,
    "substrings": _count_substrings,
}


def _are_in(names: pl.Series, keys: _Keys) -> NDArray[np.bool_]:
    """Return which of the names are entries; a null is not."""
    if not len(keys):
        return np.zeros(len(names), np.bool_)
    hashes = _hashes(names.fill_null("").to_list())
    indexes = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
    is_entry: NDArray[np.bool_] = (keys[indexes] == hashes) & names.is_not_null().to_numpy()
    return is_entry


def _hashes(names: list[str]) -> _Keys:
    digest = xxhash.xxh3_64_intdigest  # 0.15 us per name
    return np.fromiter((digest(name.encode()) for name in names), np.uint64, len(names))


@lru_cache(maxsize=12)  # the lists of two stages; reading a list takes 2 us per entry
def _load(name: str, list_files: tuple[FileInfo, ...]) -> _Keys | pl.Series:
    """Return the entries of a list as keys, or as normalized strings for ``substrings``."""
    if name == "substrings":
        entries = [entry for part in _normalized_entries(name, list_files) for entry in part]
        return pl.Series(sorted(set(entries)), dtype=pl.String)
    parts = [_hashes(part.to_list()) for part in _normalized_entries(name, list_files)]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))


def _normalized_entries(name: str, list_files: tuple[FileInfo, ...]) -> Iterator[pl.Series]:
    """Yield the entries of a list in batches, normalized like the URLs that they are compared with."""
    for file in list_files:
        lines = read_list_entries(file)
        while batch := list(islice(lines, _BATCH_ENTRIES)):
            entries = pl.DataFrame(batch, {"line": pl.Int64, "entry": pl.String}, orient="row")
            normalized, problem = _normalize(name, entries["entry"])
            bad = normalized.is_null()
            if bad.any():
                line, entry = entries.row(bad.arg_true()[0])
                what = f"the entry {entry[:_MAX_SHOWN]!r} {problem}"
                raise RecipeError(what, where=f"{file.uri}:{line}", hint=_HINTS[name])
            yield normalized


def _normalize(name: str, entries: pl.Series) -> tuple[pl.Series, str]:
    """Return the entries of a list, null for those that cannot match, and why these cannot."""
    if name in ("domains", "hosts"):
        names = entries.str.strip_prefix("*").str.strip_chars_start(".")
        return addresses.normalize_hosts(names), "is not a valid host name"
    if name == "urls":
        is_valid = addresses.normalize_hosts(addresses.extract_hosts(entries)).is_not_null()
        normalized = addresses.normalize_urls(entries)
        return normalized.set(~is_valid, None), "has no valid host name"
    squeezed = addresses.squeeze_urls(entries)
    return squeezed.set(squeezed == "", None), "has no letters or digits"
