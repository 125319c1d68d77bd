"""Keep documents that hold nothing of some evaluation sets."""

import logging
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from etl.errors import RecipeError, SourceError
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing import ngram_index
from etl.kernels.words.normalized_words import sizes
from etl.sources import Columns, Source, list_splits, read_split
from etl.stages.base import Filter, Rules
from etl.storage.listing import FileInfo
from etl.storage.referenced_files import (
    find_referenced_files,
    find_referenced_files_cached,
    hash_referenced_files,
    read_text_lines,
)

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]

_SHOWN_CHARS: Final = 200  # of an n-gram, in a reason
_WHOLE: Final = 1 << 62  # split_bytes: no file is cut
_LOG = logging.getLogger(__name__)


class Decontaminate(Filter):
    """Keep documents that share no n-gram of words with evaluation sets.

    ``sets`` names files: Parquet, JSON Lines, CSV, Arrow with the text of an item in ``column`` (one for
    all, or one per set), or .txt with an item a line. ``decontaminate_<set>`` counts the n-grams of a set
    in a document; ``min_hits`` of them reject it, as ``decontaminate.<set>: <the first n-gram>``.

    Words are compared in lower case and without punctuation; where a script has no spaces, a character
    is a word. An item of fewer than ``ngram`` words counts as a whole if it has ``min_words``; a shorter
    one is not looked for, and a log line says how many these are.

    GPT-3 (Brown et al. 2020, arXiv 2005.14165, appendix C) cut 13-grams, with 200 characters around them,
    out of its training data, and later looked for its sets by n-grams of 8 to 13 words. Gopher (Rae et al.
    2021, arXiv 2112.11446, appendix A.1) left out documents that resemble a test document (Jaccard index
    of 13-grams over 0.8). PaLM (Chowdhery et al. 2022, arXiv 2204.02311, section 8) took an item for seen
    where 70 % of its 8-grams were. Here one 13-gram is enough, and the whole document goes.
    """

    kind: Literal["decontaminate"] = "decontaminate"
    paths = ("sets",)
    thresholds = ("min_hits",)
    sets: dict[Name, str] = Field(min_length=1, max_length=255)
    column: str | dict[Name, str] = "text"
    ngram: int = Field(default=13, ge=1, le=100)
    min_words: int = Field(default=8, ge=1)
    min_hits: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_words > self.ngram:
            raise ValueError(f"min_words is {self.min_words}, more than the {self.ngram} of ngram")
        if not isinstance(self.column, str) and (more := {*self.column} - {*self.sets}):
            raise ValueError(f"column names {min(more)!r}, which is none of the sets")
        return self

    def identity(self) -> dict[str, Any]:
        """The settings, with the sha256 of each set's files in place of their paths.

        Raises RecipeError if one is not there.
        """
        sets = {name: hash_referenced_files(path) for name, path in self.sets.items()}
        return {**super().identity(), "sets": sets}

    def check(self) -> None:
        """Read the first item of each set; raises RecipeError if there is none."""
        for listed in self._listed(find_referenced_files):
            next(_items(listed))

    def columns(self) -> dict[str, str]:
        """``decontaminate_<set>`` for each set."""
        return {f"{self.kind}_{name}": "n-grams of the set" for name in self._names}

    def rules(self) -> Rules:
        """``decontaminate.<set>``, by name."""
        return {name: pl.col(f"{self.kind}_{name}") >= self.min_hits for name in self._names}

    def signals(self) -> list[str]:
        """``text``, and the columns of the rules."""
        return ["text", *self.columns()]

    def measure(self, table: pa.Table) -> pa.Table:
        """The places of each text where an n-gram of a set stands; null for null.

        Raises RecipeError if a set cannot be read, or has no item that is long enough.
        """
        hits, _ = ngram_index.count(buffers(table["text"]), self._grams(), len(self._names))
        null = pc.is_null(table["text"]).to_numpy()
        columns = zip(self.columns(), hits, strict=True)
        return pa.table({name: pa.array(found, pa.float64(), mask=null) for name, found in columns})

    def reasons(self, table: pa.Table) -> pa.Array:
        """``decontaminate.<set>``, and after a colon the first n-gram, where the text is at hand."""
        found = super().reasons(table)
        rejected = np.flatnonzero(pc.is_valid(found).to_numpy(zero_copy_only=False))
        if not len(rejected) or "text" not in table.column_names:
            return found
        known = self._grams()
        _, firsts = ngram_index.count(
            buffers(table["text"].take(rejected)), known, len(self._names)
        )
        reasons = found.to_pylist()
        for place, row in enumerate(rejected.tolist()):
            group = self._names.index(reasons[row].removeprefix(f"{self.kind}."))
            if (first := int(firsts[group, place])) >= 0:
                reasons[row] += f": {ngram_index.text_of(known, first)[:_SHOWN_CHARS]}"
        return pa.array(reasons, pa.string())

    @property
    def _names(self) -> list[str]:
        return sorted(self.sets)  # a recipe's identity does not know their order

    def _grams(self) -> ngram_index.Grams:
        return _load(tuple(self._listed(find_referenced_files_cached)), self.ngram, self.min_words)

    def _listed(self, find: Any) -> Iterator["_Set"]:
        for name in self._names:
            column = self.column if isinstance(self.column, str) else self.column.get(name, "text")
            yield _Set(name, column, find(self.sets[name]))


class _Set(NamedTuple):
    """An evaluation set, and its files as they are now."""

    name: str
    column: str
    files: tuple[FileInfo, ...]


@lru_cache(maxsize=1)  # 100 MB of text take 350 MB, twice that while they are read
def _load(sets: tuple[_Set, ...], ngram: int, min_words: int) -> ngram_index.Grams:
    parts = [pa.concat_arrays(list(_items(listed))) for listed in sets]
    groups = np.repeat(np.arange(len(sets), dtype=np.uint8), [len(part) for part in parts])
    items = buffers(pa.concat_arrays(parts))
    known = ngram_index.index(items, groups, words=ngram, short_words=min_words)
    num_words, _ = sizes(items)
    for group, listed in enumerate(sets):
        found = num_words[groups == group]
        short = int((found < min_words).sum())
        if short == len(found):
            raise RecipeError(
                f"no item of {listed.name} has {min_words} words, so that none would be found",
                where=listed.files[0].uri,
                hint="set min_words to less; short items are found by accident, too",
            )
        if short:
            text = "%s: %d of %d items have fewer than %d words, and are not looked for"
            _LOG.warning(text, listed.name, short, len(found), min_words)
    return known


def _items(listed: _Set) -> Iterator[pa.Array]:
    """The texts of a set's items, some at a time; raises RecipeError if there are none."""
    empty = True
    for file in listed.files:
        for texts in _texts(file, listed.column):
            empty = False
            yield texts
    if empty:
        raise RecipeError(f"the set {listed.name} has no items", where=listed.files[0].uri)


def _texts(file: FileInfo, column: str) -> Iterator[pa.Array]:
    if file.uri.lower().endswith((".txt", ".txt.gz")):
        if found := list(read_text_lines(file)):
            yield pa.array(found, pa.large_string())
        return
    source = Source(path=file.uri, columns=Columns(text=column), split_bytes=_WHOLE)
    try:
        for split in list_splits(source):
            for table in read_split(split, source):
                if bad := table.filter(pc.is_valid(table["reason"])).to_pylist():
                    what = f"row {bad[0]['row']} has no {column!r} to use ({bad[0]['reason']})"
                    hint = "`column` names the items' text; mend the row, or take it out"
                    raise RecipeError(what, where=file.uri, hint=hint)
                yield from pc.fill_null(table["text"], "").cast(pa.large_string()).chunks
    except SourceError as error:
        raise RecipeError(error.what, where=error.where, hint=error.hint) from error
