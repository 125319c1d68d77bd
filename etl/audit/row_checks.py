"""Do the tables of a lake agree, row by row? Each document once, its tokens once, or its keeper.

Tables are compared one input file at a time, by the columns ``source`` and ``row``; memory is that of the
addresses of one input file, and of a few hundred bytes per duplicate of the lake.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import schemas
from etl import storage
from etl.audit.file_checks import Problem
from etl.table import Table

_THREADS = 8
_ADDRESS = ["source", "row"]
_FRAME = {"source": pl.String, "row": pl.Int64, "file": pl.String}
_KEEPER = {"keeper_source": pl.String, "keeper_row": pl.Int64, "keeper_lake": pl.String}
_DUPLICATES = {**_FRAME, "kind": pl.String, **_KEEPER, "place": pl.String}

STAYS = pl.col("kind") == schemas.CUT
"""Of a row of ``duplicates``: its document stays, though not all of it."""

SAME = pl.col("kind").is_in(schemas.WHOLE)
"""Of a row of ``duplicates``: its document is left out for a keeper."""


@dataclass
class _Group:
    """The data files whose rows may be of the same input files: sources from ``low`` to ``high``."""

    low: str
    high: str
    documents: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[dict[str, Any]] = field(default_factory=list)


def check_rows(
    documents: Table, tokens: Table | None, duplicates: pl.DataFrame
) -> Iterator[Problem]:
    """The rows that stand twice, or in one table but not in the other where they must.

    ``duplicates`` is what ``read_duplicates`` gives.
    """
    groups = _groups(documents, tokens)
    by_source = _Parts(duplicates, "source")
    by_keeper = _Parts(duplicates.filter(pl.col("keeper_lake").is_null()), "keeper_source")
    for group in groups:
        read = _documents(documents, group)
        kept = read.filter("kept")
        named = by_source.take(group.low, group.high)
        yield from _twice("documents", read)
        yield from _check_duplicates(named, by_keeper.take(group.low, group.high), kept)
        if tokens is not None:
            yield from _check_tokens(tokens, group, kept, named.filter(~STAYS))
    for part in (by_source, by_keeper):
        for source in sorted(part.left):
            what = f"rows of {source}, which is in no other table"
            yield from _each("duplicates", part.parts[source].with_columns(file="place"), what)


def read_duplicates(table: Table | None) -> pl.DataFrame:
    """All duplicates: address, ``file`` of documents, kind, keeper's address, ``place`` (their own file).

    ``keeper_lake`` is null unless another lake keeps the keeper.
    """
    parts = [pl.DataFrame(schema=_DUPLICATES)]
    if table is not None:
        known = set(table.schema.names)
        columns = [name for name in _DUPLICATES if name in known]
        missing = [pl.lit(None, pl.String).alias(name) for name in _KEEPER if name not in known]
        for fragment in table.fragments().to_pylist():
            frame = pl.DataFrame(pl.from_arrow(_read(table.url, fragment["path"], columns)))
            frame = frame.with_columns(*missing, place=pl.lit(fragment["path"]))
            parts.append(frame.select(list(_DUPLICATES)))
    return pl.concat(parts)


class _Parts:
    """A frame by one of its columns; ``left`` are the values that nobody has taken yet."""

    def __init__(self, frame: pl.DataFrame, column: str) -> None:
        self._empty = frame.clear()
        split = frame.partition_by(column, as_dict=True)
        self.parts = {str(value): part for (value,), part in split.items()}
        self.left = set(self.parts)
        self._order = sorted(self.parts)

    def take(self, low: str, high: str) -> pl.DataFrame:
        names = self._order[bisect_left(self._order, low) : bisect_right(self._order, high)]
        self.left.difference_update(names)
        return pl.concat([self._empty, *(self.parts[name] for name in names)])


def _groups(documents: Table, tokens: Table | None) -> list[_Group]:
    """The data files in groups whose ranges of sources do not overlap: mostly one input file each."""
    found: list[tuple[str, str, str, dict[str, Any]]] = []
    for name, table in (("documents", documents), ("tokens", tokens)):
        rows = table.fragments().to_pylist() if table is not None else []
        found += [(row["min.source"], row["max.source"], name, row) for row in rows]
    groups: list[_Group] = []
    for low, high, name, row in sorted(found, key=lambda entry: entry[:2]):
        if not groups or low > groups[-1].high:
            groups.append(_Group(low, high))
        groups[-1].high = max(groups[-1].high, high)
        getattr(groups[-1], name).append(row)
    return groups


def _documents(table: Table, group: _Group) -> pl.DataFrame:
    """The addresses of a group's documents, with their data file, and whether they are kept."""
    frames = [pl.DataFrame(schema={**_FRAME, "kept": pl.Boolean})]
    read = _addresses(table.url, [row["path"] for row in group.documents], [])
    for row, frame in zip(group.documents, read, strict=True):
        frames.append(frame.with_columns(kept=pl.lit(row["partition.verdict"] == "kept")))
    return pl.concat(frames)


def _check_duplicates(
    named: pl.DataFrame, keeping: pl.DataFrame, kept: pl.DataFrame
) -> Iterator[Problem]:
    """The duplicates among some kept documents, and those whose keepers are among them."""
    rows = named.with_columns(file="place")
    yield from _missing("duplicates", rows, kept, "whose document is not kept")
    both = named.join(kept, on=_ADDRESS, suffix="_now")
    moved = both.filter(pl.col("file") != pl.col("file_now")).with_columns(file="place")
    yield from _each("duplicates", moved, "that name another data file")
    keepers = keeping.select("kind", source="keeper_source", row="keeper_row", file="place")
    first = kept.join(named.filter(pl.col("kind").is_in(schemas.WHOLE)), on=_ADDRESS, how="anti")
    what = "whose keeper is not kept, or is a duplicate itself"
    yield from _missing("duplicates", keepers, first, what)
    there = first.join(named.filter(pl.col("kind") == schemas.SHORT), on=_ADDRESS, how="anti")
    known = keepers.filter(STAYS).join(first, on=_ADDRESS, how="semi")
    yield from _missing("duplicates", known, there, "that are cut for a document that is left out")


def _check_tokens(
    table: Table, group: _Group, kept: pl.DataFrame, duplicates: pl.DataFrame
) -> Iterator[Problem]:
    frames = [pl.DataFrame(schema=_FRAME)]
    paths = [row["path"] for row in group.tokens]
    read = _addresses(table.url, paths, ["num_tokens", "token_end"])
    for row, frame in zip(group.tokens, read, strict=True):
        ends = np.cumsum(frame["num_tokens"].to_numpy(), dtype=np.int64)
        if not np.array_equal(ends, frame["token_end"].to_numpy()):
            yield Problem("tokens", row["path"], "token_end is not the running total of num_tokens")
        elif ends.size and row.get("max.token_end") not in (None, int(ends[-1])):
            what = f"{ends[-1]} tokens where the log says {row['max.token_end']}"
            yield Problem("tokens", row["path"], what)
        frames.append(frame.select(list(_FRAME)))
    tokens = pl.concat(frames)
    yield from _twice("tokens", tokens)
    yield from _missing("tokens", tokens, kept, "whose document is not kept")
    both = tokens.join(duplicates, on=_ADDRESS, how="semi")
    yield from _each("tokens", both, "that are duplicates")


def _twice(table: str, frame: pl.DataFrame) -> Iterator[Problem]:
    again = frame.filter(pl.struct(_ADDRESS).is_duplicated())
    yield from _each(table, again, "whose address stands more than once")


def _missing(table: str, frame: pl.DataFrame, known: pl.DataFrame, what: str) -> Iterator[Problem]:
    yield from _each(table, frame.join(known, on=_ADDRESS, how="anti"), what)


def _each(table: str, rows: pl.DataFrame, what: str) -> Iterator[Problem]:
    """One problem per data file, with how many rows, and the first of them."""
    if rows.is_empty():
        return
    for (file,), part in rows.sort("file", *_ADDRESS).group_by("file", maintain_order=True):
        first = part.row(0, named=True)
        where = f"the first: {first['source']} row {first['row']}"
        yield Problem(table, str(file), f"{part.height} rows {what} ({where})")


def _addresses(url: str, paths: Sequence[str], columns: Sequence[str]) -> list[pl.DataFrame]:
    """The addresses in data files, and further columns; the files are read side by side."""
    names = [*_ADDRESS, *columns]

    def read(path: str) -> pl.DataFrame:
        frame = pl.DataFrame(pl.from_arrow(_read(url, path, names)))
        return frame.select(*_ADDRESS, pl.lit(path).alias("file"), *columns)

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(read, paths))


def _read(url: str, path: str, columns: Sequence[str]) -> pa.Table:
    with storage.open_input(storage.join(url, path)) as source:
        return pq.read_table(source, columns=list(columns), use_threads=False)
