"""Compare two lakes by the digests of their tables, and find the input files whose rows differ.

The digests are in the logs. Where two differ, the rows of each input file are compared in the same way: the
log has the digest of each data file, most of which have one source. Only data files of several sources that
the other lake does not have with the same digest are read.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from etl import storage
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.html.card import Card, Shown
from etl.html.grid import make_grid
from etl.lake.table_digest import (
    digests_by_source,
    file_digest,
    is_digest_known,
    list_files,
    only_source,
    table_digest,
)
from etl.lake.table_names import in_order
from etl.lake.table_specs import open_tables, spec_of
from etl.parquet.row_digests import add_digests, to_hex

_THREADS = 8
_Parts = dict[str, tuple[int, int]]  # source -> number of rows, digest
_File: TypeAlias = Mapping[str, Any]  # an entry of the list of data files


@dataclass(frozen=True, kw_only=True)
class SourceDifference:
    """An input file whose rows differ in a table of two lakes, and how many rows there are of it."""

    source: str
    rows: int
    other_rows: int


@dataclass(frozen=True, kw_only=True)
class TableComparison:
    """The digests of a table of two lakes, None where it does not exist, and what differs.

    ``sources`` is empty for tables that are indexes of others: their rows are not compared by input file.
    """

    table: str
    digest: str | None
    other_digest: str | None
    sources: list[SourceDifference] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """Whether both lakes have the same rows."""
        return self.digest == self.other_digest


@dataclass(frozen=True, kw_only=True, repr=False)
class LakeComparison(Shown):
    """The tables of two lakes, compared."""

    lake: str
    other: str
    tables: list[TableComparison]

    @property
    def is_same(self) -> bool:
        """Whether all tables have the same rows."""
        return all(table.is_same for table in self.tables)

    def _cards(self) -> list[Card]:
        """Return the comparison as a card."""
        grids = [
            make_grid(
                f"Input files that differ in {table.table}",
                ("input file", "rows", "rows in the other lake"),
                table.sources,
                lambda each: (each.source, f"{each.rows:,}", f"{each.other_rows:,}"),
            )
            for table in self.tables
            if table.sources
        ]
        title = "The lakes have the same rows" if self.is_same else "The lakes differ"
        differing = ", ".join(table.table for table in self.tables if not table.is_same)
        facts = {"lake": self.lake, "other": self.other, "differing": differing or None}
        return [Card(title=title, facts=facts, grids=grids)]


def compare_lakes(lake: str, other: str) -> LakeComparison:
    """Compare the rows of the tables of two lakes, at their newest versions.

    Only rows that differ are looked for in data files, which must be sound: ``verify`` checks them. Raises
    TableError if one is not a lake, or if a data file that must be read is damaged.
    """
    urls = [storage.normalize(url) for url in (lake, other)]
    mine, others = map(open_tables, urls)
    names = in_order({*mine, *others})
    tables = [_compare(name, mine.get(name), others.get(name)) for name in names]
    return LakeComparison(lake=urls[0], other=urls[1], tables=tables)


def _compare(name: str, table: Table | None, other: Table | None) -> TableComparison:
    digests = [None if each is None else to_hex(table_digest(each)) for each in (table, other)]
    sources: list[SourceDifference] = []
    if table is not None and other is not None and digests[0] != digests[1]:
        sources = [] if spec_of(name).is_index else differing_sources(table, other)
    return TableComparison(table=name, digest=digests[0], other_digest=digests[1], sources=sources)


def differing_sources(table: Table | None, other: Table | None) -> list[SourceDifference]:
    """Return the sources of which two tables have different rows; None has none."""
    mine, mixed = _sum_files(table)
    others, other_mixed = _sum_files(other)
    shared = _digests_of(mixed) & _digests_of(other_mixed)
    same, rest = _divide(mixed, shared)
    for each, parts, files in (
        (table, mine, rest),
        (other, others, _divide(other_mixed, shared)[1]),
    ):
        if each is not None:
            _add_rows(parts, each, files)
    differing = {name for name in {*mine, *others} if mine.get(name) != others.get(name)}
    more = Counter() if table is None else _count_rows(table, same, differing)
    return [
        SourceDifference(
            source=name,
            rows=mine.get(name, (0, 0))[0] + more[name],
            other_rows=others.get(name, (0, 0))[0] + more[name],
        )
        for name in sorted(differing)
    ]


def _sum_files(table: Table | None) -> tuple[_Parts, list[_File]]:
    """Return the rows in data files of one source, and the other data files."""
    parts, mixed = _Parts(), list[_File]()
    if table is None:
        return parts, mixed
    for file in list_files(table, "rows", "min.source", "max.source"):
        if (source := only_source(file)) is None:
            mixed.append(file)
        else:
            _add(parts, source, file["rows"], file_digest(table, file))
    return parts, mixed


def _digests_of(files: Iterable[_File]) -> Counter[str]:
    """Return how many data files have each digest."""
    return Counter(file["digest"] for file in files if is_digest_known(file))


def _divide(files: Iterable[_File], shared: Counter[str]) -> tuple[list[_File], list[_File]]:
    """Return as many data files with each digest as are shared, and the others."""
    remaining, same, rest = shared.copy(), list[_File](), list[_File]()
    for file in files:
        is_same = is_digest_known(file) and remaining[file["digest"]] > 0
        remaining[file["digest"]] -= is_same
        (same if is_same else rest).append(file)
    return same, rest


def _add_rows(parts: _Parts, table: Table, files: Iterable[_File]) -> None:
    """Read data files, and add their rows to their sources."""
    with ThreadPoolExecutor(_THREADS) as pool:
        for read in pool.map(lambda file: [*digests_by_source(table, file)], files):
            for source, rows, digest in read:
                _add(parts, source, rows, digest)


def _add(parts: _Parts, source: str, rows: int, digest: int) -> None:
    before = parts.get(source, (0, 0))
    parts[source] = before[0] + rows, add_digests([before[1], digest])


def _count_rows(table: Table, files: Iterable[_File], sources: Collection[str]) -> Counter[str]:
    """Return the number of rows of some sources in data files that may have others, too."""
    counts: Counter[str] = Counter()
    for file in files:
        low, high = file["min.source"], file["max.source"]
        if any(low is None or low <= source <= high for source in sources):
            counts.update(read_live_rows(table.url, file, ["source"])["source"].to_pylist())
    return counts
