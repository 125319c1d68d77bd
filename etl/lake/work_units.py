"""Units of work, their keys, and what workers report of them."""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, tee

from etl.delta.data_file import DataFile
from etl.delta.table import Table
from etl.lake.ledger import Ledger, key_of
from etl.sources import Split


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """The kept rows of one split in ``documents``: the unit of work of the second pass."""

    key: str  # key of the split that wrote the rows
    source: str
    paths: tuple[str, ...]  # data files of ``documents``, in row order
    rows: int
    size: int  # bytes on disk


def split_key(ledger: Ledger, split: Split) -> str:
    """Return the key of a split in ``documents``."""
    edition = ledger.edition(split.uri, split.fingerprint)
    return ledger.key(split.uri, split.fingerprint, edition, split.start, split.stop)


def kept_units(documents: Table) -> Iterator[WorkUnit]:
    """Yield the kept rows of ``documents``, one unit per split, ordered by source and row."""
    columns = ("size", "rows", "partition.verdict", "min.source", "min.row")
    files = documents.files(*columns, by=("min.source", "min.row"))
    kept = (file for file in files if file["partition.verdict"] == "kept" and file["rows"])
    for key, group in groupby(kept, key=lambda file: key_of(file["path"])):
        split_files = list(group)
        yield WorkUnit(
            key=key,
            source=split_files[0]["min.source"],
            paths=tuple(file["path"] for file in split_files),
            rows=sum(file["rows"] for file in split_files),
            size=sum(file["size"] for file in split_files),
        )


def stale_data_files(ledger: Ledger, live: Container[str]) -> dict[str, list[str]]:
    """Return the live data files with rows of units that are not in ``live``, by (first) input file."""
    if ledger.table is None:
        return {}
    stale: dict[str, list[str]] = {}
    files, same_files = tee(ledger.table.files("path", "min.source"))
    units = ledger.units_of(file["path"] for file in same_files)
    for file, keys in zip(files, units, strict=True):
        if any(key not in live for key in keys):
            stale.setdefault(file["min.source"], []).append(file["path"])
    return stale


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
    text_bytes: int = 0
    documents: Sequence[DataFile] = ()
    token_files: Sequence[DataFile] = ()
    costs: Mapping[str, float] = field(default_factory=dict)  # part of the work -> seconds


def data_files_of(ledger: Ledger, sources: Collection[str]) -> dict[str, list[str]]:
    """Return the live data files with rows of the given input files, by input file."""
    if ledger.table is None or not sources:
        return {}
    paths: dict[str, list[str]] = {}
    for file in ledger.table.files("path", "min.source"):
        if file["min.source"] in sources:
            paths.setdefault(file["min.source"], []).append(file["path"])
    return paths
