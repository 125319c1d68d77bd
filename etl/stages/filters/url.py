"""Keep documents whose URL is on no list."""

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

from etl.errors import RecipeError
from etl.kernels.bytes.utf8 import one_chunk
from etl.stages.base import Filter, Rules
from etl.storage.listing import FileInfo
from etl.storage.referenced_files import (
    Paths,
    find_referenced_files_cached,
    hash_referenced_files,
    read_list_entries,
)
from etl.text import urls as addresses

_RULES: Final = {
    "domains": "domain",
    "hosts": "host",
    "urls": "url",
    "words": "word",
    "soft_words": "soft_words",
    "substrings": "substring",
}
"""List -> the rule over the column ``url_<list>``, in the order of the rules."""

_BATCH_ENTRIES: Final = 1 << 16


class Url(Filter):
    """Keep documents whose URL is on none of some lists; a document without a URL is kept.

    A list is a file, plain or .gz, with an entry a line; lines that begin with # are comments. Of each
    list that is given, ``url_<list>`` counts the entries that the URL matches:

    - ``domains``: the host or any domain above it, so that ``example.org`` is ``www.example.org`` too,
      and no list of public suffixes is needed;
    - ``hosts``: that host alone; ``urls``: that URL, whatever its scheme, fragment and final slash;
    - ``words``: a word of the URL, one is enough; ``soft_words``: of these ``min_soft_words`` are;
    - ``substrings``: what stands anywhere in the URL's letters and digits, over punctuation.

    The rules are those of RefinedWeb (Penedo et al. 2023, arXiv 2306.01116, appendix G) as datatrove
    0.10.1 has them. It looks for words in the URL as written; here capitals and percent signs hide
    nothing, and letters of all scripts are letters. Lists may have millions of entries.
    """

    kind: Literal["url"] = "url"
    paths = ("domains", "hosts", "urls", "words", "soft_words", "substrings")
    thresholds = ("min_soft_words",)
    domains: Paths = ()
    hosts: Paths = ()
    urls: Paths = ()
    words: Paths = ()
    soft_words: Paths = ()
    min_soft_words: int = Field(default=2, ge=1)
    substrings: Paths = ()

    def identity(self) -> dict[str, Any]:
        """The settings, with the sha256 of each list's files in place of their paths.

        Raises RecipeError if one is not there.
        """
        lists = {
            name: [hash_referenced_files(p) for p in getattr(self, name)] for name in self.paths
        }
        return {**super().identity(), **lists}

    def columns(self) -> dict[str, str]:
        """``url_<list>`` for each list that is given."""
        return {f"url_{name}": f"entries of {name}" for name in self._given()}

    def rules(self) -> Rules:
        """One entry rejects, of ``soft_words`` as many as asked for."""
        least = {name: self.min_soft_words if name == "soft_words" else 1 for name in _RULES}
        return {_RULES[name]: pl.col(f"url_{name}") >= least[name] for name in self._given()}

    def signals(self) -> list[str]:
        """``url``, and the columns of the rules."""
        return ["url", *super().signals()]

    def measure(self, table: pa.Table) -> pa.Table:
        """The entries of each list that match the column ``url``; null where that is null.

        Raises RecipeError if a list cannot be read, or has an entry that can match nothing.
        """
        urls = pl.Series("url", one_chunk(table["url"]), pl.String)
        unknown = urls.is_null().to_numpy()
        found = {}
        for name in self._given():
            listed = tuple(
                file for path in getattr(self, name) for file in find_referenced_files_cached(path)
            )
            counts = _COUNTS[name](urls, _load(name, listed))
            found[f"url_{name}"] = pa.array(counts, pa.float64(), mask=unknown)
        return pa.table(found)

    def _given(self) -> Iterator[str]:
        return (name for name in _RULES if getattr(self, name))


_Keys = NDArray[np.uint64]
"""The entries of a list as XXH3's 64 bits of each, sorted: 8 bytes an entry.

Two that differ are taken for one with a probability of n / 2**64 a look-up, n entries: among a million
million URLs and 5 million entries, for less than one.
"""


def _count_domains(urls: pl.Series, keys: _Keys) -> NDArray[np.float64]:
    counts = np.zeros(len(urls))
    for names in addresses.parents(addresses.hosts(urls)):
        counts += _are_in(names, keys)
    return counts


def _count_hosts(urls: pl.Series, keys: _Keys) -> NDArray[np.float64]:
    return _are_in(addresses.hosts(urls), keys).astype(np.float64)


def _count_urls(urls: pl.Series, keys: _Keys) -> NDArray[np.float64]:
    return _are_in(addresses.pages(urls), keys).astype(np.float64)


def _count_words(urls: pl.Series, keys: _Keys) -> NDArray[np.float64]:
    words = pl.DataFrame({"words": addresses.words(urls)}).with_row_index("url").explode("words")
    found = words.filter(_are_in(words["words"], keys)).unique()
    return np.bincount(found["url"].to_numpy(), minlength=len(urls)).astype(np.float64)


def _count_substrings(urls: pl.Series, patterns: pl.Series) -> NDArray[np.float64]:
    if patterns.is_empty():
        return np.zeros(len(urls))
    squeezed = addresses.squeezed(urls).to_frame("url")
    matches = pl.col("url").str.extract_many(pl.lit(patterns).implode(), overlapping=True)
    found = squeezed.select(count=matches.list.n_unique())["count"]
    return found.fill_null(0).cast(pl.Float64).to_numpy()


_COUNTS: Final[dict[str, Callable[..., NDArray[np.float64]]]] = {
    "domains": _count_domains,
    "hosts": _count_hosts,
    "urls": _count_urls,
    "words": _count_words,
    "soft_words": _count_words,
    "substrings": _count_substrings,
}


def _are_in(names: pl.Series, keys: _Keys) -> NDArray[np.bool_]:
    """Which of the names are entries; null is none."""
    if not len(keys):
        return np.zeros(len(names), np.bool_)
    hashes = _hashes(names.fill_null("").to_list())
    places = np.minimum(np.searchsorted(keys, hashes), len(keys) - 1)
    found: NDArray[np.bool_] = (keys[places] == hashes) & names.is_not_null().to_numpy()
    return found


def _hashes(names: list[str]) -> _Keys:
    digest = xxhash.xxh3_64_intdigest  # 0.15 us a name
    return np.fromiter((digest(name.encode()) for name in names), np.uint64, len(names))


@lru_cache(maxsize=12)  # the lists of two stages; reading one takes 2 us an entry
def _load(name: str, listed: tuple[FileInfo, ...]) -> _Keys | pl.Series:
    """The entries of one list: as keys, or those of ``substrings`` as they are."""
    if name == "substrings":
        found = [entry for part in _normal(name, listed) for entry in part]
        return pl.Series(sorted(set(found)), dtype=pl.String)
    parts = [_hashes(part.to_list()) for part in _normal(name, listed)]
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))


def _normal(name: str, listed: tuple[FileInfo, ...]) -> Iterator[pl.Series]:
    """The entries in the form in which they are compared."""
    for file in listed:
        lines = read_list_entries(file)
        while batch := list(islice(lines, _BATCH_ENTRIES)):
            entries = pl.Series(batch)
            if name == "urls":
                found = addresses.pages(entries)
            elif name in ("domains", "hosts"):
                found = addresses.hosts(entries.str.strip_prefix("*").str.strip_chars_start("."))
                _refuse(entries.str.contains(r"[/\s]"), entries, file, "is no name of a host")
            else:
                found = addresses.squeezed(entries)
            _refuse(found == "", entries, file, "has nothing to look for")
            yield found


def _refuse(wrong: pl.Series, entries: pl.Series, file: FileInfo, what: str) -> None:
    if wrong.any():
        entry = entries.filter(wrong)[0]
        raise RecipeError(
            f"the entry {entry!r} {what}",
            where=file.uri,
            hint="an entry a line; whole URLs belong under `urls`",
        )
