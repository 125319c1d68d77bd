"""Compact small data files, in commits that change no rows.

Each small file costs readers a request and a footer. Files with neighbouring addresses, in ``keys`` with
neighbouring least keys, are merged into one file of about the target size. Old versions keep their files
until a vacuum, so a training run pinned to one is not affected. A run of the recipe may be in progress: files
that another commit removed first are skipped.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

from etl import schemas, storage
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.lake.jobs import Job, JobIdentity, hold_job
from etl.lake.keys_table import KeysTable
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import Change, num_files
from etl.lake.merge_files import FileGroup, merge_files
from etl.lake.missing_tables import lake_url
from etl.lake.open_ledger import find_ledger, open_ledger, refuse_foreign_changes
from etl.lake.open_table import find_table
from etl.lake.table_digest import partition_values
from etl.lake.table_names import table_names
from etl.lake.table_specs import KEYS, TableSpec, spec_of
from etl.lake.unit_files import UnitRows, rows_of, unit_keys, unit_parts
from etl.lake.work_units import kept_units
from etl.parquet.layout import Layout

TARGET_BYTES: Final = 256 << 20
"""The size on disk of a compacted data file; chosen here: half the largest file that a run writes, so that
full files are not rewritten."""

_KEYS_BYTES = 16 << 20  # two million keys, which a thread sorts in memory (200 MB)

# A changed input file costs rewriting the data files that hold its rows among others': chosen here.
_SHARED_BYTES = 64 << 20
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
    """Compact the small files of all tables.

    Raises TableError if the lake has no tables, if no recipe made them, or if a file is damaged, and
    MismatchError if another program has changed data, which would be merged with the rows of the lake.
    """
    url = lake_url(lake)
    results = []
    with hold_job(JobIdentity(lake=url, kind="optimize")) as job:
        specs = map(spec_of, table_names(url))
        found = {spec: ledger for spec in specs if (ledger := _find_ledger(url, spec)) is not None}
        refuse_foreign_changes(*found.values())
        for spec, ledger in found.items():
            groups = _group_files(url, spec, ledger, target_bytes)
            results.append(_compact(ledger, groups, spec.layout, job))
    return results


def _find_ledger(lake: str, spec: TableSpec) -> Ledger | None:
    """Return the ledger of a table to compact; None if the table does not exist or will be rebuilt."""
    table = find_table(storage.join(lake, spec.name)) if spec.compact_by is not None else None
    if table is None:
        return None
    if spec is not KEYS:
        is_empty = (
            next(table.files("path", by=()), None) is None
        )  # without a record, it never had rows
        return find_ledger(table) if is_empty else open_ledger(table)
    duplicates = find_table(storage.join(lake, "duplicates"))
    keys = KeysTable(open_ledger(duplicates)) if duplicates is not None else None
    return keys.ledger if keys is not None and keys.fits else None


@dataclass(frozen=True)
class _Block:
    """Data files that must be merged together, because one unit of work has rows in each."""

    partition: Mapping[str, str]
    address: tuple[str, int]  # source and row; for ``keys`` the kind and the least key
    size: int
    rows: int
    files: tuple[LogicalFile, ...]
    units: tuple[UnitRows, ...] = ()


def _group_files(lake: str, spec: TableSpec, ledger: Ledger, target_bytes: int) -> list[FileGroup]:
    """Group the data files of a table, each group for one file of about the target size."""
    assert ledger.table is not None
    if spec.compact_by == "key":
        blocks, most = _blocks_of_keys(ledger.table), _KEYS_BYTES
    elif spec.compact_by == "unit":
        most = target_bytes if schemas.is_tokens(spec.name) else _SHARED_BYTES
        blocks = _blocks_of_units(ledger, _finished_units(lake, spec, ledger))
    else:
        blocks, most = [_block([file]) for file in _list_files(ledger.table)], target_bytes
    return list(_merge_neighbours(blocks, min(target_bytes, most)))


def _list_files(table: Table) -> list[dict[str, Any]]:
    names = [*("vector", "size", "rows", "units", "min.source", "min.row", "max.row")]
    names += [f"partition.{name}" for name in table.partition_columns]
    return list(table.files(*names))


def _finished_units(lake: str, spec: TableSpec, ledger: Ledger) -> Container[str]:
    """Return the keys of the units in a table whose rows the next run does not replace."""
    texts = Table.open(storage.join(lake, "texts"))
    if schemas.is_tokens(spec.name):
        return {ledger.key(unit.key) for unit in kept_units(texts)}
    documents, texts_ledger = (
        open_ledger(Table.open(storage.join(lake, "documents"))),
        open_ledger(texts),
    )
    return {key for key in documents.done() if texts_ledger.is_done(texts_ledger.key(key))}


def _blocks_of_units(ledger: Ledger, finished: Container[str]) -> list[_Block]:
    """Return the files of each finished unit of work as a block, by partition."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    assert ledger.table is not None
    for file in _list_files(ledger.table):
        keys = unit_keys(file)
        if all(key in finished for key in keys):
            groups.setdefault((keys[0], *_partition(file).values()), []).append(file)
    return [_block(files, url=ledger.url) for files in groups.values()]


def _block(files: list[Mapping[str, Any]], *, url: str | None = None) -> _Block:
    """Return files as a block; with the URL of their table, also the units in them."""
    files = sorted(files, key=lambda file: (file["min.source"], file["min.row"]))
    parts = (part for file in files if url is not None for part in unit_parts(url, file))
    return _Block(
        partition=_partition(files[0]),
        address=(files[0]["min.source"], files[0]["min.row"]),
        size=sum(file["size"] for file in files),
        rows=sum(file["rows"] for file in files),
        files=tuple(LogicalFile.of(file) for file in files),
        units=tuple(map(rows_of, parts)),
    )


def _partition(file: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in partition_values(file).items()}


def _blocks_of_keys(keys: Table) -> list[_Block]:
    """Return the files of ``keys`` as blocks, in the order of kinds and least keys."""
    files = keys.files("vector", "size", "rows", "partition.kind", "min.key")
    return [
        _Block(
            {"kind": file["partition.kind"]},
            (file["partition.kind"], file["min.key"]),
            file["size"],
            file["rows"],
            (LogicalFile.of(file),),
        )
        for file in files
    ]


def _merge_neighbours(blocks: Iterable[_Block], target_bytes: int) -> Iterator[FileGroup]:
    """Yield groups of neighbouring files of a partition that fit into one file of about the target size."""
    for _, same in groupby(sorted(blocks, key=_place), key=lambda block: _place(block)[0]):
        pending: list[_Block] = []
        for block in [*same, None]:
            if block is None or sum(b.size for b in pending) + block.size > target_bytes:
                files = tuple(file for b in pending for file in b.files)
                if len(files) > 1 and sum(b.size for b in pending) <= target_bytes:
                    yield FileGroup(
                        files=files,
                        units=tuple(unit for b in pending for unit in b.units),
                        rows=sum(b.rows for b in pending),
                        partition=pending[0].partition,
                    )
                pending = []
            if block is not None:
                pending.append(block)


def _place(block: _Block) -> tuple[list[str], tuple[str, int]]:
    return [*block.partition.values()], block.address


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
