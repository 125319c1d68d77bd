"""The lineage graph of a table: the tables and input files behind one version of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from etl import schemas, storage
from etl.audit.table_diff import Difference, diff
from etl.audit.trace import trace
from etl.audit.trace_records import Trace
from etl.audit.value_counts import sum_counts
from etl.html.card import Card, Shown
from etl.lake.open_table import open_table
from etl.lake.table_versions import (
    Version,
    current_versions,
    history,
    live_inputs,
    lost_entries,
    read_versions,
)
from etl.plural import many
from etl.visible_text import one_line

__all__ = ["Difference", "Node", "Trace", "Version", "diff", "graph", "history", "trace"]


_MAX_FILES_SHOWN = 20


@dataclass(frozen=True, kw_only=True, repr=False)
class Node(Shown):
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
    notes: tuple[
        str, ...
    ] = ()  # which log entries are gone, with the commits and files that they recorded

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

    def _cards(self) -> list[Card]:
        """Return the graph as cards."""
        return [Card(title=self.url, text=str(self), is_code=True)]


def graph(table_url: str, version: int | None = None) -> Node:
    """Return a table with the tables it was built from, at the versions read, and the input files.

    Raises TableError if the table or the version does not exist.

    >>> print(graph("s3://lake/web/tokens"))                               # doctest: +SKIP
    tokens version 3  41 rows  recipe web 0c4d..., 2 commits of 1 run
    └─ documents version 2  57 rows  recipe web 9e1f..., 1 commit of 1 run
       └─ s3://crawl/a.parquet  60 records, 12,345 bytes
    """
    table = open_table(table_url, version)
    versions = read_versions(table)
    commits = tuple(current_versions(versions))
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
    return Node(
        name=name,
        url=table.url,
        version=table.version,
        rows=sum_counts(table.data_files(), "rows"),
        commits=commits,
        tables=tuple(graph(storage.join(lake, n), v) for n, v in inputs.items()),
        files=tuple(live_inputs(versions).files().values()),
        others=tuple(others.values()),
        schema=tuple((field.name, str(field.type)) for field in table.schema),
        notes=tuple(lost_entries(versions, table.version)),
    )


def _tree(node: Node, indent: str, seen: set[tuple[str, int]]) -> Iterator[str]:
    """Yield the title of a node, and the lines of its inputs at an indent."""
    if (node.url, node.version) in seen:
        yield f"{node.name} version {node.version} (see above)"
        return
    seen.add((node.url, node.version))
    yield _title(node)
    others = [f"{other.url} version {other.version}" for other in node.others]
    below: list[Node | str] = [*node.notes, *node.tables, *others]
    below += map(_leaf, node.files[:_MAX_FILES_SHOWN])
    if len(node.files) > _MAX_FILES_SHOWN:
        below.append(f"... and {many(len(node.files) - _MAX_FILES_SHOWN, 'more file')}")
    for index, child in enumerate(below):
        branch, more = ("└─ ", "   ") if index == len(below) - 1 else ("├─ ", "│  ")
        lines = _tree(child, indent + more, seen) if isinstance(child, Node) else iter([child])
        yield f"{indent}{branch}{next(lines)}"
        yield from lines


def _title(node: Node) -> str:
    record = node.lineage
    title = f"{node.name} version {node.version}  {many(node.rows, 'row')}"
    if record is None:
        return title
    runs = len({v.lineage.run_id for v in node.commits if v.lineage is not None})
    commits = f"{many(len(node.commits), 'commit')} of {many(runs, 'run')}"
    return f"{title}  recipe {record.recipe} {record.recipe_fingerprint[:12]}, {commits}"


def _leaf(file: schemas.InputFile) -> str:
    return f"{file.uri}  {many(file.rows, 'record')}, {many(file.size, 'byte')}"
