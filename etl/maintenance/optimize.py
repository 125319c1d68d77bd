"""Compact small data files, in commits that change no rows.

Each small file costs readers a request and a footer. Files with neighbouring addresses, in ``keys`` with
neighbouring least keys, are merged into one file of about the target size. Old versions keep their files
until a vacuum, so a training run pinned to one is not affected. A run of the recipe may be in progress: files
that another commit removed first are skipped. ``documents`` and ``texts`` are not compacted: their files are
as large as the splits of the input.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from etl import schemas, storage
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import TableError
from etl.lake.jobs import Job, JobIdentity, hold_job
from etl.lake.keys_table import KeysTable
from etl.lake.ledger import Ledger, open_ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import Change, num_files
from etl.lake.merge_files import FileGroup, merge_files
from etl.lake.missing_tables import no_lake_error
from etl.lake.open_table import find_table
from etl.lake.table_specs import KEYS, SPECS, TableSpec
from etl.lake.work_units import kept_units
from etl.parquet.layout import Layout

TARGET_BYTES: Final = 256 << 20
"""The size on disk of a compacted data file; chosen here: half the largest file that a run writes, so that
full files are not rewritten."""

_KEYS_BYTES = 16 << 20  # two million keys, which a thread sorts in memory (200 MB)
_THREADS = 4  # each holds a row group or two
_PER_COMMIT = 64


@dataclass(frozen=True, kw_only=True)
class Optimized:
    """The result for one table: its data files and their bytes before and after."""

    table: str
    version: int
    files_before: int
    files: int
    size_before: int
    size: int


def optimize(lake: str, *, target_bytes: int = TARGET_BYTES) -> list[Optimized]:
    """Compact the small files of all tables but ``documents`` and ``texts``.

    Raises TableError if the lake has none of these tables, if no recipe made them, or if a file is damaged.
    """
    url = storage.normalize(lake)
    results = []
    with hold_job(JobIdentity(lake=url, kind="optimize")) as job:
        for spec in SPECS.values():
            if (ledger := _find_ledger(url, spec)) is not None:
                groups = _group_files(url, spec, ledger, target_bytes)
                results.append(_compact(ledger, groups, spec.layout, job))
    if not results:
        if find_table(storage.join(url, "documents")) is None:
            raise no_lake_error(url)
        raise TableError(
            "no tables to compact", where=url, hint="documents and texts are not compacted"
        )
    return results


def _find_ledger(lake: str, spec: TableSpec) -> Ledger | None:
    """Return the ledger of a table to compact; None if the table does not exist or will be rebuilt."""
    table = find_table(storage.join(lake, spec.name)) if spec.compact_by is not None else None
    if table is None:
        return None
    if spec is not KEYS:
        return open_ledger(table)
    duplicates = find_table(storage.join(lake, "duplicates"))
    keys = KeysTable(open_ledger(duplicates)) if duplicates is not None else None
    return keys.ledger if keys is not None and keys.fits else None


@dataclass(frozen=True)
class _Block:
    """Data files that must be merged together, because one unit of work has rows in each."""

    address: tuple[str, int]  # source and row; for ``keys`` the kind and the least key
    size: int
    rows: int
    files: tuple[LogicalFile, ...]
    units: tuple[str, ...]


def _group_files(lake: str, spec: TableSpec, ledger: Ledger, target_bytes: int) -> list[FileGroup]:
    """Group the data files of a table, each group for one file of about the target size."""
    assert ledger.table is not None
    if spec.compact_by == "key":
        return _group_by_key(ledger.table, min(target_bytes, _KEYS_BYTES))
    files = ledger.table.data_files(("vector", "size", "rows", "min.source", "min.row")).to_pylist()
    if spec.compact_by == "unit":
        blocks = _blocks_of_units(lake, ledger, files)
    else:
        blocks = [_block([file], []) for file in files]
    return list(_merge_neighbours(blocks, target_bytes))


def _blocks_of_units(lake: str, ledger: Ledger, files: Sequence[Mapping[str, Any]]) -> list[_Block]:
    """Return the files of each unit of work as a block, without those that the next run replaces."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    units: dict[str, list[str]] = {}
    texts = Table.open(storage.join(lake, "texts"))
    live = {ledger.key(unit.key) for unit in kept_units(texts)}
    for file, keys in zip(files, ledger.units_of(f["path"] for f in files), strict=True):
        if live.issuperset(keys):
            groups.setdefault(keys[0], []).append(file)
            units[keys[0]] = keys
    return [_block(groups[key], units[key]) for key in groups]


def _block(files: list[Mapping[str, Any]], units: list[str]) -> _Block:
    files = sorted(files, key=lambda file: (file["min.source"], file["min.row"]))
    return _Block(
        address=(files[0]["min.source"], files[0]["min.row"]),
        size=sum(file["size"] for file in files),
        rows=sum(file["rows"] for file in files),
        files=tuple(LogicalFile.of(file) for file in files),
        units=tuple(units),
    )


def _group_by_key(keys: Table, target_bytes: int) -> list[FileGroup]:
    """Group the files of ``keys`` by kind, with neighbouring least keys."""
    groups: list[FileGroup] = []
    files = keys.data_files(("vector", "size", "rows", "partition.kind", "min.key")).to_pylist()
    for kind in sorted({file["partition.kind"] for file in files}):
        blocks = [
            _Block(
                (kind, file["min.key"]),
                file["size"],
                file["rows"],
                (LogicalFile.of(file),),
                (),
            )
            for file in files
            if file["partition.kind"] == kind
        ]
        neighbours = _merge_neighbours(blocks, target_bytes)
        groups.extend(replace(group, partition={"kind": kind}) for group in neighbours)
    return groups


def _merge_neighbours(blocks: Iterable[_Block], target_bytes: int) -> Iterator[FileGroup]:
    """Yield groups of two or more neighbouring files that fit into a file of the target size."""
    pending: list[_Block] = []
    for block in [*sorted(blocks, key=lambda block: block.address), None]:
        if block is None or sum(b.size for b in pending) + block.size > target_bytes:
            files = tuple(file for b in pending for file in b.files)
            if len(files) > 1 and sum(b.size for b in pending) <= target_bytes:
                yield FileGroup(
                    files=files,
                    units=tuple(unit for b in pending for unit in b.units),
                    rows=sum(b.rows for b in pending),
                )
            pending = []
        if block is not None:
            pending.append(block)


def _compact(ledger: Ledger, groups: Sequence[FileGroup], layout: Layout, job: Job) -> Optimized:
    """Merge the groups in parallel, and commit them in batches."""
    assert ledger.table is not None
    before = ledger.table.data_files()
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(groups), _PER_COMMIT):
            batch = groups[start : start + _PER_COMMIT]
            rewrites = list(pool.map(lambda group: merge_files(ledger, group, layout), batch))
            ledger.rewrite(rewrites, partial(_describe, job, ledger.table))
    after = ledger.table.data_files()
    return Optimized(
        table=ledger.url.rsplit("/", 1)[-1],
        version=ledger.table.version,
        files_before=before.num_rows,
        files=after.num_rows,
        size_before=sum(before["size"].to_pylist()),
        size=sum(after["size"].to_pylist()),
    )


def _describe(
    job: Job, table: Table, entries: Sequence[LedgerEntry], generation: int
) -> schemas.Lineage | None:
    change = Change(action="optimize", generation=generation, num_data_files=num_files(entries))
    return job.record_on(table, change)
