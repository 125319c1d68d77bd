"""Repair a lake: restore logs, undo changes by other programs, drop damaged data for the next run to rebuild.

First the logs are restored from their sound files (``restore_logs``). Then changes of data by other
programs are undone: data files that they added are removed, and those that they removed are added again.
Files that no longer exist are then damage.

`etl verify` names the damaged data files. Repair undoes the units of work behind them and all that was
derived from these units. A split of documents is dropped with its decisions and its tokens; a data file of
duplicates is dropped with the decisions on the input files it covers, and with their tokens. The next run
reads, deduplicates and tokenizes only these units. The table ``keys`` is rebuilt. A repair starts an epoch of
the lake: see ``etl.lake.epochs``.

The next run restores the same rows and decisions if the recipe's libraries have not changed: documents keep
their arrival.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import schemas, storage
from etl.audit.verify.log_checks import check_logs
from etl.audit.verify.small_file_checks import REMOVABLE
from etl.audit.verify.verify import Problem, verify
from etl.delta import vacuum_records
from etl.delta.data_file import DataFileWriter, fill_columns
from etl.delta.table import Table
from etl.errors import TableError
from etl.lake import leases, releases
from etl.lake.epochs import drop_all, open_lake, start_epoch
from etl.lake.ledger import Drop, Ledger, find_ledger, key_of
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.table_specs import DUPLICATES, SPECS, open_tables
from etl.lake.table_versions import live_inputs, read_versions
from etl.lake.vacuums import refuse_during_vacuum
from etl.lake.work_units import WorkUnit, kept_units
from etl.maintenance.restore_logs import restore_logs
from etl.maintenance.undo_foreign import describe_repair, undo_foreign_changes
from etl.maintenance.vacuumed_versions import restore_record

_MAX_ROUNDS = 10  # each repairs what the one before has uncovered
_NOT_REPAIRABLE = "`etl run RECIPE --rebuild` makes the tables again"


@dataclass(frozen=True, kw_only=True)
class UnrepairedProblem:
    """A problem that cannot be repaired, and why."""

    problem: Problem
    why: str


@dataclass(kw_only=True)
class Repair:
    """What a repair changes, or would change, and the problems that it cannot repair."""

    lake: str
    done: bool
    problems: list[Problem] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)  # tables whose logs are restored
    files: list[str] = field(default_factory=list)  # small files that are removed or written again
    restored: dict[str, list[str]] = field(default_factory=dict)  # table -> files, see ForeignUndo
    dropped: dict[str, list[str]] = field(default_factory=dict)  # table -> data files
    sources: list[str] = field(default_factory=list)  # input files to read again, in part or whole
    left: list[UnrepairedProblem] = field(default_factory=list)

    @property
    def has_changes(self) -> bool:
        """Whether the repair changes anything."""
        return bool(self.logs or self.files or self.restored or self.dropped)


def repair(lake: str, *, drop: bool = False) -> Repair:
    """Find what can be repaired, and repair it if ``drop`` is set.

    Without ``drop``, damage of logs and changes by other programs hide what may be behind them. Raises
    TableError for a URL without a lake, ConflictError if another process commits concurrently.
    """
    url = storage.normalize(lake)
    result = Repair(lake=url, done=drop)
    with leases.hold_lease(url, "repair") if drop else nullcontext() as lease:
        for _ in range(_MAX_ROUNDS):
            if not _repair_once(url, lease, result) or lease is None:
                break
    return result


def _repair_once(lake: str, lease: leases.HeldLease | None, result: Repair) -> bool:
    """Repair what can be repaired at once; return whether there may be more to repair."""
    logs = check_logs(lake)
    is_empty = not logs.tables and bool(result.logs)  # no log had a sound entry
    problems = logs.problems if logs.damage or is_empty else verify(lake)
    result.problems += [problem for problem in problems if problem not in result.problems]
    small = [problem for problem in problems if _is_small(problem)]
    if lease is not None and (logs.damage or any(map(_is_vacuumed, small))):
        refuse_during_vacuum(lake, lease, "files of the versions that the logs still have")
    _repair_small_files(lake, small, result)
    if logs.damage:
        result.logs += [name for name in logs.damage if name not in result.logs]
        if lease is not None:
            restore_logs(lake, logs, lease.check)
        if logs.newest_record is None:  # no log had a sound entry: only releases name versions
            names = [release.name for release in releases.read_releases(lake)[0]]
            result.left = [_unrepaired(lake, _lost_release(name)) for name in names]
            return not names
        return True
    if any(problem.is_foreign for problem in problems):
        undone = undo_foreign_changes(lake, lease)
        _extend(result.restored, undone.restored)
        _extend(result.dropped, undone.dropped)
        return True
    if is_empty:
        return False
    undo = _Undo(lake, [problem for problem in problems if problem not in small])
    result.left = undo.left
    if undo.has_any and lease is not None:
        undo.commit(lease)
    _extend(result.dropped, {name: table.remove for name, table in undo.tables.items()})
    result.sources = sorted({*result.sources, *undo.sources})
    return undo.has_any and bool(result.logs)  # lost rows may have hidden what depends on them


def _is_small(problem: Problem) -> bool:
    """Return whether a problem is one of a small file that can be removed or written again."""
    is_restored = problem.table == releases.FOLDER and problem.release is None
    return problem.table in REMOVABLE or _is_vacuumed(problem) or is_restored


def _is_vacuumed(problem: Problem) -> bool:
    """Return whether a problem is one of a record of a vacuum, or of its copy."""
    return (problem.file or "").startswith(f"{vacuum_records.FOLDER}/")


def _repair_small_files(lake: str, problems: Iterable[Problem], result: Repair) -> None:
    for problem in problems:
        name = f"{problem.table}/{problem.file}"
        result.files += [name] if name not in result.files else []
        if not result.done:
            continue
        if _is_vacuumed(problem):
            key = PurePosixPath(str(problem.file)).stem
            restore_record(Table.open(storage.join(lake, problem.table)), key)
        elif problem.table == releases.FOLDER:
            releases.restore_release(lake, PurePosixPath(name).stem)
        else:
            storage.remove(storage.join(lake, name))


def _extend(files: dict[str, list[str]], more: Mapping[str, Iterable[str]]) -> None:
    """Add paths by table, each once and in order."""
    for name, paths in more.items():
        if merged := sorted({*files.get(name, ()), *paths}):
            files[name] = merged


@dataclass
class _TableUndo:
    """What is undone in one table: the keys of units of ``documents``, and the data files to remove."""

    ledger: Ledger
    table: Table
    units: set[str] = field(default_factory=set)
    remove: set[str] = field(default_factory=set)

    @property
    def has_any(self) -> bool:
        return bool(self.units or self.remove)

    def files(self) -> list[dict[str, Any]]:
        return list(self.table.data_files().to_pylist())


class _Undo:
    """The units of work to undo in each table of a lake, and the data files to remove with them."""

    def __init__(self, lake: str, problems: list[Problem]) -> None:
        self.tables: dict[str, _TableUndo] = {}  # in the order of SPECS: inputs first
        self.sources: set[str] = set()
        self.left: list[UnrepairedProblem] = []
        self._damaged: list[Problem] = []
        self._lake: dict[str, Ledger] = {}
        if any(problem.file is not None for problem in problems):
            self._open(lake)
        live = {f"{name}/{file['path']}" for name, t in self.tables.items() for file in t.files()}
        for problem in problems:
            if f"{problem.table}/{problem.file}" in live:
                self._damaged.append(problem)
            else:
                self.left.append(_unrepaired(lake, problem))
        if self._damaged:
            self.left += [_unrepaired(lake, p) for p in _in_releases(lake, self._damaged)]
            self._undo_tables()

    @property
    def has_any(self) -> bool:
        """Whether there is anything to undo."""
        return any(table.has_any for table in self.tables.values())

    def commit(self, lease: leases.HeldLease) -> None:
        """Undo the units in each table."""
        drops = {name: self._drop(name) for name, undo in self.tables.items() if undo.has_any}
        start_epoch(self._lake, drops, partial(self._describe, lease))

    def _open(self, lake: str) -> None:
        tables = open_tables(lake)
        for name, table in tables.items():
            ledger = find_ledger(table)
            if ledger is None and name == "documents":  # no recipe has committed rows yet
                ledger = Ledger(table.url, fingerprint="", table=table)
            if ledger is not None:
                self.tables[name] = _TableUndo(ledger, table)
        self._lake = open_lake(lake, (undo.ledger for undo in self.tables.values()))
        self._inputs = live_inputs(read_versions(tables["documents"]))
        self._units = {unit.key: unit for unit in kept_units(tables["documents"])}

    def _undo_tables(self) -> None:
        indexes = {name: undo for name, undo in self.tables.items() if SPECS[name].is_index}
        for name, undo in self.tables.items():
            if name in indexes:
                continue
            for source in SPECS[name].made_from:  # rows built from undone units are undone
                undo.units |= self.tables[source].units if source in self.tables else set()
            if name == "documents":
                self._undo_documents(undo)
            elif name == "duplicates":
                self._undo_duplicates(undo)
            else:
                self._undo_units_in_files(name, undo)
        for name, undo in indexes.items():
            if self.has_any or self._problems(name):  # the next run rebuilds it as a whole
                undo.remove = {file["path"] for file in undo.files()}

    def _problems(self, name: str) -> list[Problem]:
        """Return the problems that are repaired in a table."""
        return [problem for problem in self._damaged if (problem.redo or problem.table) == name]

    def _undo_documents(self, undo: _TableUndo) -> None:
        sources = {str(file["path"]): str(file["min.source"]) for file in undo.files()}
        for problem in self._problems("documents"):
            source = sources[str(problem.file)]
            if why := _why_unreadable(source, self._inputs):
                self.left.append(UnrepairedProblem(problem=problem, why=why))
            else:
                self.sources.add(source)
                undo.units.add(key_of(str(problem.file)))
        undo.remove = {path for path in sources if key_of(path) in undo.units}

    def _undo_duplicates(self, undo: _TableUndo) -> None:
        damaged = {str(problem.file) for problem in self._problems("duplicates")}
        for file in undo.files():
            if file["path"] in damaged:
                undo.remove.add(file["path"])
                undo.units |= {u.key for u in self._units.values() if _may_hold(file, [u])}

    def _undo_units_in_files(self, name: str, undo: _TableUndo) -> None:
        """Undo the units in damaged files, and remove all files with rows of undone units."""
        damaged = {str(problem.file) for problem in self._damaged if problem.table == name}
        redone = (problem for problem in self._damaged if problem.redo == name)
        undo.units |= {key_of(str(problem.file)) for problem in redone}
        units = {undo.ledger.key(key): key for key in self._units}
        wanted = {undo.ledger.key(key) for key in undo.units}
        paths = [file["path"] for file in undo.files()]
        for path, keys in zip(paths, undo.ledger.units_of(paths), strict=True):
            if path in damaged or not wanted.isdisjoint(keys):
                undo.remove.add(path)
                undo.units |= {units[key] for key in keys if key in units}

    def _drop(self, name: str) -> Drop:
        undo = self.tables[name]
        if SPECS[name].is_index:
            return drop_all(undo.ledger)
        is_documents = name == "documents"  # the keys of other tables are derived from its keys
        rewritten = self._rewrite_duplicates() if name == "duplicates" else {}
        return Drop(
            paths=undo.remove | rewritten.keys(),
            keys=undo.units if is_documents else {undo.ledger.key(key) for key in undo.units},
            add=list(rewritten.values()),
        )

    def _describe(
        self, lease: leases.HeldLease, table: Table, drop: Drop, generation: int
    ) -> dict[str, Any]:
        is_documents = table.url.endswith("/documents")
        inputs = self._negative_inputs() if is_documents else []
        return describe_repair(lease, table, drop, generation, input_files=inputs)

    def _rewrite_duplicates(self) -> dict[str, LedgerEntry]:
        """Rewrite sound data files of duplicates without the rows of undone units; return them by path."""
        undo = self.tables["duplicates"]
        units = [unit for key, unit in self._units.items() if key in undo.units]
        paths = pa.array([path for unit in units for path in unit.paths], pa.string())
        rewritten = {}
        for file in undo.files():
            if file["path"] in undo.remove or not _may_hold(file, units):
                continue
            with storage.open_input(storage.join(undo.table.url, file["path"])) as source:
                rows = fill_columns(pq.read_table(source), undo.table.schema)
            remaining = rows.filter(pc.invert(pc.is_in(rows["file"], paths)))
            if remaining.num_rows < rows.num_rows:
                key = undo.ledger.key("repair", file["path"])
                writer = DataFileWriter(
                    undo.table.url, undo.table.schema, DUPLICATES.layout, name=key
                )
                writer.append(remaining)
                rewritten[str(file["path"])] = LedgerEntry(key, writer.close())
        return rewritten

    def _negative_inputs(self) -> list[schemas.InputFile]:
        """Return the input files of dropped splits; ``rows`` is minus the number of dropped records."""
        undo = self.tables["documents"]
        remaining: Counter[str] = Counter()
        for file in undo.files():
            if file["path"] not in undo.remove:
                remaining[str(file["min.source"])] += int(file["rows"])
        return [
            self._inputs[uri].model_copy(update={"rows": remaining[uri] - self._inputs[uri].rows})
            for uri in sorted(self.sources)
        ]


def _lost_release(name: str) -> Problem:
    return Problem(releases.FOLDER, f"{name}.json", "its versions are lost", release=name)


def _unrepaired(lake: str, problem: Problem) -> UnrepairedProblem:
    remove = f"`{releases.removal_command(lake, str(problem.release))}` removes the release"
    return UnrepairedProblem(
        problem=problem, why=_NOT_REPAIRABLE if problem.release is None else remove
    )


def _in_releases(lake: str, damaged: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the problems of damaged files that releases need too: a repair does not bring them back."""
    by_table: dict[str, list[Problem]] = {}
    for problem in damaged:
        if problem.redo is None:
            by_table.setdefault(problem.table, []).append(problem)
    for release in releases.read_releases(lake)[0]:
        for name in release.versions.keys() & by_table.keys():
            try:
                table = Table.open(storage.join(lake, name), release.versions[name])
            except TableError:  # reported by verify as another problem
                continue
            paths = {file["path"] for file in table.files("path", by=())}
            for problem in by_table[name]:
                if problem.file in paths:
                    what = f"in release {release.name!r}: {problem.what}"
                    yield replace(problem, what=what, release=release.name)


def _may_hold(file: Mapping[str, Any], units: Iterable[WorkUnit]) -> bool:
    """Return whether a data file of duplicates may hold rows of some units."""
    return any(file["min.source"] <= unit.source <= file["max.source"] for unit in units)


def _why_unreadable(source: str, inputs: Mapping[str, schemas.InputFile]) -> str | None:
    """Return why an input file cannot be read again; None if it can."""
    if source not in inputs:
        return f"no lineage record lists its input file {source}"
    info = storage.file_info(source)
    if info is None:
        return f"its input file no longer exists: {source}"
    recorded = inputs[source]
    is_same = info.fingerprint == recorded.fingerprint
    if recorded.version is not None:  # data files of Delta tables do not change
        is_same = info.size == recorded.size
    if not is_same:
        return f"its input file has changed: {source} (run the recipe with --replace-changed)"
    return None
