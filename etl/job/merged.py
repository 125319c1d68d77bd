"""Data files put together, and taken apart again where only some of their rows are to be replaced.

The rows stay as they are, only their files change. A unit of work stands as a whole in one file, so that the
log can say in which (see ``etl.ledger``).
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import storage
from etl.errors import TableError
from etl.fragment import ARCHIVED_TOKENS, TOKENS, Fragment, FragmentWriter, Layout
from etl.ledger import Ledger, Part, Rewrite
from etl.plan import Unit


@dataclass(frozen=True, kw_only=True)
class Group:
    """Data files of one partition that become one, in the order of their rows, and the units in them."""

    paths: tuple[str, ...]
    units: tuple[str, ...]
    rows: int
    partition: Mapping[str, str] = field(default_factory=dict)


def put_together(ledger: Ledger, group: Group, layout: Layout) -> Rewrite:
    """Write the rows of a group to one new file; raises TableError if they are not what the log says.

    A row group is held at a time; of a layout with ascending columns all rows, which are sorted by these.
    """
    key = ledger.key("merged", *group.paths)
    tables: Iterable[pa.Table] = (table for path in group.paths for table in _read(ledger, path))
    if layout.ascending:
        order = [(name, "ascending") for name in layout.ascending]
        tables = [pa.concat_tables(tables).sort_by(order)]
    if layout is TOKENS:
        layout = _tokens_layout(ledger, group.paths[0])
    fragments = _write(ledger, tables, layout, key, group.partition)
    if sum(fragment.rows for fragment in fragments) != group.rows:
        raise TableError(
            "data files have other rows than the log says", where=ledger.url, hint="`etl verify`"
        )
    return Rewrite(group.paths, [Part(key, fragments, group.units)])


def take_apart(ledger: Ledger, live: Container[str], units: Iterable[Unit]) -> list[Rewrite]:
    """The files of ``tokens`` that hold rows of units that are gone beside others, each written anew.

    Rows of live units stay together; those of the others get a file for each input file, as they had
    before, so that they can be replaced one input file at a time.
    """
    if ledger.table is None or not ledger.has_merged:
        return []
    mixed: dict[str, list[str]] = {}  # files -> the units that stay
    files = list(ledger.table.files("path", "min.source", "max.source"))
    for file, keys in zip(files, ledger.units_of(f["path"] for f in files), strict=True):
        staying = [key for key in keys if key in live]
        is_one = not staying and file["min.source"] == file["max.source"]
        if len(staying) < len(keys) and not is_one:
            mixed[file["path"]] = staying
    wanted = {key for staying in mixed.values() for key in staying}
    named = ((ledger.key(unit.key), unit.source) for unit in units) if wanted else ()
    sources = {key: source for key, source in named if key in wanted}
    return [
        _taken_apart(ledger, path, {key: sources[key] for key in staying})
        for path, staying in mixed.items()
    ]


def _taken_apart(ledger: Ledger, path: str, staying: Mapping[str, str]) -> Rewrite:
    """``staying`` are units and their input files."""
    sources = pa.array(set(staying.values()), pa.string())
    others: dict[str, None] = {}
    for table in _read(ledger, path):
        others |= dict.fromkeys(table["source"].unique().to_pylist())
    parts, layout = [], _tokens_layout(ledger, path)
    if staying:
        key = ledger.key("merged", path)
        rows = (table.filter(pc.is_in(table["source"], sources)) for table in _read(ledger, path))
        parts.append(Part(key, _write(ledger, rows, layout, key), list(staying)))
    for source in others.keys() - set(sources.to_pylist()):
        key = ledger.key("merged", path, source)
        rows = (table.filter(pc.equal(table["source"], source)) for table in _read(ledger, path))
        parts.append(Part(key, _write(ledger, rows, layout, key)))
    return Rewrite([path], parts)


def _tokens_layout(ledger: Ledger, path: str) -> Layout:
    """The layout that a data file of tokens has: what was packed for an archive stays so."""
    with _reading(ledger, path) as file:
        group: Any = file.metadata.row_group(0)
    columns = (group.column(i) for i in range(group.num_columns))
    codecs = {c.compression for c in columns if c.path_in_schema.startswith("tokens.")}
    return ARCHIVED_TOKENS if codecs == {"ZSTD"} else TOKENS


def _read(ledger: Ledger, path: str) -> Iterator[pa.Table]:
    """The rows of a data file, a row group at a time; damage is not copied."""
    with _reading(ledger, path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, use_threads=False)


@contextmanager
def _reading(ledger: Ledger, path: str) -> Iterator[pq.ParquetFile]:
    with storage.open_input(storage.join(ledger.url, path)) as source:
        try:
            yield pq.ParquetFile(
                source, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
            )
        except (pa.ArrowException, OSError) as error:
            raise TableError(
                f"a data file cannot be read ({error})",
                where=storage.join(ledger.url, path),
                hint="see `etl verify` and `etl repair`",
            ) from error


def _write(
    ledger: Ledger,
    tables: Iterable[pa.Table],
    layout: Layout,
    key: str,
    partition: Mapping[str, str] | None = None,
) -> Sequence[Fragment]:
    assert ledger.table is not None
    whole = replace(layout, file_bytes=1 << 62)  # one file: the caller has bounded it
    writer = FragmentWriter(ledger.url, ledger.table.schema, whole, name=key, partition=partition)
    for table in tables:
        writer.append(table)
    return writer.close()
