"""List the versions of a table from its log, each with the lineage record of its commit.

No data file is read. Cost: one pass over the log entries of the table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from etl import schemas
from etl.delta.log_segment import ranges
from etl.delta.table import Table
from etl.html.card import Card, Shown
from etl.html.grid import make_grid
from etl.lake.commit_info import fields_of, parse_record
from etl.lake.open_table import open_table

_COUNTS: Final = ("rows", "kept", "rejected", "tokens")


@dataclass(frozen=True, kw_only=True, repr=False)
class Version(Shown):
    """A version of a table: the time of its commit and the commit's own record.

    ``lineage`` is None for the version that only created the table, and for commits not made by a recipe;
    ``note`` is the record of such a commit.
    """

    version: int
    time: datetime  # UTC
    operation: str  # Delta's name of the operation
    lineage: schemas.Lineage | None = None
    note: dict[str, Any] = field(default_factory=dict)

    def _cards(self) -> list[Card]:
        """Return the version as a card."""
        title, *numbers = _cells(self)
        facts = {name: n or None for name, n in zip(_COUNTS, numbers, strict=True)}
        return [Card(title=f"Version {title}", facts=facts)]


class History(Shown, list[Version]):
    """The versions of a table, newest first; a notebook shows them as a table.

    ``newest`` is the version of the table, which may have lost the log entries of some versions.
    """

    newest: int = -1

    def _cards(self) -> list[Card]:
        """Return the versions as cards."""
        grid = make_grid("Versions", ("version", *_COUNTS), self, _cells)
        lost = "\n".join(lost_entries(self, self.newest))
        facts = {"versions": len(self), "newest": self.newest}
        return [Card(title="History", facts=facts, text=lost, grids=[grid])]


def _cells(version: Version) -> list[str]:
    name = f"{version.version}, {version.time:%Y-%m-%d %H:%M:%S} UTC: "
    record = version.lineage
    if record is None:
        return [name + version.operation.lower(), "", "", "", ""]
    counts = record.counts
    numbers = (counts.rows, counts.kept, sum(counts.rejected.values()), counts.tokens)
    return [f"{name}{record.action} by {record.recipe}", *(f"{number:,}" for number in numbers)]


def history(table_url: str) -> History:
    """Return all versions of a table, newest first.

    Raises TableError if the table does not exist, or was written in another format version.
    """
    table = open_table(table_url)
    versions = History(stream_versions(table))
    versions.newest = table.version
    return versions


def read_versions(table: Table) -> list[Version]:
    """Return the versions of an open table up to its own, newest first."""
    return list(stream_versions(table))


def stream_versions(table: Table) -> Iterator[Version]:
    """Yield the versions of an open table up to its own, newest first, without holding them."""
    return (_version(info, table.url) for info in table.history())


def lost_entries(versions: Sequence[Version], newest: int) -> list[str]:
    """Return a line for each range of versions, up to the newest, whose log entries are gone."""
    known = {each.version for each in versions}
    return [
        f"the log {'entry' if first == last else 'entries'} of {_range(first, last)} "
        f"{'is' if first == last else 'are'} gone: the commits are missing here"
        for first, last in ranges(v for v in range(newest + 1) if v not in known)
    ]


def _range(first: int, last: int) -> str:
    return f"version {first}" if first == last else f"versions {first} to {last}"


def latest_record(versions: Sequence[Version]) -> schemas.Lineage | None:
    """Return the newest lineage record among versions, which are newest first."""
    return next((v.lineage for v in versions if v.lineage is not None), None)


def current_versions(versions: Sequence[Version]) -> list[Version]:
    """Return the versions that wrote the rows of the newest generation, oldest first."""
    last = latest_record(versions)
    if last is None:
        return []
    writers = [v for v in versions if v.lineage and v.lineage.generation == last.generation]
    return writers[::-1]


class LiveInputs:
    """The input files behind the rows of a table, from its lineage records, added oldest first.

    The rows of a file add up over the commits that added its splits, until a commit drops them all; a rebuild
    drops the rows of all files. Memory: a few hundred bytes per file.
    """

    def __init__(self) -> None:
        self.generation: int | None = None  # None: no record was added
        self._files: dict[str, tuple[int, str, int, int | None]] = {}  # the fields after ``uri``
        self.names: dict[str, list[schemas.InputFile]] = {}
        """The other names of files by address, and the times with which they were listed, oldest first."""

    def add(self, record: schemas.Lineage) -> None:
        """Add the record of the next commit."""
        if record.generation != self.generation:
            self.generation = record.generation
            self._files.clear()
            self.names.clear()
        for file in record.input_files:
            if file.same_as is not None:
                self.names.setdefault(file.same_as, []).append(file)
                continue
            before = self._files.pop(file.uri, None)
            if file.fingerprint:
                rows = file.rows + (before[2] if before is not None else 0)
                self._files[file.uri] = file.size, file.fingerprint, rows, file.version

    def rows(self) -> dict[str, int]:
        """Return the rows of each input file by URI."""
        return {uri: rows for uri, (_, _, rows, _) in self._files.items()}

    def recorded(self, address: str) -> list[schemas.InputFile]:
        """Return a file by all its names, the newest first."""
        first = [self._file(address)] if address in self._files else []
        return [*reversed(self.names.get(address, ())), *first]

    def files(self) -> dict[str, schemas.InputFile]:
        """Return the input files by URI, each with all rows read from it."""
        return {uri: self._file(uri) for uri in sorted(self._files)}

    def _file(self, uri: str) -> schemas.InputFile:
        size, fingerprint, rows, version = self._files[uri]
        return schemas.InputFile(
            uri=uri, size=size, fingerprint=fingerprint, rows=rows, version=version
        )


def live_inputs(versions: Sequence[Version]) -> LiveInputs:
    """Return the input files behind the rows of a table; ``versions`` are newest first."""
    inputs = LiveInputs()
    for version in reversed(versions):
        if version.lineage is not None:
            inputs.add(version.lineage)
    return inputs


def added_in(table: Table, path: str, candidates: Sequence[Version]) -> Version | None:
    """Return the version, among candidates in ascending order, whose commit added a live data file.

    A data file is added once, so a binary search finds the version. Cost: listing the files of O(log n)
    versions.
    """
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        version = candidates[middle].version
        files = Table.open(table.url, version).data_files()
        if path in files["path"].to_pylist():
            high = middle
        else:
            low = middle + 1
    return candidates[low] if candidates else None


def _version(info: dict[str, Any], url: str) -> Version:
    lineage = parse_record(info, url)
    return Version(
        version=int(info["version"]),
        time=datetime.fromtimestamp(int(info["timestamp"]) / 1000, UTC),
        operation=str(info.get("operation", "")),
        lineage=lineage,
        note={} if lineage is not None else dict(fields_of(info)),
    )
