"""Find what another recipe changes in a lake, from the stored columns of ``documents``."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

from etl.change.changed_units import UnitFiles, files_by_unit
from etl.change.input_rows import InputUnit, find_inputs
from etl.change.judge import Judge
from etl.change.judged_units import JudgedUnits, UnitChange, batch_units, judge_units
from etl.change.kept_decisions import keeps_all, keeps_others
from etl.change.recipe_columns import RecipeColumns
from etl.change.refusals import find_refusals, recorded_recipe, unnamed_tables
from etl.lake.annotated_documents import check_annotations
from etl.lake.commit_info import find_record
from etl.lake.ledger import Ledger
from etl.lake.recipe_ledgers import is_followed, is_other_recipe, open_all_ledgers
from etl.lake.table_specs import DOCUMENTS
from etl.plural import many
from etl.recipe.recipe import Recipe

_THREADS: Final = 2  # chosen here: a batch of rows is in memory for each


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
        return self.keeps_decisions and not (
            self.leave or self.come or self.by_text or self.by_input
        )

    @cached_property
    def decides_few(self) -> bool:
        """Whether only documents are decided again that others which leave or come are connected with."""
        has_decisions = not self.keeps_rows and "duplicates" in self.ledgers
        return has_decisions and keeps_others(self.recipe, self.ledgers)

    @property
    def leave(self) -> int:
        """The number of documents that are kept, and will be rejected."""
        return sum(each.leave for each in self.units.values())

    @property
    def come(self) -> int:
        """The number of documents that are rejected, and will be kept."""
        return sum(each.come for each in self.units.values())

    @property
    def by_text(self) -> int:
        """The number of other documents that only their stored texts can tell."""
        return sum(len(each.by_text) for each in self.units.values())

    @property
    def by_input(self) -> int:
        """The number of other documents that only their records in the input can tell."""
        return sum(len(each.by_input) for each in self.units.values())

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
        """The number of arrivals whose documents are all compared again, 0 if none needs to be."""
        texts, duplicates = self.ledgers["texts"], self.ledgers.get("duplicates")
        if duplicates is None or self.keeps_rows or self.decides_few:
            return 0
        arrivals = (texts.arrival_of(texts.key(unit)) or 1 for unit in self.files)
        return len({max(arrival, duplicates.first_arrival) for arrival in arrivals})

    @property
    def num_bytes(self) -> int:
        """The bytes of input that are read again, of the files that are there."""
        read = (unit for unit, each in self.units.items() if each.by_input or each.come)
        splits = [self.inputs[unit].split for unit in read if unit in self.inputs]
        # The part of a file is not known without its footer: it has the bytes of the whole file then.
        sizes = {split.uri: split.size for split in splits}
        parts = Counter[str]()
        for split in splits:
            parts[split.uri] += split.bytes
        return sum(min(parts[uri], size) for uri, size in sizes.items())


def find_lake_change(
    recipe: Recipe, on_units: Callable[[JudgedUnits, Sequence[str]], None] | None = None
) -> LakeChange | None:
    """Return what a recipe changes in its lake; None if the lake has no documents, or this recipe made them.

    Calls ``on_units`` with the documents of some units, and the keys of those that change, in threads. Reads
    the columns of ``documents`` that verdicts depend on, or all for ``on_units``, and lists the source.
    Raises TableError if a file is damaged, SourceError if the source cannot be listed, RecipeError for
    annotations that cannot be read or that no document has.
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
    is_wide = not table.schema.equals(DOCUMENTS.schema(recipe))
    files = files_by_unit(table)
    text_files = {} if texts.table is None else files_by_unit(texts.table)

    for stage in judge.measuring:
        stage.check()

    def has_texts(unit: str) -> bool:
        # With a transform, stored texts are not those that the stages begin with. Without the last
        # change, some kept documents have none.
        is_stored = is_followed([documents, texts]) and texts.is_done(texts.key(unit))
        return is_stored and not judge.old.transforms

    def judge_batch(batch: Mapping[str, UnitFiles]) -> tuple[Mapping[str, UnitChange], set[str]]:
        columns = judge.reads if on_units is None else None
        judged = judge_units(
            judge, table, batch, columns, with_texts={unit for unit in batch if has_texts(unit)}
        )
        changing = [u for u, change in judged.changes.items() if is_wide or not change.is_empty]
        if on_units is not None and changing:
            on_units(judged, changing)
        return judged.changes, judged.filled

    changes: dict[str, UnitChange] = {}
    filled: set[str] = set()
    with ThreadPoolExecutor(_THREADS) as pool:
        for of_batch, filled_there in pool.map(judge_batch, batch_units(files)):
            changes |= of_batch
            filled |= filled_there
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
    # Without deduplication, a document that may come is one of these; with it, any duplicate may.
    if firsts or any(each.by_text for each in changes.values()) or "duplicates" in ledgers:
        refusals += unnamed_tables(recipe, ledgers)
    return found(
        refusals=refusals,
        judge=judge,
        units=changes,
        files=files,
        text_files=text_files,
        inputs=inputs,
        is_wide=is_wide,
        keeps_decisions=keeps_all(ledgers.get("duplicates"), recipe, judge.sources),
    )


def _gone(names: Sequence[str]) -> str:
    count = many(len(names), "input file")
    return f"{count} with records to read again changed or not listed any more, first {names[0]}"
