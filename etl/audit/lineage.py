"""Build the lineage graph of a table, and compare two versions of it.

Both read the Delta logs only, except that ``diff`` reads the column ``reason`` of added and removed data
files. ``trace`` and ``history`` are re-exported from their own modules.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import schemas
from etl import storage
from etl.audit.lookup import tally_rules
from etl.audit.trace import Trace, trace
from etl.audit.versions import Version, current, history, live_inputs, newest, versions_of
from etl.errors import StorageError, one_line
from etl.plan import differing
from etl.table import Table

__all__ = ["Difference", "Node", "Trace", "Version", "diff", "graph", "history", "trace"]

_MAX_FILES_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Node:
    """A table at one version in the lineage graph, with the inputs of its rows."""

    name: str
    url: str
    version: int
    rows: int
    commits: tuple[Version, ...]  # the commits that wrote its rows, oldest first
    tables: tuple["Node", ...]
    files: tuple[schemas.InputFile, ...]
    others: tuple[schemas.InputTable, ...]  # tables of other lakes that it was compared with
    schema: tuple[tuple[str, str], ...]  # column and type

    @property
    def lineage(self) -> schemas.Lineage | None:
        """The record of the newest commit."""
        return self.commits[-1].lineage if self.commits else None

    def walk(self) -> Iterator["Node"]:
        """Yield all tables below and then this one, each version of a table once, inputs first."""
        seen: set[tuple[str, int]] = set()
        for table in self.tables:
            for node in table.walk():
                if (node.url, node.version) not in seen:
                    seen.add((node.url, node.version))
                    yield node
        yield self

    def lines(self) -> Iterator[str]:
        """Yield the graph as the lines of a tree; a table shown before is only named."""
        return _tree(self, "", set())

    def __str__(self) -> str:
        return "\n".join(map(one_line, self.lines()))


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The changes from one version of a table to another."""

    url: str
    old: int
    new: int
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    bytes_added: int
    bytes_removed: int
    tokens_added: int
    tokens_removed: int
    counts: dict[str, int] | None  # change by outcome; None if old data files were deleted
    recipe: list[str]  # changed settings, as ``key: old -> new``
    libraries: list[str]  # changed library versions
    inputs_added: list[schemas.InputFile]
    inputs_replaced: list[schemas.InputFile]  # with their new content
    inputs_removed: list[schemas.InputFile]
    commits: list[Version]  # the versions in between, newest first


def graph(table_url: str, version: int | None = None) -> Node:
    """Return a table with the tables it was built from, at the versions read, and the input files.

    Raises TableError if the table or the version does not exist.

    >>> print(graph("s3://lake/web/tokens"))                               # doctest: +SKIP
    tokens version 3  41 rows  recipe web 0c4d..., 2 commits of 1 run
    └─ documents version 2  57 rows  recipe web 9e1f..., 1 commit of 1 run
       └─ s3://crawl/a.parquet  60 records, 12,345 bytes
    """
    table = Table.open(table_url, version)
    versions = versions_of(table)
    commits = tuple(current(versions))
    inputs: dict[str, int] = {}  # table -> the newest version that was read
    others: dict[str, schemas.InputTable] = {}
    for commit in commits:
        assert commit.lineage is not None
        for source in commit.lineage.input_tables:
            if source.is_elsewhere:
                others[source.url] = source
            else:
                inputs[source.name] = max(source.version, inputs.get(source.name, 0))
    # The tables of a lake share a folder, so this holds after the lake was moved.
    lake, name = table.url.rsplit("/", 1)
    fragments = table.fragments()
    return Node(
        name=name,
        url=table.url,
        version=table.version,
        rows=_sum(fragments, "rows"),
        commits=commits,
        tables=tuple(graph(storage.join(lake, n), v) for n, v in inputs.items()),
        files=tuple(live_inputs(versions).values()),
        others=tuple(others.values()),
        schema=tuple((field.name, str(field.type)) for field in table.schema),
    )


def diff(table_url: str, old: int, new: int) -> Difference:
    """Compare version ``old`` of a table with version ``new``.

    Raises TableError if the table or a version does not exist.
    """
    tables = [Table.open(table_url, version) for version in (old, new)]
    files = [table.fragments() for table in tables]
    removed, added = _without(files[0], files[1]), _without(files[1], files[0])
    versions = [versions_of(table) for table in tables]
    records = [newest(v) for v in versions]
    inputs = [live_inputs(v) for v in versions]
    before, after = inputs
    first, last = sorted((tables[0].version, tables[1].version))
    between = [v for v in max(versions, key=len) if first < v.version <= last]
    return Difference(
        url=tables[0].url,
        old=tables[0].version,
        new=tables[1].version,
        rows_added=_sum(added, "rows"),
        rows_removed=_sum(removed, "rows"),
        files_added=added.num_rows,
        files_removed=removed.num_rows,
        bytes_added=_sum(added, "size"),
        bytes_removed=_sum(removed, "size"),
        tokens_added=_sum(added, "max.token_end"),
        tokens_removed=_sum(removed, "max.token_end"),
        counts=_changed_counts(tables, removed, added),
        recipe=_differences(records, "canonical"),
        libraries=_differences(records, "versions"),
        inputs_added=[file for uri, file in after.items() if uri not in before],
        inputs_replaced=[
            file
            for uri, file in after.items()
            if uri in before and before[uri].fingerprint != file.fingerprint
        ],
        inputs_removed=[file for uri, file in before.items() if uri not in after],
        commits=between,
    )


def _tree(node: Node, indent: str, seen: set[tuple[str, int]]) -> Iterator[str]:
    """Yield the title of a node, and the lines of its inputs at an indent."""
    if (node.url, node.version) in seen:
        yield f"{node.name} version {node.version} (see above)"
        return
    seen.add((node.url, node.version))
    yield _title(node)
    others = [f"{other.url} version {other.version}" for other in node.others]
    below: list[Node | str] = [*node.tables, *others]
    below += map(_leaf, node.files[:_MAX_FILES_SHOWN])
    if len(node.files) > _MAX_FILES_SHOWN:
        below.append(f"... and {_many(len(node.files) - _MAX_FILES_SHOWN, 'more file')}")
    for index, child in enumerate(below):
        branch, more = ("└─ ", "   ") if index == len(below) - 1 else ("├─ ", "│  ")
        lines = _tree(child, indent + more, seen) if isinstance(child, Node) else iter([child])
        yield f"{indent}{branch}{next(lines)}"
        yield from lines


def _title(node: Node) -> str:
    record = node.lineage
    title = f"{node.name} version {node.version}  {_many(node.rows, 'row')}"
    if record is None:
        return title
    runs = len({v.lineage.run_id for v in node.commits if v.lineage is not None})
    commits = f"{_many(len(node.commits), 'commit')} of {_many(runs, 'run')}"
    return f"{title}  recipe {record.recipe} {record.fingerprint[:12]}, {commits}"


def _leaf(file: schemas.InputFile) -> str:
    return f"{file.uri}  {_many(file.rows, 'record')}, {_many(file.size, 'byte')}"


def _many(count: int, noun: str) -> str:
    """Format a count with its noun.

    >>> _many(1, "run"), _many(2000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _differences(records: list[schemas.Lineage | None], field: str) -> list[str]:
    """Return the differences in a field of two records; nothing if a version has no record."""
    old, new = records
    return list(differing(getattr(old, field), getattr(new, field))) if old and new else []


def _changed_counts(
    tables: list[Table], removed: pa.Table, added: pa.Table
) -> dict[str, int] | None:
    """Return the change in rows of each outcome; None if old data files were deleted."""
    total: Counter[str] = Counter()
    for table, files, sign in ((tables[0], removed, -1), (tables[1], added, 1)):
        if "reason" not in table.schema.names or files.num_rows == 0:
            continue
        is_kept = pc.equal(files["partition.verdict"], "kept")
        total["kept"] += sign * _sum(files.filter(is_kept), "rows")
        try:
            rules = tally_rules(table, files.filter(pc.invert(is_kept)))
        except StorageError:  # vacuumed: the changes are known, but not the reasons
            return None
        for rule, count in rules.items():
            total[rule] += sign * count
    return {name: count for name, count in sorted(total.items()) if count}


def _without(files: pa.Table, others: pa.Table) -> pa.Table:
    return files.filter(pc.invert(pc.is_in(files["path"], others["path"].combine_chunks())))


def _sum(files: pa.Table, column: str) -> int:
    return int(pc.sum(files[column]).as_py() or 0) if column in files.column_names else 0
