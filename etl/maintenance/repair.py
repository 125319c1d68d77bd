"""Repair a lake: drop damaged data, so that the next run rebuilds it from the input files.

`etl verify` names the damaged data files. Repair undoes the units of work behind them and all that was
derived from these units. A split of documents is dropped with its decisions and its tokens; a data file of
duplicates is dropped with the decisions on the input files it covers, and with their tokens. The next run
reads, deduplicates and tokenizes only these units; earlier decisions take precedence, as in any run. The
table ``keys`` is rebuilt. Repair makes at most four commits, downstream first, so that no row outlives its
origin.

The next run restores the same rows if the recipe's libraries have not changed. If equal texts from several
runs are all decided again, it keeps the one that a single run would keep, which may be a different one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import schemas, storage
from etl.audit.verify.verify import Problem, verify
from etl.delta.data_file import DataFile, DataFileWriter
from etl.delta.table import Table
from etl.lake import leases, releases
from etl.lake.ledger import Ledger, key_of
from etl.lake.lineage_record import maintenance_record, open_ledger
from etl.lake.table_versions import find_table, live_inputs, versions_of
from etl.lake.tables import DUPLICATES
from etl.lake.work_units import WorkUnit, kept_units

_NOTHING: Mapping[str, list[DataFile]] = {}
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
    dropped: dict[str, list[str]]  # table -> data files
    sources: list[str]  # input files to read again, in part or as a whole
    left: list[UnrepairedProblem]
    done: bool


def repair(lake: str, *, drop: bool = False) -> Repair:
    """Find damaged data that can be rebuilt, and drop it if ``drop`` is set.

    Raises TableError if the lake has no documents or no recipe made them, ConflictError if another process
    commits concurrently.
    """
    url = storage.normalize(lake)
    problems = verify(url)
    undo = _Undo(url, problems)
    if drop and undo.has_any:
        with leases.hold_lease(url, "repair"):
            undo.commit()
    return Repair(
        lake=url,
        problems=problems,
        dropped={kind: sorted(paths) for kind, paths in undo.remove.items() if paths},
        sources=sorted(undo.sources),
        left=undo.left,
        done=drop,
    )


class _Undo:
    """The units of work to undo in each table, and the data files to remove with them."""

    def __init__(self, lake: str, problems: list[Problem]) -> None:
        self.remove: dict[str, set[str]] = {kind: set() for kind in (*releases.TABLES, "keys")}
        self.sources: set[str] = set()
        self._undone: dict[str, set[str]] = {kind: set() for kind in self.remove}
        has_files = any(problem.file is not None for problem in problems)
        tables = {kind: find_table(lake, kind) for kind in self.remove} if has_files else {}
        live = {f"{kind}/{path}" for kind, table in tables.items() for path in _live(table)}
        self._damaged = [p for p in problems if f"{p.table}/{p.file}" in live]
        self.left = [
            UnrepairedProblem(problem=p, why=_NOT_REPAIRABLE)
            for p in problems
            if p not in self._damaged
        ]
        if not self._damaged:
            return
        self._ledgers = {kind: open_ledger(t) for kind, t in tables.items() if t is not None}
        documents = self._ledgers["documents"].table
        assert documents is not None
        self._inputs = live_inputs(versions_of(documents))
        self._files = documents.data_files().to_pylist()
        self._units = {unit.key: unit for unit in kept_units(documents)}
        self._undo_documents()
        self._undo_duplicates()
        self._undo_tokens()
        if "keys" in self._ledgers and (self.has_any or self._paths("keys")):
            self.remove["keys"] = set(_live(tables["keys"]))

    @property
    def has_any(self) -> bool:
        """Whether there is anything to undo."""
        return any(self._undone.values()) or any(self.remove.values())

    def commit(self) -> None:
        """Undo the units in each table, downstream first."""
        if "tokens" in self._ledgers:
            self._commit("tokens")
        if self.remove["keys"]:
            self._forget_keys()
        if "duplicates" in self._ledgers and self._undone["duplicates"]:
            self._commit("duplicates", self._rewritten())
        self._commit("documents", input_files=self._negative_inputs())

    def _paths(self, kind: str) -> list[str]:
        return [str(p.file) for p in self._damaged if (p.redo or p.table) == kind]

    def _undo_documents(self) -> None:
        sources = {str(f["path"]): str(f["min.source"]) for f in self._files}
        for problem in self._damaged:
            if (problem.redo or problem.table) != "documents":
                continue
            source = sources[str(problem.file)]
            if why := _why_unreadable(source, self._inputs):
                self.left.append(UnrepairedProblem(problem=problem, why=why))
            else:
                self.sources.add(source)
                self._undone["documents"].add(key_of(str(problem.file)))
        undone = self._undone["documents"]
        self.remove["documents"] = {path for path in sources if key_of(path) in undone}

    def _undo_duplicates(self) -> None:
        self._undone["duplicates"] = set(self._undone["documents"])
        if "duplicates" not in self._ledgers:
            return
        table = self._ledgers["duplicates"].table
        assert table is not None
        damaged = set(self._paths("duplicates"))
        for file in table.data_files().to_pylist():
            if file["path"] in damaged:
                self.remove["duplicates"].add(file["path"])
                low, high = file["min.source"], file["max.source"]
                units = self._units.values()
                self._undone["duplicates"].update(u.key for u in units if low <= u.source <= high)

    def _undo_tokens(self) -> None:
        self._undone["tokens"] = set(self._undone["duplicates"])
        if "tokens" not in self._ledgers:
            return
        ledger = self._ledgers["tokens"]
        assert ledger.table is not None
        units = {ledger.key(key): key for key in self._units}
        redo = [p for p in self._damaged if p.redo == "tokens"]
        self._undone["tokens"].update(key_of(str(p.file)) for p in redo)
        wanted = {ledger.key(key) for key in self._undone["tokens"]}
        damaged = {str(p.file) for p in self._damaged if p.table == "tokens"}
        paths = ledger.table.data_files()["path"].to_pylist()
        for path, keys in zip(paths, ledger.units_of(paths), strict=True):
            if path in damaged or not wanted.isdisjoint(keys):
                self.remove["tokens"].add(path)
                self._undone["tokens"].update(units[key] for key in keys if key in units)

    def _commit(
        self,
        kind: str,
        rewritten: Mapping[str, list[DataFile]] = _NOTHING,
        input_files: Sequence[schemas.InputFile] = (),
    ) -> None:
        ledger, undone = self._ledgers[kind], self._undone[kind]
        assert ledger.table is not None
        if not undone and not self.remove[kind]:
            return
        keys = undone if kind == "documents" else {ledger.key(key) for key in undone}
        fragments = [fragment for parts in rewritten.values() for fragment in parts]
        done = [_rewrite_key(ledger, path) for path in rewritten]
        ledger.table.commit(
            fragments,
            remove=sorted(self.remove[kind] | rewritten.keys()),
            transactions=dict.fromkeys(sorted(keys), 0) | dict.fromkeys(done, 1),
            lineage=maintenance_record(
                ledger.table,
                "repair",
                num_fragments=len(fragments),
                input_files=list(input_files),
            ),
        )

    def _forget_keys(self) -> None:
        """Detach the table of keys from its recipe, so that the next run rebuilds it."""
        table = self._ledgers["keys"].table
        assert table is not None
        table.commit(
            [],
            remove=sorted(self.remove["keys"]),
            transactions={"recipe": 0},
            lineage=maintenance_record(table, "repair", num_fragments=0),
        )

    def _rewritten(self) -> dict[str, list[DataFile]]:
        """Rewrite sound data files of duplicates without the rows of undone units."""
        ledger = self._ledgers["duplicates"]
        assert ledger.table is not None
        units = [u for u in self._units.values() if u.key in self._undone["duplicates"]]
        paths = pa.array([path for unit in units for path in unit.paths], pa.string())
        rewritten = {}
        for file in ledger.table.data_files().to_pylist():
            if file["path"] in self.remove["duplicates"] or not _may_hold(file, units):
                continue
            with storage.open_input(storage.join(ledger.url, file["path"])) as source:
                rows = pq.read_table(source)
            remaining = rows.filter(pc.invert(pc.is_in(rows["file"], paths)))
            if remaining.num_rows < rows.num_rows:
                name = _rewrite_key(ledger, file["path"])
                writer = DataFileWriter(ledger.url, ledger.table.schema, DUPLICATES, name=name)
                writer.append(remaining)
                rewritten[file["path"]] = writer.close()
        return rewritten

    def _negative_inputs(self) -> list[schemas.InputFile]:
        """Return the input files of dropped splits; ``rows`` is minus the number of dropped records."""
        remaining: Counter[str] = Counter()
        for file in self._files:
            if file["path"] not in self.remove["documents"]:
                remaining[str(file["min.source"])] += int(file["rows"])
        return [
            self._inputs[uri].model_copy(update={"rows": remaining[uri] - self._inputs[uri].rows})
            for uri in sorted(self.sources)
        ]


def _rewrite_key(ledger: Ledger, path: str) -> str:
    """Return the key of the file that replaces a data file."""
    return ledger.key("repair", path)


def _live(table: Table | None) -> list[str]:
    return table.data_files()["path"].to_pylist() if table is not None else []


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
    if info.fingerprint != inputs[source].fingerprint:
        return f"its input file has changed: {source} (run the recipe with --replace-changed)"
    return None
