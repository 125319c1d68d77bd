"""Change the recipe of a lake, so that its tables are what the new recipe would have made of the same input.

1. ``documents`` is compared with the new recipe, without text: ``find_lake_change``. What cannot be changed
   exactly is refused with its reason. The new data files of a unit are written while its rows are in memory.
2. Records whose verdict or signals no column tells are read, and judged by the whole new recipe.
3. The data files of ``documents`` that change are replaced in one commit.
4. The other tables follow, each in another commit: ``etl.change.follow``. After a kill between them, the
   next run follows first. With deduplication, new decisions are made before the tokens follow.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from etl import schemas
from etl.change.changed_units import RowReader
from etl.change.follow import Follower
from etl.change.judged_units import JudgedUnits, UnitChange, judge_units, write_units
from etl.change.lake_change import LakeChange, find_lake_change
from etl.errors import MismatchError
from etl.lake.commit_attempts import repeat_commit
from etl.lake.drop_units import sharing_units
from etl.lake.jobs import Job
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import Change, OriginOf
from etl.lake.open_ledger import refuse_foreign_changes
from etl.lake.recipe_ledgers import is_followed, is_other_recipe, open_all_ledgers
from etl.lake.table_specs import DOCUMENTS
from etl.parquet.data_file import DataFile
from etl.recipe.recipe import Recipe

_THREADS: Final = 2  # chosen here: a unit's rows and texts are in memory for each


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
        change = repeat_commit(self._replace, url=str(self.recipe.lake))
        self.follow()
        return change

    def follow(self) -> None:
        """Let the tables follow the last change of the recipe, as far as they do not yet."""
        repeat_commit(self._follow, url=str(self.recipe.lake))

    def _replace(self) -> LakeChange | None:
        schema, url = DOCUMENTS.schema(self.recipe), self.recipe.table_url("documents")
        written: dict[str, list[DataFile]] = {}

        def write_known(judged: JudgedUnits, units: Sequence[str]) -> None:
            known = [unit for unit in units if not judged.changes[unit].is_open]
            written.update(write_units(url, schema, judged, known))

        change = find_lake_change(self.recipe, write_known)
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
        units = _touched(change)
        reader = RowReader(
            recipe=self.recipe,
            documents=documents.table,
            texts=change.ledgers["texts"].table,
            text_files=change.text_files,
            inputs=change.inputs,
        )

        def write_rest(unit: str) -> None:
            files, which = change.files[unit], change.units.get(unit, _NOTHING)
            assert change.judge is not None
            assert documents.table is not None
            judged = judge_units(change.judge, documents.table, {unit: files}, with_texts=())
            read = reader.judged(unit, files, by_text=which.by_text, by_input=which.by_input)
            written.update(write_units(url, schema, judged, [unit], {unit: read}))

        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(write_rest, sorted(units - written.keys())):
                pass  # the results, for the errors of units
        added = [file for unit in sorted(written) for file in written[unit]]
        removed = {file["path"] for unit in units for file in change.files[unit]}
        wide = (schema, DOCUMENTS.layout) if change.is_wide else None
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
        if is_other_recipe(self.recipe, ledgers):
            raise MismatchError(
                "another run has changed the recipe of this lake since this run began",
                where=ledgers["documents"].url,
                hint="run the recipe that the lake now has, or run again: it prints what a change would do",
            )
        if not is_followed(ledgers.values()):
            self._refuse_foreign_changes(ledgers)
            Follower(recipe=self.recipe, ledgers=ledgers, origin=self.origin, job=self.job).follow()

    def _refuse_foreign_changes(self, ledgers: Mapping[str, Ledger]) -> None:
        """Raise MismatchError if another program has changed data, which a change would hide."""
        refuse_foreign_changes(*(ledgers[step] for step in self.recipe.steps if step in ledgers))


_NOTHING: Final = UnitChange(leave=0, come=0, others=0, by_text=frozenset(), by_input=frozenset())


def _touched(change: LakeChange) -> AbstractSet[str]:
    """Return the units to write again: those that change, and all that share a data file with one of them."""
    if change.is_wide:
        return change.files.keys()
    held: dict[str, list[str]] = {}
    for unit, files in change.files.items():
        for file in files:
            held.setdefault(file["path"], []).append(unit)
    return sharing_units(held.values(), change.units)
