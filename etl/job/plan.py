"""TODO."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from etl import storage
from etl.compact_collections import PackedKeySet, SpilledList
from etl.dedup.reference_lakes import ReferenceLake, open_reference_lakes
from etl.errors import MismatchError
from etl.lake.commit_info import find_record
from etl.lake.keys_table import KeysTable
from etl.lake.ledger import Ledger
from etl.lake.work_units import WorkUnit, kept_units, split_key, stale_data_files
from etl.recipe.diff import differences
from etl.recipe.recipe import Recipe, Step
from etl.sources import Split, list_splits


@dataclass(frozen=True)
class Plan:
    """The work of one run of a recipe: the tables to create or rebuild, and the splits to read."""

    recipe: Recipe
    ledgers: dict[Step, Ledger]
    begin: tuple[Step, ...]  # tables to create or rebuild
    splits: SpilledList[Split]  # splits to read
    uncounted: SpilledList[Split]  # all splits of the files whose records must be counted first
    done: int  # number of splits that were read by earlier runs
    changed: frozenset[str]  # input files whose rows are replaced
    others: tuple[ReferenceLake, ...] = ()  # other lakes to compare the documents with

    @property
    def is_rebuild(self) -> bool:
        """Whether the run rebuilds an existing table."""
        return any(self.ledgers[step].table is not None for step in self.begin)

    @cached_property
    def units(self) -> SpilledList[WorkUnit]:
        """The units that ``documents`` held when the plan was made."""
        table = self.ledgers["documents"].table
        is_new = table is None or "documents" in self.begin
        return SpilledList(() if is_new or table is None else kept_units(table))

    def undecided(self) -> Iterator[WorkUnit]:
        """Yield the units that are not deduplicated yet."""
        return self._open_units("duplicates")

    def untokenized(self) -> Iterator[WorkUnit]:
        """Yield the units that are not tokenized yet."""
        return self._open_units("tokens")

    def unkeyed(self) -> Iterator[WorkUnit]:
        """Yield the deduplicated units whose keys are not written yet."""
        ledger = self.ledgers["duplicates"]
        if "duplicates" in self.begin:
            return  # nothing is deduplicated yet
        keys = KeysTable(ledger)
        for unit in self.units:
            if ledger.is_done(ledger.key(unit.key)) and not keys.has(unit.key):
                yield unit

    def has_work(self) -> bool:
        """Return whether a run would change anything."""
        has_splits = len(self.splits) > 0
        return bool(self.begin) or has_splits or self._has_open_units() or self._is_stale()

    def _has_open_units(self) -> bool:
        open_units: list[Iterator[WorkUnit]] = []
        if "duplicates" in self.ledgers:
            open_units += [self.undecided(), self.unkeyed()]
        if "tokens" in self.ledgers:
            open_units += [self.untokenized()]
        return any(True for _ in chain(*open_units))

    def _is_stale(self) -> bool:
        """Return whether ``tokens`` holds rows of documents that have been replaced."""
        ledger = self.ledgers.get("tokens")
        if ledger is None or self.ledgers["documents"].table is None or "tokens" in self.begin:
            return False
        live = PackedKeySet(ledger.key(unit.key) for unit in self.units)
        return bool(stale_data_files(ledger, live))

    def _open_units(self, step: Step) -> Iterator[WorkUnit]:
        ledger = self.ledgers[step]
        for unit in self.units:
            if step in self.begin or not ledger.is_done(ledger.key(unit.key)):
                yield unit


def make_plan(recipe: Recipe, *, rebuild: bool = False, replace_changed: bool = False) -> Plan:
    """List the source, compare it with the lake, and return the remaining work.

    Raises MismatchError if the lake was written by a different recipe (unless ``rebuild``) or if input
    files have changed since their rows were committed (unless ``replace_changed``), and SourceError if
    the source matches no files.
    """
    for stage in recipe.stages:
        stage.check()
    others = open_reference_lakes(recipe)
    ledgers = {
        step: Ledger(recipe.table_url(step), fingerprint=recipe.fingerprint(step))
        for step in recipe.steps
    }
    begin = _tables_to_begin(recipe, ledgers, rebuild=rebuild)
    for step, ledger in ledgers.items():
        if step not in begin and (external := ledger.external_files()):
            raise MismatchError(
                f"{len(external)} data files of {step!r} were written by another program (OPTIMIZE?)",
                where=storage.join(ledger.url, external[0]),
                hint="their rows cannot be traced to input files: restore the previous version, or "
                "pass --rebuild",
            )
    splits = SpilledList(list_splits(recipe.source))
    documents = ledgers["documents"]
    todo, changed = splits, frozenset[str]()
    if "documents" not in begin:
        changed = frozenset(s.uri for s in splits if documents.has_changed(s.uri, s.fingerprint))
        todo = SpilledList(s for s in splits if not documents.is_done(split_key(documents, s)))
    if changed and not replace_changed:
        raise MismatchError(
            f"{len(changed)} input files have changed since their rows were committed",
            where=min(changed),
            hint="pass --replace-changed to replace the old rows with the new ones",
        )
    if changed and "duplicates" in ledgers:  # the replaced rows may be keepers of other files' rows
        begin = tuple(s for s in recipe.steps if s in begin or s != "documents")
    files = {split.uri for split in todo if split.first_row is None}
    uncounted = SpilledList(split for split in splits if split.uri in files)
    done = len(splits) - len(todo)
    return Plan(recipe, ledgers, begin, todo, uncounted, done, changed, tuple(others))


def _tables_to_begin(
    recipe: Recipe, ledgers: dict[Step, Ledger], *, rebuild: bool
) -> tuple[Step, ...]:
    others = [step for step in recipe.steps if ledgers[step].is_other_recipe]
    if others and not rebuild:
        raise _mismatch(recipe, ledgers[others[0]], others[0])
    if rebuild:  # the first table that differs and all later ones; all tables if none differs
        first = recipe.steps.index(others[0]) if others else 0
        return tuple(
            s for i, s in enumerate(recipe.steps) if i >= first or ledgers[s].table is None
        )
    return tuple(step for step in recipe.steps if ledgers[step].table is None)


def _mismatch(recipe: Recipe, ledger: Ledger, step: Step) -> MismatchError:
    assert ledger.table is not None
    record = find_record(ledger.table)
    settings = []
    if record is not None:
        settings = list(differences(record.canonical, recipe.canonical()))
    shown = "; ".join(settings[:5]) or "the recipe's fingerprint differs"
    return MismatchError(
        f"the table {step!r} was created by a different recipe ({shown})",
        where=ledger.url,
        hint="use another --lake, or pass --rebuild (older versions stay readable)",
    )
