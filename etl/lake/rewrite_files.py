"""Merge data files, and split merged files again when only some of their rows are replaced.

Rows do not change, only the files that hold them. All rows of a unit of work are in one file, so the log can
name the file of each unit (see ``etl.lake.ledger``).
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import storage
from etl.delta.data_file import DataFile, DataFileWriter, fill_columns
from etl.delta.layout import Layout
from etl.errors import TableError
from etl.lake.ledger import Ledger, Rewrite, RewrittenFile
from etl.lake.table_specs import ARCHIVED_TOKENS, TOKENS
from etl.lake.work_units import WorkUnit


@dataclass(frozen=True, kw_only=True)
class FileGroup:
    """Data files of one partition to merge, in row order, and the units in them."""

    paths: tuple[str, ...]
    units: tuple[str, ...]
    rows: int
    partition: Mapping[str, str] = field(default_factory=dict)


def merge_files(ledger: Ledger, group: FileGroup, layout: Layout) -> Rewrite:
    """Write the rows of a group to one new file.

    Holds one row group in memory, or all rows if the layout has ascending columns, which they are then
    sorted by. Raises TableError if the number of rows differs from the log.
    """
    key = ledger.key("merged", *group.paths)
    tables: Iterable[pa.Table] = (
        table for path in group.paths for table in _read_row_groups(ledger, path)
    )
    if layout.ascending:
        order = [(name, "ascending") for name in layout.ascending]
        tables = [pa.concat_tables(tables).sort_by(order)]
    if layout is TOKENS.layout:
        layout = _tokens_layout(ledger, group.paths[0])
    data_files = _write_files(ledger, tables, layout, key, group.partition)
    written = sum(file.rows for file in data_files)
    if written != group.rows:
        raise TableError(
            f"{len(group.paths)} data files have {written} rows, but the log says {group.rows}",
            where=ledger.url,
            hint="run `etl verify LAKE`",
        )
    return Rewrite(group.paths, [RewrittenFile(key, data_files, group.units)])


def split_files(ledger: Ledger, live: Container[str], units: Iterable[WorkUnit]) -> list[Rewrite]:
    """Split the files of ``tokens`` that hold rows of removed units together with other rows.

    Returns the rewrites, which are not committed yet. Rows of live units stay together. Rows of removed
    units get one file per input file, as before merging, so they can be replaced one input file at a time.
    """
    if ledger.table is None or not ledger.has_compacted_files:
        return []
    mixed: dict[str, list[str]] = {}  # file -> its live units
    files = list(ledger.table.files("path", "min.source", "max.source"))
    for file, keys in zip(files, ledger.units_of(f["path"] for f in files), strict=True):
        live_keys = [key for key in keys if key in live]
        is_separate = not live_keys and file["min.source"] == file["max.source"]
        if len(live_keys) < len(keys) and not is_separate:
            mixed[file["path"]] = live_keys
    wanted = {key for live_keys in mixed.values() for key in live_keys}
    keyed = ((ledger.key(unit.key), unit.source) for unit in units) if wanted else ()
    sources = {key: source for key, source in keyed if key in wanted}
    return [
        _split_file(ledger, path, {key: sources[key] for key in live_keys})
        for path, live_keys in mixed.items()
    ]


def _split_file(ledger: Ledger, path: str, live: Mapping[str, str]) -> Rewrite:
    """Rewrite one file; ``live`` maps its live units to their input files."""
    live_sources = pa.array(set(live.values()), pa.string())
    all_sources: dict[str, None] = {}
    for table in _read_row_groups(ledger, path):
        all_sources |= dict.fromkeys(table["source"].unique().to_pylist())
    parts, layout = [], _tokens_layout(ledger, path)
    if live:
        key = ledger.key("merged", path)
        rows = (
            t.filter(pc.is_in(t["source"], live_sources)) for t in _read_row_groups(ledger, path)
        )
        parts.append(RewrittenFile(key, _write_files(ledger, rows, layout, key), list(live)))
    for source in all_sources.keys() - set(live_sources.to_pylist()):
        key = ledger.key("merged", path, source)
        rows = (
            table.filter(pc.equal(table["source"], source))
            for table in _read_row_groups(ledger, path)
        )
        parts.append(RewrittenFile(key, _write_files(ledger, rows, layout, key)))
    return Rewrite([path], parts)


def _tokens_layout(ledger: Ledger, path: str) -> Layout:
    """Return the layout of a data file of tokens, so that rewriting keeps an archive compressed."""
    with _open_parquet(ledger, path) as file:
        group: Any = file.metadata.row_group(0)
    columns = (group.column(i) for i in range(group.num_columns))
    codecs = {c.compression for c in columns if c.path_in_schema.startswith("tokens.")}
    return ARCHIVED_TOKENS if codecs == {"ZSTD"} else TOKENS.layout


def _read_row_groups(ledger: Ledger, path: str) -> Iterator[pa.Table]:
    """Yield the row groups of a data file; raise TableError rather than copy damaged ones."""
    assert ledger.table is not None
    fields = list(ledger.table.schema)
    with _open_parquet(ledger, path) as file:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, use_threads=False)
            own = [f for f in fields if f.nullable or f.name in rows.column_names]
            yield fill_columns(rows, pa.schema(own))


@contextmanager
def _open_parquet(ledger: Ledger, path: str) -> Iterator[pq.ParquetFile]:
    with storage.open_input(storage.join(ledger.url, path)) as source:
        try:
            yield pq.ParquetFile(
                source, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
            )
        except (pa.ArrowException, OSError) as error:
            raise TableError(
                f"a data file cannot be read ({error})",
                where=storage.join(ledger.url, path),
                hint="run `etl verify LAKE`, then `etl repair LAKE`",
            ) from error


def _write_files(
    ledger: Ledger,
    tables: Iterable[pa.Table],
    layout: Layout,
    key: str,
    partition: Mapping[str, str] | None = None,
) -> Sequence[DataFile]:
    assert ledger.table is not None
    one_file = replace(layout, file_bytes=1 << 62)  # the caller bounds the size
    writer = DataFileWriter(
        ledger.url, ledger.table.schema, one_file, name=key, partition=partition
    )
    for table in tables:
        writer.append(table)
    return writer.close()
