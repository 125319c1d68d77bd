"""The Decontaminate stage: reject documents that contain text of evaluation sets."""

import logging
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from etl.errors import RecipeError, SourceError, StorageError
from etl.schemas import RAW
from etl.sources import Columns, Source
from etl.stages.base import Filter, Rules
from etl.storage.list_files import FileInfo
from etl.storage.referenced_files import (
    find_referenced_files,
    find_referenced_files_cached,
    find_unreadable_files,
    hash_referenced_files,
    read_text_lines,
)

if TYPE_CHECKING:
    from etl.kernels.hashing.ngram_index import Grams, Hits

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]

_MAX_SHOWN_CHARS: Final = 200  # of an n-gram in a reason
_NO_SPLITS: Final = 1 << 62  # split_bytes: each file is one split
_LOG = logging.getLogger(__name__)


class Decontaminate(Filter):
    """Keep documents that share no n-gram of words with evaluation sets.

    ``sets`` gives the files of each set: Parquet, JSON Lines, CSV or Arrow with the text of the items in
    ``column`` (one name for all sets or one per set), or .txt with one item per line.
    ``decontaminate_<set>`` counts the n-grams of a set in a document. A document with ``min_hits`` of them
    is rejected as ``decontaminate.<set>: <the first n-gram>``.

    Words are compared in lower case and without punctuation; in scripts without spaces, each character is
    a word. An item of fewer than ``ngram`` words is matched as a whole if it has at least ``min_words``.
    Shorter items are ignored, and a warning is logged with their number. Items without a usable text are left
    out and counted. Of a folder or glob, files that cannot be read are quarantined, and the others are used.

    GPT-3 (Brown et al. 2020, arXiv 2005.14165, appendix C) removed 13-grams, with 200 characters around
    them, from its training data, and later searched for its sets by n-grams of 8 to 13 words. Gopher (Rae
    et al. 2021, arXiv 2112.11446, appendix A.1) removed documents that resemble a test document (Jaccard
    index of 13-grams over 0.8). PaLM (Chowdhery et al. 2022, arXiv 2204.02311, section 8) treated an item
    as contaminated if 70 % of its 8-grams occurred. Here one 13-gram rejects the whole document.
    """

    kind: Literal["decontaminate"] = "decontaminate"
    example = "decontaminate: {sets: {gsm8k: gsm8k-test.jsonl}, column: question}"
    paths = ("sets",)
    thresholds = ("min_hits",)
    sets: dict[Name, str] = Field(min_length=1, max_length=255)
    """The files of each evaluation set: a name and a path, URL or glob."""
    column: str | dict[Name, str] = "text"
    """The column that holds the text of the items: one name for all sets, or one per set."""
    ngram: int = Field(default=13, ge=1, le=100)
    """How many words in a row must be equal; 13 as in GPT-3."""
    min_words: int = Field(default=8, ge=1)
    """A shorter item is ignored; one of up to ``ngram`` words is matched as a whole."""
    min_hits: int = Field(default=1, ge=1)
    """How many of a set's n-grams reject a document."""

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        if self.min_words > self.ngram:
            raise ValueError(f"min_words ({self.min_words}) is greater than ngram ({self.ngram})")
        if not isinstance(self.column, str) and (unknown := {*self.column} - {*self.sets}):
            raise ValueError(
                f"column has a key {min(unknown)!r}, which is not one of the sets: {', '.join(self._names)}"
            )
        return self

    def identity(self) -> dict[str, Any]:
        """Return the settings, with the sha256 of each set's files in place of their paths.

        Raises RecipeError if a file does not exist.
        """
        sets = {name: hash_referenced_files(path) for name, path in self.sets.items()}
        return {**super().identity(), "sets": sets}

    def check(self) -> None:
        """Read the first item of each set; raise RecipeError if a set has none."""
        for evaluation_set in self._sets(find_referenced_files):
            next(_usable_items(evaluation_set))

    def skipped_items(self) -> dict[str, int]:
        """Return how many items of each set have no usable text, as ``decontaminate.<set>: <reason>``."""
        counts: Counter[str] = Counter()
        for each in self._sets(find_referenced_files):
            for file in each.files:
                for items in _items(file, each.column):
                    counts.update(
                        f"{self.kind}.{each.name}: {r}" for r in _bad(items)["reason"].to_pylist()
                    )
        return dict(counts)

    def unreadable_files(self) -> list[StorageError]:
        """Return why files of sets cannot be read."""
        return [error for path in self.sets.values() for error in find_unreadable_files(path)]

    def columns(self) -> dict[str, str]:
        """Return ``decontaminate_<set>`` for each set."""
        return {f"{self.kind}_{name}": "n-grams of the set" for name in self._names}

    def rules(self) -> Rules:
        """Return one rule per set, in the order of their names: ``decontaminate.<set>``."""
        return {name: pl.col(f"{self.kind}_{name}") >= self.min_hits for name in self._names}

    def signals(self) -> list[str]:
        """Return ``text`` and the columns of the rules."""
        return ["text", *self.columns()]

    def measure(self, table: pa.Table) -> pa.Table:
        """Count the positions in each text at which an n-gram of a set begins; null for null.

        Raises RecipeError if a set cannot be read or has no item that is long enough.
        """
        hits = self._count(table["text"], self._grams()).counts
        null = pc.is_null(table["text"]).to_numpy()
        columns = zip(self.columns(), hits, strict=True)
        return pa.table({name: pa.array(count, pa.float64(), mask=null) for name, count in columns})

    def reasons(self, table: pa.Table) -> pa.Array:
        """Return ``decontaminate.<set>`` as reason, with the first n-gram if the table has the text."""
        by_rules = super().reasons(table)
        rejected = np.flatnonzero(pc.is_valid(by_rules).to_numpy(zero_copy_only=False))
        if not len(rejected) or "text" not in table.column_names:
            return by_rules
        from etl.kernels.hashing.ngram_index import text_of

        known = self._grams()
        firsts = self._count(table["text"].take(rejected), known).firsts
        reasons = by_rules.to_pylist()
        for index, row in enumerate(rejected.tolist()):
            group = self._names.index(reasons[row].removeprefix(f"{self.kind}."))
            if (first := int(firsts[group, index])) >= 0:
                reasons[row] += f": {text_of(known, first)[:_MAX_SHOWN_CHARS]}"
        return pa.array(reasons, pa.string())

    @property
    def _names(self) -> list[str]:
        return sorted(self.sets)  # a recipe's identity does not depend on their order

    def _grams(self) -> "Grams":
        return _load(tuple(self._sets(find_referenced_files_cached)), self.ngram, self.min_words)

    def _count(self, texts: pa.ChunkedArray, known: "Grams") -> "Hits":
        from etl.kernels.bytes.utf8 import texts as buffers
        from etl.kernels.hashing.ngram_index import count_ngrams

        return count_ngrams(buffers(texts), known, len(self._names))

    def _sets(self, find: Any) -> Iterator["_Set"]:
        for name in self._names:
            column = self.column if isinstance(self.column, str) else self.column.get(name, "text")
            yield _Set(name, column, find(self.sets[name]))


class _Set(NamedTuple):
    """An evaluation set and the current versions of its files."""

    name: str
    column: str
    files: tuple[FileInfo, ...]


@lru_cache(maxsize=1)  # 100 MB of text take 350 MB of memory, and twice that during loading
def _load(sets: tuple[_Set, ...], ngram: int, min_words: int) -> "Grams":
    from etl.kernels.bytes.utf8 import texts as buffers
    from etl.kernels.hashing.ngram_index import build_index
    from etl.kernels.words.normalized_words import sizes

    parts = [pa.concat_arrays(list(_usable_items(each))) for each in sets]
    groups = np.repeat(np.arange(len(sets), dtype=np.uint8), [len(part) for part in parts])
    items = buffers(pa.concat_arrays(parts))
    known = build_index(items, groups, words=ngram, short_words=min_words)
    num_words = sizes(items).num_words
    for group, listed in enumerate(sets):
        item_words = num_words[groups == group]
        num_short = int((item_words < min_words).sum())
        if num_short == len(item_words):
            raise RecipeError(
                f"no item of the set {listed.name} has at least {min_words} words, so none is used",
                where=listed.files[0].uri,
                hint="set a lower min_words; short items also match by accident",
            )
        if num_short:
            text = "%s: %d of %d items have fewer than %d words and are ignored"
            _LOG.warning(text, listed.name, num_short, len(item_words), min_words)
    return known


def _usable_items(evaluation_set: _Set) -> Iterator[pa.Array]:
    """Yield the texts of a set's items in batches; raise RecipeError if no item has a text."""
    bad: dict[str, Any] | None = None
    is_empty = True
    for file in evaluation_set.files:
        for items in _items(file, evaluation_set.column):
            usable = items.filter(pc.is_null(items["reason"]))["text"]
            if len(usable):
                is_empty = False
                yield from pc.fill_null(usable, "").cast(pa.large_string()).chunks
            if bad is None and len(usable) < len(items):
                bad = _bad(items).slice(0, 1).to_pylist()[0]
    if bad is not None and is_empty:
        what = f"row {bad['row']} has no usable {evaluation_set.column!r} ({bad['reason']}), nor has another"
        hint = "set `column` to the column with the items' text"
        raise RecipeError(what, where=bad["source"], hint=hint)
    if is_empty:
        raise RecipeError(
            f"the set {evaluation_set.name} has no items", where=evaluation_set.files[0].uri
        )


def _bad(items: pa.Table) -> pa.Table:
    return items.filter(pc.is_valid(items["reason"]))


def _items(file: FileInfo, column: str) -> Iterator[pa.Table]:
    """Yield the items of a file: their rows and texts, and a reason for those without a usable text."""
    from etl.sources.list_splits import list_splits  # all readers, which no other stage needs
    from etl.sources.read_split import read_split

    if file.uri.lower().endswith((".txt", ".txt.gz")):
        if lines := list(read_text_lines(file)):
            yield pa.Table.from_pylist(
                [{"source": file.uri, "row": row, "text": text} for row, text in enumerate(lines)],
                schema=RAW,
            )
        return
    source = Source(path=file.uri, columns=Columns(text=column), split_bytes=_NO_SPLITS)
    try:
        for split in list_splits(source):
            yield from read_split(split, source)
    except SourceError as error:
        raise RecipeError(error.what, where=error.where, hint=error.hint) from error
