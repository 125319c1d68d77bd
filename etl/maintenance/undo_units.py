"""Undo units of work whose rows are damaged or lost, what was derived from them, and foreign changes.

A split of documents is dropped with its decisions and its tokens; a data file of duplicates is dropped with
the decisions on the input files it covers, and with their tokens. The next run reads, deduplicates and
tokenizes only these units. Indexes are emptied.

Where another program has changed data, the log then names the data files that Tokenlake's commits have made,
and no others. Files that it has removed are added again if they exist. A file that no longer exists, since a
vacuum of that program has deleted it, is damage like any other, but its units are undone in the same commit:
no version ever names it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import starmap
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas, storage
from etl.audit.verify.verify import Problem
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.errors import TableError
from etl.lake import releases
from etl.lake.dedup_decisions import units_led_by
from etl.lake.drop_units import files_of_units, rest_of_files, sharing_units
from etl.lake.input_locations import find_input
from etl.lake.jobs import Job
from etl.lake.lake_epochs import all_ledgers, drop_all, start_lake_epoch
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Drop, LedgerEntry
from etl.lake.lineage_record import Change, num_files
from etl.lake.open_ledger import find_ledger
from etl.lake.table_specs import DUPLICATES, open_tables, spec_of
from etl.lake.table_versions import live_inputs, read_versions
from etl.lake.unit_files import unit_files, unit_keys
from etl.lake.work_units import WorkUnit, kept_units
from etl.maintenance.table_undo import TableUndo
from etl.parquet.data_file import DataFile, DataFileWriter

_THREADS = 16  # they wait for storage
_NOT_REPAIRABLE = "`etl run RECIPE --rebuild` makes the tables again"


@dataclass(frozen=True, kw_only=True)
class UnrepairedProblem:
    """A problem that cannot be repaired, and why."""

    problem: Problem
    why: str


class Undo:
    """The units of work to undo in each table of a lake, and the data files to remove with them."""

    def __init__(self, lake: str, problems: Sequence[Problem], *, is_foreign: bool = False) -> None:
        """Find what to undo for some problems, or with ``is_foreign`` for changes by other programs."""
        self.tables: dict[str, TableUndo] = {}  # inputs first
        self.sources: set[str] = set()
        self.left: list[UnrepairedProblem] = []
        self._damaged: list[Problem] = []
        self._missing: set[str] = set()  # table/path
        self._ledgers: dict[str, Ledger] = {}
        if is_foreign or any(problem.file is not None for problem in problems):
            self._open(lake)
        # Rows of a table that no recipe has made cannot be made again.
        made = {n: t for n, t in self.tables.items() if n == "documents" or find_ledger(t.table)}
        # A problem of a file that is not live, such as of an old version, is left.
        live = {f"{name}/{file['path']}" for name, t in made.items() for file in t.files()}
        for problem in [*problems, *self._missing_files()]:
            # A release may need another deletion vector of a file that is live.
            if problem.release is None and f"{problem.table}/{problem.file}" in live:
                self._damaged.append(problem)
            else:
                self.left.append(unrepaired(lake, problem))
        self._held = {
            f"{name}/{file['path']}": unit_keys(file)
            for name in {problem.table for problem in self._damaged}
            for file in self.tables[name].files()
        }
        # A release needs the damaged file itself, which a repair does not restore.
        if self._damaged:
            self.left += [unrepaired(lake, p) for p in _in_releases(lake, self._damaged)]
            self._undo_tables()

    @property
    def has_any(self) -> bool:
        """Whether there is anything to undo."""
        return any(table.has_any for table in self.tables.values())

    def commit(self, job: Job) -> None:
        """Undo the units in each table."""
        drops = {name: self._drop(name) for name, undo in self.tables.items() if undo.has_any}
        start_lake_epoch(self._ledgers, drops, partial(self._describe, job))

    def _open(self, lake: str) -> None:
        tables = open_tables(lake)
        self.tables = {name: TableUndo.of(table) for name, table in tables.items()}
        self._ledgers = all_ledgers(lake, (undo.ledger for undo in self.tables.values()))
        inputs = live_inputs(read_versions(tables["documents"]))
        self._inputs, self._recorded = inputs.files(), inputs.recorded
        texts = self.tables.get("texts")
        self._units = {} if texts is None else {u.key: u for u in kept_units(texts.table)}

    def _missing_files(self) -> Iterator[Problem]:
        for name, undo in self.tables.items():
            for path in undo.missing():
                self._missing.add(f"{name}/{path}")
                yield Problem(name, path, "the file is missing")

    def _undo_tables(self) -> None:
        indexes = {name: undo for name, undo in self.tables.items() if spec_of(name).is_index}
        for name, undo in self.tables.items():
            if name in indexes:
                continue
            # The tables are in the order of their inputs, so the units of the inputs are complete here.
            for source in spec_of(name).made_from:  # rows built from undone units are undone
                undo.units |= self.tables[source].units if source in self.tables else set()
            if name == "documents":
                self._undo_documents(undo)
            elif name == "texts":
                self._undo_texts(undo)
            elif name == "duplicates":
                self._undo_duplicates(undo)
            else:
                self._undo_units_in_files(name, undo)
        # Last: whether an index must be rebuilt depends on all other tables.
        for name, undo in indexes.items():
            if self.has_any or self._problems(name):  # the next run rebuilds it as a whole
                undo.remove = {file["path"] for file in undo.files()}

    def _problems(self, name: str) -> list[Problem]:
        """Return the problems that are repaired in a table."""
        return [problem for problem in self._damaged if (problem.redo or problem.table) == name]

    def _undo_documents(self, undo: TableUndo) -> None:
        """Undo the splits behind damaged files of ``documents`` and ``texts``, which are read together."""
        sources = {file["unit"]: str(file["min.source"]) for file in unit_files(undo.table)}
        for problem in (*self._problems("documents"), *self._problems("texts")):
            # Texts may be there without documents.
            units = {key: sources[key] for key in self._units_in(problem) if key in sources}
            whys = [self._find(source)[1] for source in units.values()]
            why = next((why for why in whys if why is not None), None)
            if why is not None:
                self.left.append(UnrepairedProblem(problem=problem, why=why))
            # A damaged file whose input is gone stays: some of its rows may be readable. A missing file
            # has none, so its units are undone in any case.
            if why is None or f"{problem.table}/{problem.file}" in self._missing:
                self.sources.update(units.values())
                undo.units.update(units)
        undo.remove = {file["path"] for file in files_of_units(undo.table, undo.units)}

    def _find(self, source: str) -> tuple[schemas.InputFile | None, str | None]:
        """Return an input file by the name under which it can be read again, or why it cannot."""
        inputs = self.tables["documents"].ledger.inputs
        samples = partial(inputs.samples, inputs.identity_of(source))
        return find_input(self._recorded(source), source, samples)

    def _units_in(self, problem: Problem) -> list[str]:
        """Return the keys of the units in a damaged file."""
        return self._held[f"{problem.table}/{problem.file}"]

    def _undo_texts(self, undo: TableUndo) -> None:
        """Undo the texts of undone splits, and damaged ones of splits that ``documents`` has not."""
        known = {file["unit"] for file in unit_files(self.tables["documents"].table)}
        damaged = (key for problem in self._problems("texts") for key in self._units_in(problem))
        undo.units |= {key for key in damaged if key not in known}
        undo.remove = {file["path"] for file in files_of_units(undo.table, undo.units)}

    def _undo_duplicates(self, undo: TableUndo) -> None:
        damaged = {str(problem.file) for problem in self._problems("duplicates")}
        for file in undo.files():
            if file["path"] in damaged:
                undo.remove.add(file["path"])
                undo.units |= {u.key for u in self._units.values() if _may_hold(file, [u])}
        # The rows of these files may have other addresses when they are read again.
        if moved := {source for source in self.sources if self._may_move(source)}:
            sound = [file for file in undo.files() if file["path"] not in undo.remove]
            undo.units |= units_led_by(undo.table.url, sound, moved, self._units)

    def _may_move(self, source: str) -> bool:
        """Return whether a file was moved or changed, or belongs to a Delta table that may be compacted."""
        file, _ = self._find(source)
        return file is None or file.uri != source or file.version is not None

    def _undo_units_in_files(self, name: str, undo: TableUndo) -> None:
        """Undo the units in damaged files, and remove all files with rows of undone units."""
        damaged = {str(problem.file) for problem in self._damaged if problem.table == name}
        redone = (problem for problem in self._damaged if problem.redo == name)
        undo.units |= {key for problem in redone for key in self._units_in(problem)}
        # Keys of a derived table hash the keys of ``documents``, so they lead back only through all of
        # these.
        units = {undo.ledger.key(key): key for key in self._units}
        held = {file["path"]: unit_keys(file) for file in undo.files()}
        wanted = {undo.ledger.key(key) for key in undo.units}
        wanted.update(key for path in damaged & held.keys() for key in held[path])
        # A file goes as a whole, so all its units are undone, with all their other files.
        wanted = sharing_units(held.values(), wanted)
        undo.remove |= {path for path, keys in held.items() if not wanted.isdisjoint(keys)}
        undo.units |= {units[key] for key in wanted if key in units}

    def _drop(self, name: str) -> Drop:
        undo = self.tables[name]
        if spec_of(name).is_index:
            return drop_all(undo.ledger)
        is_documents = name == "documents"  # the keys of other tables are derived from its keys
        rewritten = self._rewrite(name)
        restored: dict[str, list[DataFile]] = {}
        for file in (undo.removed[path] for path in undo.restored if path not in rewritten):
            first, *others = unit_keys({"path": file.path, "units": file.units})
            restored.setdefault(first, []).append(file)
            restored |= {key: restored.get(key, []) for key in others}
        if name == "texts":
            restored = {undo.ledger.key(key): files for key, files in restored.items()}
        return Drop(
            paths=undo.dropped | (rewritten.keys() - undo.removed.keys()),
            keys=undo.units if is_documents else {undo.ledger.key(key) for key in undo.units},
            add=[*starmap(LedgerEntry, restored.items())],
            rest=[file for files in rewritten.values() for file in files],
            is_undo=bool(undo.added or undo.removed),
        )

    def _describe(
        self, job: Job, table: Table, drop: Drop, entries: Sequence[LedgerEntry], generation: int
    ) -> schemas.Lineage | None:
        """Return the lineage record of the commit with which a repair starts an epoch."""
        is_documents = table.url.endswith("/documents")
        change = Change(
            action="repair" if drop.paths or drop.add else "epoch",
            generation=generation,
            num_data_files=num_files(entries),
            input_files=self._negative_inputs() if is_documents else (),
        )
        return job.record_on(table, change)

    def _rewrite(self, name: str) -> dict[str, list[DataFile]]:
        """Rewrite sound data files of a table without the rows of undone units; return the new by the old."""
        undo = self.tables[name]
        if name == "duplicates":
            return self._rewrite_duplicates()
        if name not in ("documents", "texts"):
            return {}
        files = files_of_units(undo.table, undo.units)
        return {file["path"]: rest_of_files(undo.ledger, [file], undo.units) for file in files}

    def _rewrite_duplicates(self) -> dict[str, list[DataFile]]:
        undo = self.tables["duplicates"]
        units = [unit for key, unit in self._units.items() if key in undo.units]
        undone = pa.array([unit.key for unit in units], pa.string())
        rewritten = {}
        for file in undo.files():
            if file["path"] in undo.remove or not _may_hold(file, units):
                continue
            rows = read_live_rows(undo.table.url, file, undo.table.schema)
            remaining = rows.filter(pc.invert(pc.is_in(rows["unit"], undone)))
            if remaining.num_rows < rows.num_rows:
                key = undo.ledger.key("repair", file["path"])
                writer = DataFileWriter(
                    undo.table.url, undo.table.schema, DUPLICATES.layout, name=key
                )
                writer.append(remaining)
                rewritten[str(file["path"])] = writer.close()
        return rewritten

    def _negative_inputs(self) -> list[schemas.InputFile]:
        """Return the input files of dropped splits; ``rows`` is minus the number of dropped records."""
        undo = self.tables["documents"]
        remaining: Counter[str] = Counter()
        for file in unit_files(undo.table):
            if file["unit"] not in undo.units:
                remaining[str(file["min.source"])] += int(file["rows"])
        return [
            self._inputs[uri].updated(rows=remaining[uri] - self._inputs[uri].rows)
            for uri in sorted(self.sources & self._inputs.keys())
        ]


def unrepaired(lake: str, problem: Problem) -> UnrepairedProblem:
    """Return a problem with the command that remains."""
    why = problem.hint or _NOT_REPAIRABLE
    if problem.release is not None:
        why = f"`{releases.removal_command(lake, problem.release)}` removes the release"
    return UnrepairedProblem(problem=problem, why=why)


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
