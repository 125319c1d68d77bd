"""Operations of another engine (delta-rs) on the tables of a lake."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, TableFeatures, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import Field, PrimitiveType

from etl.delta.table import Table
from tests.helpers.strikes import strike_by_other

Operation = Callable[[DeltaTable, random.Random], object]


def append(table: DeltaTable, rng: random.Random) -> None:
    """Append copies of some rows."""
    rows = table.to_pyarrow_table()
    if rows.num_rows:
        write_deltalake(table, rows.slice(rng.randrange(rows.num_rows), 2), mode="append")


def append_nothing(table: DeltaTable, _: random.Random) -> None:
    write_deltalake(table, table.to_pyarrow_table().slice(0, 0), mode="append")


def overwrite(table: DeltaTable, _: random.Random) -> None:
    """Replace all rows by the same rows."""
    write_deltalake(table, table.to_pyarrow_table(), mode="overwrite")


def delete_files(table: DeltaTable, rng: random.Random) -> None:
    """Delete all rows of one input file or key: whole data files in most tables."""
    column = "source" if "source" in table.to_pyarrow_table().column_names else "key"
    values = sorted(set(table.to_pyarrow_table()[column].to_pylist()))
    if values:
        value = rng.choice(values)
        table.delete(f"{column} = '{value}'" if isinstance(value, str) else f"{column} = {value}")


def delete_rows(table: DeltaTable, _: random.Random) -> None:
    """Delete every first row of an input file, so that files are written again without it."""
    if "row" in table.to_pyarrow_table().column_names:
        table.delete("row = 0")


def strike_rows(table: DeltaTable, rng: random.Random) -> None:
    """Strike every first row of some data files, as engines with deletion vectors do."""
    opened = Table.open(table.table_uri)
    paths = [file["path"] for file in opened.files("path") if rng.random() < 0.7]
    strike_by_other(opened.url, {path: [0] for path in paths})


def strike_and_vacuum(table: DeltaTable, rng: random.Random) -> None:
    strike_rows(table, rng)
    vacuum(DeltaTable(table.table_uri), rng)


def delete_all(table: DeltaTable, _: random.Random) -> None:
    table.delete()


def update(table: DeltaTable, _: random.Random) -> None:
    """Write the files of some rows again, with other values."""
    if "row" in table.to_pyarrow_table().column_names:
        table.update(updates={"row": "row + 100"}, predicate="row = 1")


def compact(table: DeltaTable, _: random.Random) -> None:
    table.optimize.compact()


def restore(table: DeltaTable, rng: random.Random) -> None:
    """Restore one of the last versions."""
    if table.version():
        table.restore(rng.randrange(max(table.version() - 4, 0), table.version()))


def restore_twice(table: DeltaTable, rng: random.Random) -> None:
    """Restore an older version, then the newest again."""
    newest = table.version()
    restore(table, rng)
    table.restore(newest)


def vacuum(table: DeltaTable, _: random.Random) -> None:
    """Delete all files that the newest version does not need, also files of running jobs."""
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def compact_and_vacuum(table: DeltaTable, rng: random.Random) -> None:
    compact(table, rng)
    vacuum(table, rng)


def delete_and_vacuum(table: DeltaTable, rng: random.Random) -> None:
    delete_rows(table, rng)
    vacuum(table, rng)


def checkpoint(table: DeltaTable, _: random.Random) -> None:
    table.create_checkpoint()


def add_column(table: DeltaTable, _: random.Random) -> None:
    table.alter.add_columns([Field("note", PrimitiveType("string"), nullable=True)])


def set_property(table: DeltaTable, _: random.Random) -> None:
    table.alter.set_table_properties({"delta.checkpointInterval": "7"})


def describe(table: DeltaTable, _: random.Random) -> None:
    table.alter.set_table_description("Documents of a crawl")


def add_constraint(table: DeltaTable, _: random.Random) -> None:
    column = next(f.name for f in pa.schema(table.schema().to_arrow()) if f.type == pa.int64())
    table.alter.add_constraint({"known": f"{column} IS NOT NULL"})


def allow_append_only(table: DeltaTable, _: random.Random) -> None:
    """Add a feature that only a property would switch on."""
    table.alter.add_feature(TableFeatures.AppendOnly, allow_protocol_versions_increase=True)


def allow_deletion_vectors(table: DeltaTable, _: random.Random) -> None:
    table.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)


def track_rows(table: DeltaTable, _: random.Random) -> None:
    table.alter.add_feature(TableFeatures.RowTracking, allow_protocol_versions_increase=True)


HARMLESS: tuple[Operation, ...] = (
    append_nothing,
    checkpoint,
    add_column,
    set_property,
    describe,
    allow_append_only,
    allow_deletion_vectors,
)
"""Operations that change neither data nor what writers must know."""

CHANGES: tuple[Operation, ...] = (
    append,
    overwrite,
    delete_files,
    delete_rows,
    strike_rows,
    strike_and_vacuum,
    delete_all,
    update,
    compact,
    restore,
    compact_and_vacuum,
    delete_and_vacuum,
)
"""Operations that add or remove data files."""

WITHOUT_TRACE: tuple[Operation, ...] = (restore_twice, vacuum)
"""Operations that leave the newest version as it was, but may harm a run in progress."""

PROTOCOL: tuple[Operation, ...] = (add_constraint, track_rows)
"""Operations after which a writer must know more of the protocol."""


def apply(operation: Operation, table: Path, rng: random.Random) -> bool:
    """Apply an operation to a table; return whether it made a new version or deleted a file."""
    if not (table / "_delta_log").is_dir():
        return False
    try:
        opened = DeltaTable(str(table))
        before = opened.version(), len(list(table.rglob("*.parquet")))
        operation(opened, rng)
    except DeltaError:  # nothing to restore, or a file is missing already
        return False
    return before != (DeltaTable(str(table)).version(), len(list(table.rglob("*.parquet"))))
