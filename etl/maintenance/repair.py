"""Repair a lake: undo changes by other programs, and drop damaged data for the next run to rebuild.

Changes of data by other programs are undone first: data files that they added are removed, and those that
they removed are added again. Files that no longer exist are then damage.

`etl verify` names the damaged data files. Repair undoes the units of work behind them and all that was
derived from these units. A split of documents is dropped with its decisions and its tokens; a data file of
duplicates is dropped with the decisions on the input files it covers, and with their tokens. The next run
reads, deduplicates and tokenizes only these units; earlier decisions take precedence, as in any run. The
table ``keys`` is rebuilt. A repair starts an epoch of the lake: see ``etl.lake.epochs``.

The next run restores the same rows if the recipe's libraries have not changed. If equal texts from several
runs are all decided again, it keeps the one that a single run would keep, which may be a different one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import schemas, storage
from etl.audit.verify.verify import Problem, verify
from etl.delta.data_file import DataFileWriter, fill_columns
from etl.delta.table import Table
from etl.delta.torn_entries import TornFile, find_torn_files, remove_torn_files
from etl.lake import leases
from etl.lake.epochs import drop_all, open_lake, start_epoch
from etl.lake.ledger import Drop, Ledger, LedgerEntry, find_ledger, key_of, open_ledger
from etl.lake.table_specs import DUPLICATES, SPECS, open_tables
from etl.lake.table_versions import live_inputs, read_versions
from etl.lake.work_units import WorkUnit, kept_units
from etl.maintenance.undo_foreign import ForeignUndo, describe_repair, undo_foreign_changes

_NOT_REPAIRABLE = (
    "cannot be repaired automatically: restore it from a backup, or run the recipe with --rebuild"
)


@dataclass(frozen=True, kw_only=True)
class UnrepairedProblem:
    """A problem that cannot be repaired, and why."""

    problem: Problem
    why: str


@dataclass(frozen=True, kw_only=True)
class Repair:
    """The data that a repair drops, or would drop, and the problems that it cannot repair."""

    lake: str
    problems: list[Problem]
    restored: dict[str, list[str]]  # table -> data files that another program had removed
    dropped: dict[str, list[str]]  # table -> data files
    sources: list[str]  # input files to read again, in part or as a whole
    left: list[UnrepairedProblem]
    torn: list[TornFile]  # what a power failure left of the newest log entries
    done: bool


def repair(lake: str, *, drop: bool = False) -> Repair:
    """Find what can be repaired, and repair it if ``drop`` is set.

    Torn log entries are removed first, then changes by other programs are undone; without ``drop``, nothing
    else is checked if there are any. Raises TableError if the lake has no documents or no recipe made them,
    ConflictError if another process commits concurrently.
    """
    url = storage.normalize(lake)
    undone, foreign = ForeignUndo(), list[Problem]()
    with leases.hold_lease(url, "repair") if drop else nullcontext() as lease:
        torn = [
            file for name in reversed(SPECS) for file in find_torn_files(storage.join(url, name))
        ]
        if torn and drop:
            remove_torn_files(torn)
        # The rest can be verified without the torn files, if version 0 of documents is not among them.
        can_verify = not torn or (drop and Table.exists(storage.join(url, "documents")))
        problems = verify(url) if can_verify else []
        if foreign := [problem for problem in problems if problem.is_foreign]:
            undone = undo_foreign_changes(url, lease)
            problems = verify(url) if drop else []
        undo = _Undo(url, problems)
        if lease is not None and undo.has_any:
            undo.commit(lease)
    dropped = {name: {*paths} for name, paths in undone.dropped.items()}
    for name, table in undo.tables.items():
        dropped.setdefault(name, set()).update(table.remove)
    return Repair(
        lake=url,
        problems=foreign + problems,
        restored=undone.restored,
        dropped={name: sorted(paths) for name, paths in dropped.items() if paths},
        sources=sorted(undo.sources),
        left=undo.left,
        torn=torn,
        done=drop,
    )


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
                self.left.append(UnrepairedProblem(problem=problem, why=_NOT_REPAIRABLE))
        if self._damaged:
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
        documents = open_ledger(tables["documents"])
        for name, table in tables.items():
            ledger = documents if name == "documents" else find_ledger(table)
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
