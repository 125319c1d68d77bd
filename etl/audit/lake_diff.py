"""Compare the documents of two lakes, or of two versions of one: who left, who came, and why.

Only input files are read whose rows differ by the digests in the logs (``etl.audit.lake_comparison``), and of
these a few small columns. Memory: the rows of 64 input files.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from etl import schemas, storage
from etl.audit.lake_comparison import differing_sources
from etl.audit.lake_difference import LakeDifference, MovedDocument, MovedDocuments, SourceChange
from etl.audit.lake_report import report
from etl.audit.row_lookup import find_rows
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.lake.commit_info import find_record
from etl.lake.random_keys import random_keys
from etl.lake.releases import tables_at
from etl.lake.row_ranges import RangeIndex
from etl.lake.table_names import token_tables
from etl.recipe.recipe_diff import differences

_SOURCES_AT_ONCE: Final = 64
_TEXT_CHARS: Final = 500  # the beginning of an example
_LAST_ROW: Final = np.iinfo(np.int64).max
_KEPT: Final = "kept"
_NOT_READ: Final = "not read"
_COLUMNS: Final = {  # the columns to read of each table
    "documents": ("id", "lang", "reason"),
    "duplicates": ("kind",),
    "tokens": ("num_tokens",),
}


def diff_lakes(
    lake: str,
    other: str | None = None,
    *,
    version: int | str | None = None,
    other_version: int | str | None = None,
    samples: int = 0,
) -> LakeDifference:
    """Compare a lake at a version with another lake, or with itself at another version.

    Versions are as in ``etl.report``: a version of the last table, the name of a release, or None for the
    newest. ``samples`` documents are drawn of those that left, and that came, for each reason. Documents are
    the same if their addresses are.

    Raises TableError if one is not a lake, if a version does not exist, or if a file is damaged.
    """
    urls = [storage.normalize(lake), storage.normalize(other or lake)]
    versions = (version, other_version)
    reports = [report(url, version=each) for url, each in zip(urls, versions, strict=True)]
    sides = [_Side(tables_at(url, each)) for url, each in zip(urls, versions, strict=True)]
    records = [find_record(side.last) for side in sides]
    old, new = records
    moves = _Moves(samples)
    for sources in _differing(*sides):
        moves.add(*(side.outcomes(sources) for side in sides))
    return LakeDifference(
        old=reports[0],
        new=reports[1],
        recipe=[*differences(old.canonical, new.canonical)] if old and new else [],
        libraries=[*differences(old.versions, new.versions)] if old and new else [],
        left=moves.left.counts(sides[0].tables.get("texts")),
        came=moves.came.counts(sides[1].tables.get("texts")),
        other_reasons=moves.other_reasons,
        sources=moves.by_source(),
        language_tokens=moves.by_language(),
    )


class _Side:
    """The tables of one of the lakes, and where the rows of input files are in them."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        first = (tables[name] for name in token_tables(tables))  # whose tokens are compared
        self.tables = {**tables, **dict(zip(["tokens"], first, strict=False))}
        self._indexes = {name: RangeIndex.of(tables[name]) for name in _COLUMNS if name in tables}

    @property
    def last(self) -> Table:
        """The table whose record has the whole recipe."""
        names = (name for name in ("tokens", "duplicates", "documents") if name in self.tables)
        return self.tables[next(names)]

    def outcomes(self, sources: Sequence[str]) -> pl.DataFrame:
        """Return ``source``, ``row``, ``id``, ``lang``, ``outcome`` and ``num_tokens`` of input files."""
        documents, duplicates, tokens = (self._read(name, sources) for name in _COLUMNS)
        is_dropped = pl.col("kind").is_in([*schemas.WHOLE, schemas.SHORT])
        duplicates = duplicates.filter(is_dropped).with_columns(kind="duplicate." + pl.col("kind"))
        rule = pl.col("reason").str.split(": ").list.first()  # as ``schemas.rule_of``
        return (
            documents.join(duplicates, on=schemas.ADDRESS, how="left")
            .join(tokens, on=schemas.ADDRESS, how="left")
            .with_columns(outcome=pl.coalesce(rule, "kind", pl.lit(_KEPT)))
            .drop("reason", "kind")
        )

    def _read(self, name: str, sources: Sequence[str]) -> pl.DataFrame:
        schema = {"documents": schemas.documents([]), "duplicates": schemas.DUPLICATES}
        fields = schema.get(name, schemas.TOKENS)
        columns = pa.schema([fields.field(each) for each in (*schemas.ADDRESS, *_COLUMNS[name])])
        parts = [columns.empty_table()]
        if (index := self._indexes.get(name)) is not None:
            ranges = (index.files_between((each, -1), (each, _LAST_ROW)) for each in sources)
            files = dict.fromkeys(file for found in ranges for file in found)
            parts += (read_live_rows(self.tables[name].url, file, columns) for file in files)
        return pl.DataFrame(pa.concat_tables(parts)).filter(pl.col("source").is_in(sources))


def _differing(old: _Side, new: _Side) -> Iterator[list[str]]:
    """Yield the input files with rows that differ, or that one side alone has, in batches by name."""
    sources: set[str] = set()
    for name in _COLUMNS:
        found = differing_sources(old.tables.get(name), new.tables.get(name))
        sources.update(each.source for each in found)
    ordered = sorted(sources)
    for start in range(0, len(ordered), _SOURCES_AT_ONCE):
        yield ordered[start : start + _SOURCES_AT_ONCE]


class _Moves:
    """Running counts of the documents that left and came, and of the change in tokens."""

    def __init__(self, samples: int) -> None:
        self.left, self.came = _Moved(samples), _Moved(samples)
        self.other_reasons = 0
        self._sources: dict[str, Counter[str]] = defaultdict(Counter)
        self._languages: Counter[str | None] = Counter()

    def add(self, old: pl.DataFrame, new: pl.DataFrame) -> None:
        """Add the documents of some input files, as ``_Side.outcomes`` returns them."""
        both = old.join(new, on=schemas.ADDRESS, how="full", coalesce=True, suffix="_new")
        both = both.with_columns(
            pl.col("outcome", "outcome_new").fill_null(_NOT_READ),
            pl.col("num_tokens", "num_tokens_new").fill_null(0).cast(pl.Int64),
            pl.coalesce("lang", "lang_new"),
        )
        was_kept, is_kept = (pl.col(name) == _KEPT for name in ("outcome", "outcome_new"))
        for name, moved, condition, reason, of in (
            ("left", self.left, was_kept & ~is_kept, "outcome_new", "id"),
            ("came", self.came, ~was_kept & is_kept, "outcome", "id_new"),
        ):
            rows = both.filter(condition)
            moved.add(rows.select(*schemas.ADDRESS, id=of, reason=reason))
            for source, count in rows.group_by("source").len().iter_rows():
                self._sources[source][name] += count
        is_other = ~was_kept & ~is_kept & (pl.col("outcome") != pl.col("outcome_new"))
        is_read = ~pl.any_horizontal(pl.col("outcome", "outcome_new") == _NOT_READ)
        self.other_reasons += both.filter(is_other & is_read).height
        more = pl.col("num_tokens_new").sum() - pl.col("num_tokens").sum()
        for source, tokens in both.group_by("source").agg(more).iter_rows():
            self._sources[source]["tokens"] += tokens
        self._languages.update(dict(both.group_by("lang").agg(more).iter_rows()))

    def by_source(self) -> list[SourceChange]:
        """Return the input files in which documents or tokens changed, those with most documents first."""
        changes = [
            SourceChange(source=name, left=n["left"], came=n["came"], tokens=n["tokens"])
            for name, n in self._sources.items()
            if n["left"] or n["came"] or n["tokens"]
        ]
        return sorted(changes, key=lambda each: (-each.left - each.came, each.source))

    def by_language(self) -> dict[str, int]:
        """Return the changes in tokens by language, largest first; nothing if none was detected."""
        if not {*self._languages} - {None}:
            return {}
        tokens = {lang or "none": n for lang, n in self._languages.items() if n}
        return dict(sorted(tokens.items(), key=lambda each: (-abs(each[1]), each[0])))


class _Moved:
    """Documents that left, or came: counts by reason, and for each the ones with the least random keys."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._counts: Counter[str] = Counter()
        self._drawn = pl.DataFrame()

    def add(self, rows: pl.DataFrame) -> None:
        """Add documents with the columns ``source``, ``row``, ``id`` and ``reason``."""
        self._counts.update(dict(rows.group_by("reason").len().iter_rows()))
        if not self._samples or rows.is_empty():
            return
        keys = random_keys(rows.select(schemas.ADDRESS).to_arrow(), seed=0)
        drawn = pl.concat([self._drawn, rows.with_columns(key=keys)], how="diagonal")
        self._drawn = drawn.sort("key").group_by("reason", maintain_order=True).head(self._samples)

    def counts(self, texts: Table | None) -> list[MovedDocuments]:
        """Return the documents by reason, most frequent first, with the texts of those drawn."""
        examples: dict[str, list[MovedDocument]] = defaultdict(list)
        for each in self._drawn.iter_rows(named=True):
            address = {name: each[name] for name in schemas.ADDRESS}
            rows = iter(()) if texts is None else find_rows(texts, address, ["text"])
            text = next((str(row.values["text"])[:_TEXT_CHARS] for row in rows), None)
            examples[each["reason"]].append(MovedDocument(**address, id=each["id"], text=text))
        return [
            MovedDocuments(reason=reason, documents=count, examples=examples[reason])
            for reason, count in sorted(self._counts.items(), key=lambda each: (-each[1], each[0]))
        ]
