"""Units of work, their keys, and what workers report of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.lake.ledger import Ledger
from etl.lake.row_ranges import Address, RangeIndex
from etl.lake.unit_files import unit_files
from etl.parquet.data_file import DataFile
from etl.schemas import TableName
from etl.sources import Split
from etl.sources.content_digests import Content


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """The kept rows of one split in ``texts``: the unit of work of the second pass."""

    key: str  # of the split that wrote the rows, in ``documents``
    source: str
    files: tuple[LogicalFile, ...]  # of ``texts``, in row order
    rows: int  # that are not struck
    size: int  # bytes on disk
    first_row: int
    last_row: int
    arrival: int = 1  # of documents that arrive earlier, duplicates are kept
    judged: tuple[LogicalFile, ...] = ()  # data files of ``documents``, if deduplication reads them

    @property
    def span(self) -> tuple[Address, Address]:
        """The first and the last address."""
        return (self.source, self.first_row), (self.source, self.last_row)


def split_key(ledger: Ledger, split: Split) -> str:
    """Return the key of a split in ``documents``."""
    return ledger.key(split.identity, split.start, split.stop)


def kept_units(texts: Table) -> Iterator[WorkUnit]:
    """Yield the kept rows of ``texts``, one unit per split, ordered by source and row."""
    files = unit_files(texts, "size", "partition.verdict")
    kept = (file for file in files if file["partition.verdict"] == "kept" and file["rows"])
    for key, group in groupby(kept, key=lambda file: file["unit"]):
        split_files = list(group)
        yield WorkUnit(
            key=key,
            source=split_files[0]["min.source"],
            files=tuple(map(LogicalFile.of, split_files)),
            rows=sum(file["rows"] for file in split_files),
            size=sum(file["size"] for file in split_files),
            first_row=split_files[0]["min.row"],
            last_row=max(file["max.row"] for file in split_files),
        )


def arrived_units(
    texts: Ledger, duplicates: Ledger, documents: RangeIndex | None = None
) -> Iterator[WorkUnit]:
    """Yield the kept rows of ``texts`` with their arrivals, as deduplication counts them.

    ``documents`` are the data files of that table, if deduplication reads them.
    """
    assert texts.table is not None
    for unit in kept_units(texts.table):
        arrival = texts.arrival_of(texts.key(unit.key)) or 1
        arrival = max(arrival, duplicates.first_arrival)
        judged = () if documents is None else documents.files_between(*unit.span)
        yield replace(unit, arrival=arrival, judged=judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkResult:
    """The new data files of one unit of work and its counts: what a worker returns to the driver.

    All values are DataFiles or of Python's own types, so that reading a result imports no code of a user.
    """

    key: str
    source: str
    rows: int = 0
    kept: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)  # rule -> rows
    duplicates: int = 0
    tokens: int = 0
    special_texts: int = 0  # documents with tokens whose text spells a special token
    text_bytes: int = 0
    files: Mapping[TableName, Sequence[DataFile]] = field(default_factory=dict)  # by table
    pack: tuple[str, ...] = ()  # keys of the units in the same files, which the first one has
    content: Content | None = None  # of the input, if the unit is a split
    costs: Mapping[str, float] = field(default_factory=dict)  # part of the work -> seconds
    compile_seconds: float = 0.0  # in which the worker compiled kernels or waited for them


class WorkPart(NamedTuple):
    """What a worker has done of a unit of work that it runs: about which share of it, and its documents."""

    key: str
    share: float
    rows: int
    kept: int
    text_bytes: int
    seconds: float  # without those in which kernels were compiled
    compile_seconds: float
