"""Change the recipe of a lake, so that its tables are what the new recipe would have made of the same input.

1. ``documents`` is compared with the new recipe, without text: ``find_lake_change``. What cannot be changed
   exactly is refused with its reason.
2. Records whose verdict or signals no column tells are read, and judged by the whole new recipe.
3. The data files of ``documents`` that change are replaced in one commit.
4. The other tables follow, each in another commit: ``etl.change.follow``. After a kill between them, the
   next run follows first. With deduplication, it decides on all documents again before the tokens follow.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from etl import schemas
from etl.change.changed_units import (
    RowReader,
    UnitChange,
    files_by_unit,
    find_change,
    new_rows,
    write_rows,
)
from etl.change.follow import Follower, OriginOf
from etl.change.input_rows import InputUnit, find_inputs
from etl.change.judge import Judge
from etl.change.recipe_columns import RecipeColumns
from etl.change.refusals import changes_dedup, find_refusals, recorded_recipe
from etl.errors import ConflictError, MismatchError
from etl.lake.annotated_documents import check_annotations
from etl.lake.commit_info import find_record
from etl.lake.drop_units import sharing_units
from etl.lake.jobs import Job
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import Change
from etl.lake.recipe_ledgers import is_followed, is_other_recipe, open_all_ledgers
from etl.lake.table_specs import DOCUMENTS
from etl.plural import many
from etl.recipe.recipe import Recipe

Result = TypeVar("Result")

_MAX_ATTEMPTS: Final = 20  # each failure means that another run's commit succeeded
_PAUSE_SECONDS: Final = 1.0
_THREADS: Final = 2  # chosen here: a unit's rows and texts are in memory for each


@dataclass(frozen=True, kw_only=True)
class LakeChange:
    """What a new recipe changes in a lake, or why it cannot be changed.

    ``units`` has what changes by the key of the unit of work; ``is_wide``: all units are written again, since
    the columns of ``documents`` change; ``keeps_decisions``: what deduplication decides by remains.
    """

    recipe: Recipe
    ledgers: Mapping[str, Ledger]
    refusals: Sequence[str]
    judge: Judge | None = None
    units: Mapping[str, UnitChange]
    files: Mapping[str, Sequence[Mapping[str, Any]]]  # of ``documents``, by unit
    text_files: Mapping[str, Sequence[Mapping[str, Any]]]
    inputs: Mapping[str, InputUnit]
    is_wide: bool
    keeps_decisions: bool = False

    @property
    def keeps_rows(self) -> bool:
        """Whether only ``documents`` changes, since the same documents are kept and compared."""
        return self.keeps_decisions and not (self.leave or self.come or self.num_texts)

    @property
    def leave(self) -> int:
        """The number of documents that are kept, and will be rejected."""
        return sum(each.leave for each in self.units.values())

    @property
    def come(self) -> int:
        """The number of documents that are rejected, and will be kept."""
        return sum(each.come for each in self.units.values())

    @property
    def num_texts(self) -> int:
        """The number of other documents that only their texts or records can tell."""
        return sum(len(each.by_text) + len(each.by_input) for each in self.units.values())

    @property
    def num_rows(self) -> int:
        """The number of documents in the lake."""
        return sum(file["rows"] for files in self.files.values() for file in files)

    @property
    def num_kept(self) -> int:
        """The number of documents in the lake that are kept now."""
        files = (file for of_unit in self.files.values() for file in of_unit)
        return sum(file["rows"] for file in files if file["partition.verdict"] == "kept")

    @property
    def num_arrivals(self) -> int:
        """The number of arrivals whose documents are compared again, 0 if none needs to be."""
        texts, duplicates = self.ledgers["texts"], self.ledgers.get("duplicates")
        if duplicates is None or self.keeps_rows:
            return 0
        arrivals = (texts.arrival_of(texts.key(unit)) or 1 for unit in self.files)
        return len({max(arrival, duplicates.first_arrival) for arrival in arrivals})

    @property
    def num_bytes(self) -> int:
        """The bytes of input that are read again, of the files that are there."""
        read = (unit for unit, each in self.units.items() if each.by_input or each.come)
        return sum(self.inputs[unit].split.bytes for unit in read if unit in self.inputs)


def find_lake_change(recipe: Recipe) -> LakeChange | None:
    """Return what a recipe changes in its lake; None if the lake has no documents, or this recipe made them.

    Reads the columns of ``documents`` that verdicts depend on, and lists the source. Raises TableError if a
    file is damaged, SourceError if the source cannot be listed, RecipeError for annotations that cannot be
    read or that no document has.
    """
    ledgers = open_all_ledgers(recipe)
    documents = ledgers.get("documents")
    if documents is None or documents.table is None or not documents.has_rows():
        return None
    if not is_other_recipe(recipe, ledgers) or (record := find_record(documents.table)) is None:
        return None
    found = partial(LakeChange, recipe=recipe, ledgers=ledgers)
    nothing = partial(found, units={}, files={}, text_files={}, inputs={}, is_wide=False)
    if refusals := find_refusals(record, recipe, ledgers):
        return nothing(refusals=refusals)
    old = recorded_recipe(record, documents.url)
    judge = Judge(
        old.stages,
        recipe.stages,
        RecipeColumns.of(old.stages, record.canonical["stages"]),
        RecipeColumns.of(recipe.stages, recipe.canonical()["stages"]),
    )
    table, texts = documents.table, ledgers["texts"]
    files = files_by_unit(table)
    text_files = {} if texts.table is None else files_by_unit(texts.table)

    for stage in judge.measuring:
        stage.check()

    def change_of(unit: str) -> UnitChange:
        # With a transform, stored texts are not those that the stages begin with. Without the last
        # change, some kept documents have none.
        has_texts = is_followed([documents, texts]) and texts.is_done(texts.key(unit))
        has_texts &= not judge.old.transforms
        return find_change(judge, table, files[unit], has_texts=has_texts)

    with ThreadPoolExecutor(_THREADS) as pool:
        changes = dict(zip(files, pool.map(change_of, files), strict=True))
    filled = {name for change in changes.values() for name in change.filled}
    check_annotations(recipe, table, filled)
    changes = {unit: change for unit, change in changes.items() if not change.is_empty}
    firsts = {
        unit: min(file["min.row"] for file in files[unit])
        for unit, change in changes.items()
        if change.by_input or change.come
    }
    inputs = find_inputs(recipe, documents, texts, firsts) if firsts else {}
    gone = [unit for unit in firsts if unit not in inputs]
    names = sorted({str(files[unit][0]["min.source"]) for unit in gone})
    refusals = [_gone(names)] if names else []
    return found(
        refusals=refusals,
        judge=judge,
        units=changes,
        files=files,
        text_files=text_files,
        inputs=inputs,
        is_wide=not table.schema.equals(DOCUMENTS.schema(recipe)),
        keeps_decisions=_keeps_decisions(ledgers.get("duplicates"), recipe, judge),
    )


def _keeps_decisions(duplicates: Ledger | None, recipe: Recipe, judge: Judge) -> bool:
    """Return whether deduplication has the same settings, and prefers documents by the same values."""
    if duplicates is None or duplicates.table is None:
        return True
    # The record of ``documents`` may name settings that were never applied: of a change that was killed,
    # after which the old recipe was run again.
    record = find_record(duplicates.table)
    if record is None or changes_dedup(record, recipe):
        return False
    read = {stage.keep_column for stage in recipe.dedup_stages} - {None}
    return all(judge.sources.get(str(column)) == column for column in read)


def _gone(names: Sequence[str]) -> str:
    count = many(len(names), "input file")
    return f"{count} with records to read again changed or not listed any more, first {names[0]}"


@dataclass(frozen=True, kw_only=True)
class Changer:
    """Changes the lake of a recipe: the recipe, the origins of its rows, and the job that commits.

    ``advise`` returns what a user can do about a change that cannot be applied.
    """

    recipe: Recipe
    origin: OriginOf
    job: Job
    advise: Callable[[LakeChange], str]

    def apply(self) -> LakeChange | None:
        """Replace what changes in ``documents``, let the other tables follow, and return the change.

        Raises MismatchError with the reasons if the change cannot be applied exactly.
        """
        change = self._repeat(self._replace)
        self.follow()
        return change

    def follow(self) -> None:
        """Let the tables follow the last change of the recipe, as far as they do not yet."""
        self._repeat(self._follow)

    def _replace(self) -> LakeChange | None:
        change = find_lake_change(self.recipe)
        if change is None:
            return None
        documents = change.ledgers["documents"]
        self._refuse_foreign_changes(change.ledgers)
        if change.refusals:
            raise MismatchError(
                "the change of the recipe cannot be applied: " + "; ".join(change.refusals),
                where=documents.url,
                hint=self.advise(change),
            )
        assert documents.table is not None
        assert change.judge is not None
        units = _touched(change)
        reader = RowReader(
            recipe=self.recipe,
            documents=documents.table,
            texts=change.ledgers["texts"].table,
            text_files=change.text_files,
            inputs=change.inputs,
        )

        def write(unit: str) -> list[Any]:
            files, which = change.files[unit], change.units.get(unit, _NOTHING)
            assert change.judge is not None
            rows = new_rows(change.judge, reader, unit, files, which)
            return write_rows(documents.url, self.recipe, unit, rows)

        with ThreadPoolExecutor(_THREADS) as pool:
            added = [file for files in pool.map(write, sorted(units)) for file in files]
        removed = {file["path"] for unit in units for file in change.files[unit]}
        wide = (DOCUMENTS.schema(self.recipe), DOCUMENTS.layout) if change.is_wide else None
        documents.replace(
            () if change.is_wide else removed,
            added,
            self._describe,
            lake_epoch=1 + max(ledger.lake_epoch for ledger in change.ledgers.values()),
            keeps_rows=change.keeps_rows,
            overwrite=wide,
        )
        return change

    def _describe(self, entries: Sequence[LedgerEntry], generation: int) -> schemas.Lineage:
        count = sum(len(entry.data_files) for entry in entries)
        change = Change(action="change", generation=generation, num_data_files=count)
        return self.job.record(self.origin("documents"), change)

    def _follow(self) -> None:
        ledgers = open_all_ledgers(self.recipe)
        if not is_followed(ledgers.values()):
            self._refuse_foreign_changes(ledgers)
            Follower(recipe=self.recipe, ledgers=ledgers, origin=self.origin, job=self.job).follow()

    def _refuse_foreign_changes(self, ledgers: Mapping[str, Ledger]) -> None:
        """Raise MismatchError if another program has changed data, which a change would hide."""
        for ledger in (ledgers[step] for step in self.recipe.steps if step in ledgers):
            if (changes := ledger.foreign_changes()) is not None:
                raise changes.error(ledger.url)

    def _repeat(self, attempt: Callable[[], Result]) -> Result:
        """Make attempts until none conflicts with a commit of another job, and return its result."""
        for _ in range(_MAX_ATTEMPTS):
            try:
                return attempt()
            except ConflictError:
                time.sleep(_PAUSE_SECONDS * random.random())  # noqa: S311 - so that one of two comes first
        raise ConflictError(
            f"{_MAX_ATTEMPTS} attempts to change the recipe conflicted with commits of other runs",
            where=str(self.recipe.lake),
            hint="run again when the other runs have ended",
        )


_NOTHING: Final = UnitChange(leave=0, come=0, others=0, by_text=frozenset(), by_input=frozenset())


def _touched(change: LakeChange) -> Collection[str]:
    """Return the units to write again: those that change, and all that share a data file with one of them."""
    if change.is_wide:
        return change.files.keys()
    held: dict[str, list[str]] = {}
    for unit, files in change.files.items():
        for file in files:
            held.setdefault(file["path"], []).append(unit)
    return sharing_units(held.values(), change.units)
