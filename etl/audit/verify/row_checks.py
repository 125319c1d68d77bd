"""Compare the tables of a lake row by row: each kept document has its text and tokens once, or a keeper.

The tables are compared one input file at a time, by the columns ``source`` and ``row``. Memory: the addresses
of one input file, and a few hundred bytes per duplicate in the lake.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from etl import schemas
from etl.audit.verify.awaited_rows import AwaitedRows
from etl.audit.verify.file_checks import Problem
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.lake.commit_info import find_record
from etl.lake.ledger import Ledger
from etl.lake.table_versions import LiveInputs
from etl.lake.unit_files import rows_of, unit_files
from etl.parquet.data_file_reader import read_columns
from etl.plural import many

_THREADS = 8
_ADDRESS = ["source", "row"]
_FRAME = {"source": pl.String, "row": pl.Int64, "file": pl.String}
_JUDGED = {**_FRAME, "kept": pl.Boolean, "unit": pl.String, "unit_source": pl.String}
_JUDGED |= {"first_row": pl.Int64, "last_row": pl.Int64}
_IS_LISTED = (pl.col("source") == pl.col("unit_source")) & pl.col("row").is_between(
    "first_row", "last_row"
)
_KEEPER = {"keeper_source": pl.String, "keeper_row": pl.Int64, "keeper_lake": pl.String}
_SIMILARITY = {"similarity": pl.Float64, "is_estimate": pl.Boolean}
_DECISION = {"source": pl.String, "row": pl.Int64, "unit": pl.String, "kind": pl.String}
_DUPLICATES = {**_DECISION, **_KEEPER, **_SIMILARITY, "stored_in": pl.String}

STAYS = pl.col("kind") == schemas.CUT
"""Selects the rows of ``duplicates`` whose document is cut but not left out."""

SAME = pl.col("kind").is_in(schemas.WHOLE)
"""Selects the rows of ``duplicates`` whose document is left out for a keeper."""


@dataclass
class _Group:
    """Data files that may share input files: all their sources lie in ``low`` to ``high``."""

    low: str
    high: str
    documents: list[dict[str, Any]] = field(default_factory=list)
    texts: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))


def check_rows(
    documents: Table,
    texts: Ledger,
    tokens: Mapping[str, Table],
    duplicates: pl.DataFrame,
    inputs: LiveInputs,
) -> Iterator[Problem]:
    """Yield a problem for rows that occur twice or lack their counterpart in another table.

    Documents of splits without a key in ``texts`` may lack texts, and ``duplicates`` may name keepers whose
    rows were dropped: the next run reads these again. ``tokens`` has the table of each tokenizer by name.
    ``duplicates`` is the result of ``read_duplicates``, ``inputs`` are the input files of ``documents``.
    """
    assert texts.table is not None
    awaited = AwaitedRows(documents, texts, inputs)
    groups = _groups(documents, texts.table, tokens)
    by_source = _Parts(duplicates, "source")
    by_keeper = _Parts(duplicates.filter(pl.col("keeper_lake").is_null()), "keeper_source")
    for group in groups:
        rows = _judged(documents.url, group.documents)
        stored = _judged(texts.table.url, group.texts)
        kept = stored.filter("kept")
        decided = by_source.take(group.low, group.high)
        for name, frame in (("documents", rows), ("texts", stored)):
            yield from _repeated(name, frame)
            yield from _by_file(name, frame.filter(~_IS_LISTED), "that its log gives to others")
        yield from _check_texts(texts, stored, rows)
        keeping = by_keeper.take(group.low, group.high)
        yield from _check_duplicates(
            decided, keeping, kept, partial(awaited.exclude, documents=rows)
        )
        for name, table in tokens.items():
            yield from _check_tokens(name, table, group.tokens[name], kept, decided.filter(~STAYS))
    for part, sources in (
        (by_source, by_source.remaining),
        (by_keeper, {each for each in by_keeper.remaining if not awaited.has_source(each)}),
    ):
        for source in sorted(sources):
            what = f"of {source}, which is in no other table"
            rows = part.parts[source].with_columns(file="stored_in")
            yield from _by_file("duplicates", rows, what)


def read_duplicates(table: Table | None) -> pl.DataFrame:
    """Return all rows of ``duplicates``, with the data file that holds each as ``stored_in``.

    ``keeper_lake`` is null unless the keeper is in another lake, and ``is_estimate`` unless the similarity
    may be an estimate.
    """
    parts = [pl.DataFrame(schema=_DUPLICATES)]
    if table is not None:
        known = set(table.schema.names)
        columns = [name for name in _DUPLICATES if name in known]
        missing = [
            pl.lit(None, dtype).alias(name)
            for name, dtype in _DUPLICATES.items()
            if name not in known and name != "stored_in"
        ]
        for file in table.data_files().to_pylist():
            frame = pl.DataFrame(pl.from_arrow(read_live_rows(table.url, file, columns)))
            frame = frame.with_columns(*missing, stored_in=pl.lit(file["path"]))
            parts.append(frame.select(list(_DUPLICATES)))
    return pl.concat(parts)


class _Parts:
    """A frame split by one of its columns; ``remaining`` holds the values not taken yet."""

    def __init__(self, frame: pl.DataFrame, column: str) -> None:
        self._empty = frame.clear()
        split = frame.partition_by(column, as_dict=True)
        self.parts = {str(value): part for (value,), part in split.items()}
        self.remaining = set(self.parts)
        self._order = sorted(self.parts)

    def take(self, low: str, high: str) -> pl.DataFrame:
        names = self._order[bisect_left(self._order, low) : bisect_right(self._order, high)]
        self.remaining.difference_update(names)
        return pl.concat([self._empty, *(self.parts[name] for name in names)])


def _groups(documents: Table, texts: Table, tokens: Mapping[str, Table]) -> list[_Group]:
    """Group the data files by disjoint ranges of sources, mostly one input file per group."""
    files: list[tuple[str, str, str, dict[str, Any]]] = []
    lists = {"documents": unit_files(documents, "partition.verdict")}
    lists["texts"] = unit_files(texts, "partition.verdict")
    lists |= {name: iter(table.data_files().to_pylist()) for name, table in tokens.items()}
    for name, rows in lists.items():
        files += [(row["min.source"], row["max.source"], name, row) for row in rows]
    groups: list[_Group] = []
    for low, high, name, row in sorted(files, key=lambda entry: entry[:2]):
        # A data file of several sources connects their groups: a document and its tokens are always in
        # the same group, so that groups are checked one after another, in little memory.
        if not groups or low > groups[-1].high:
            groups.append(_Group(low, high))
        groups[-1].high = max(groups[-1].high, high)
        of_group = groups[-1].tokens[name] if name in tokens else getattr(groups[-1], name)
        of_group.append(row)
    return groups


def _judged(url: str, files: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the address and data file of each row in files of units, with the columns of ``_JUDGED``.

    ``kept`` is the verdict, and ``unit`` the key of the unit that the row belongs to by the log, which lies
    in ``unit_source`` from ``first_row`` to ``last_row``.
    """
    frames = [pl.DataFrame(schema=_JUDGED)]
    for file, frame in zip(files, _addresses(url, files), strict=True):
        unit = rows_of(file)
        values = (
            file["partition.verdict"] == "kept",
            unit.key,
            unit.source,
            unit.first_row,
            unit.last_row,
        )
        added = zip(list(_JUDGED.items())[len(_FRAME) :], values, strict=True)
        frames.append(
            frame.with_columns(pl.lit(value, t).alias(name) for (name, t), value in added)
        )
    return pl.concat(frames)


def _check_texts(ledger: Ledger, texts: pl.DataFrame, documents: pl.DataFrame) -> Iterator[Problem]:
    """Check that each text has a document with the same verdict, and the other way round."""
    address = [*_ADDRESS, "kept"]
    unknown = texts.join(documents, on=address, how="anti")
    yield from _by_file("texts", unknown, "of which `documents` has no row with the same verdict")
    assert ledger.table is not None
    record = find_record(ledger.table)
    has_rejected = record is not None and record.canonical["rejected"]["text"]
    stored = documents if has_rejected else documents.filter("kept")
    units = stored["unit"].unique().to_list()
    done = [unit for unit in units if ledger.is_done(ledger.key(unit))]
    without = stored.filter(pl.col("unit").is_in(done)).join(texts, on=address, how="anti")
    yield from _by_file("documents", without, "without a text")


def _check_duplicates(
    decided: pl.DataFrame,
    keeping: pl.DataFrame,
    kept: pl.DataFrame,
    without_awaited: Callable[[pl.DataFrame], pl.DataFrame],
) -> Iterator[Problem]:
    """Check the duplicates among some kept documents, and those whose keepers are among them.

    ``without_awaited`` removes the keepers that the next run reads again.
    """
    rows = decided.with_columns(file="stored_in")
    yield from _missing("duplicates", rows, kept, "whose document is not kept")
    both = decided.join(kept, on=_ADDRESS)
    moved = both.filter(pl.col("unit") != pl.col("unit_right")).with_columns(file="stored_in")
    yield from _by_file("duplicates", moved, "that name another unit of work")
    keepers = keeping.select("kind", source="keeper_source", row="keeper_row", file="stored_in")
    unique = kept.join(decided.filter(SAME), on=_ADDRESS, how="anti")
    lost = without_awaited(keepers.join(unique, on=_ADDRESS, how="anti"))
    yield from _by_file("duplicates", lost, "whose keeper is not kept, or is a duplicate itself")
    short = decided.filter(pl.col("kind") == schemas.SHORT)
    # A unit is cut because an earlier document keeps it: that document must stay, too.
    remaining = unique.join(short, on=_ADDRESS, how="anti")
    cut_for = keepers.filter(STAYS).join(unique, on=_ADDRESS, how="semi")
    yield from _missing(
        "duplicates", cut_for, remaining, "that are cut for a document that is left out"
    )


def _check_tokens(
    name: str,
    table: Table,
    files: Sequence[Mapping[str, Any]],
    kept: pl.DataFrame,
    duplicates: pl.DataFrame,
) -> Iterator[Problem]:
    for row in files:
        # Struck rows count, too: a file keeps the totals that it was written with.
        columns = read_columns(table.url, row["path"], ["num_tokens", "token_end"])
        stored = pl.DataFrame(pl.from_arrow(columns))
        ends = np.cumsum(stored["num_tokens"].to_numpy(), dtype=np.int64)
        if not np.array_equal(ends, stored["token_end"].to_numpy()):
            yield Problem(name, row["path"], "token_end is not the running total of num_tokens")
        elif ends.size and row.get("max.token_end") not in (None, int(ends[-1])):
            what = f"the file has {ends[-1]} tokens, but the log records {row['max.token_end']}"
            yield Problem(name, row["path"], what)
    tokens = pl.concat([pl.DataFrame(schema=_FRAME), *_addresses(table.url, files)])
    yield from _repeated(name, tokens)
    yield from _missing(name, tokens, kept, "whose document is not kept")
    both = tokens.join(duplicates, on=_ADDRESS, how="semi")
    yield from _by_file(name, both, "of duplicates")


def _repeated(table: str, frame: pl.DataFrame) -> Iterator[Problem]:
    repeated = frame.filter(pl.struct(_ADDRESS).is_duplicated())
    yield from _by_file(table, repeated, "whose address occurs more than once")


def _missing(table: str, frame: pl.DataFrame, known: pl.DataFrame, what: str) -> Iterator[Problem]:
    yield from _by_file(table, frame.join(known, on=_ADDRESS, how="anti"), what)


def _by_file(table: str, rows: pl.DataFrame, what: str) -> Iterator[Problem]:
    """Yield one problem per data file, with its number of rows and the first of them."""
    if rows.is_empty():
        return
    for (file,), part in rows.sort("file", *_ADDRESS).group_by("file", maintain_order=True):
        first = part.row(0, named=True)
        where = f"the first: {first['source']} row {first['row']}"
        yield Problem(table, str(file), f"{many(part.height, 'row')} {what} ({where})")


def _addresses(url: str, files: Sequence[Mapping[str, Any]]) -> list[pl.DataFrame]:
    """Return the addresses of the rows of data files, which are read in parallel."""

    def read(file: Mapping[str, Any]) -> pl.DataFrame:
        frame = pl.DataFrame(pl.from_arrow(read_live_rows(url, file, _ADDRESS)))
        return frame.select(*_ADDRESS, pl.lit(file["path"]).alias("file"))

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(read, files))
