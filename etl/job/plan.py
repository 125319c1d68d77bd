"""Compare a recipe with its lake: a ``Plan`` of the tables to create and the splits to read."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any, Final

from etl import schemas
from etl.compact_collections import SpilledList
from etl.dedup.reference_lakes import ReferenceLake, open_reference_lakes
from etl.delta.moved_rows import Move
from etl.errors import DamagedLogError, MismatchError, StorageError
from etl.job.units_to_do import UnitsToDo, count_units
from etl.lake.commit_info import find_record
from etl.lake.held_tables import HeldTables
from etl.lake.input_log import InputLog
from etl.lake.known_files import Comparison, KnownFiles, identify_files, unread
from etl.lake.lake_epochs import all_ledgers, lake_epoch_of
from etl.lake.ledger import Ledger
from etl.lake.missing_inputs import MissingInputs
from etl.lake.open_ledger import refuse_foreign_changes
from etl.lake.recipe_ledgers import open_ledgers
from etl.lake.table_specs import spec_of
from etl.plural import many
from etl.recipe.recipe import Recipe, Step
from etl.recipe.recipe_diff import differences
from etl.sources import Split
from etl.sources.list_splits import SourceListing, cut_files, list_source
from etl.stages.document_columns import identifies_languages

_CHANGED = "changed after the rows were committed"
_MISSING = "not listed any more"


@dataclass(frozen=True, kw_only=True)
class Drops:
    """Which rows a run may drop, as the user asked."""

    rebuild: bool = False  # of the tables of another recipe; of all tables if there is none
    replace_changed: bool = False  # of input files with other content now
    drop_missing: bool = False  # of input files that are not listed


NO_DROPS: Final = Drops()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The work of one run of a recipe, as the lake was when the plan was made."""

    recipe: Recipe
    lake_epoch: int | None  # None if the start of an epoch was interrupted
    versions: Mapping[Step, int | None]  # of the tables, by step; None: does not exist
    begin: tuple[Step, ...]  # tables to create or rebuild
    splits: SpilledList[Split]  # splits to read
    uncounted: SpilledList[Split]  # all splits of the files whose records must be counted first
    done: int  # number of splits that were read by earlier runs
    changed: frozenset[str]  # addresses of input files whose rows are dropped
    units: UnitsToDo
    doubts: tuple[Split, ...] = ()  # files to be compared with rows of the lake before all else
    postponed: tuple[str, ...] = ()  # files that may be copies of files to be read first
    missing: MissingInputs = field(default_factory=MissingInputs)  # their rows stay
    others: tuple[ReferenceLake, ...] = ()  # other lakes to compare the documents with
    moves: Mapping[str, Sequence[Move]] = field(default_factory=dict)  # to be kept, by table id
    problems: tuple[StorageError, ...] = ()  # of files and folders that are left out
    unfilled: tuple[str, ...] = ()  # tables with rows that the recipe does not fill

    @cached_property
    def num_bytes(self) -> int:
        """The bytes of the splits to read, whose list may be on the disk."""
        return sum(split.bytes for split in self.splits)

    @property
    def planned_bytes(self) -> int:
        """The bytes of the splits to read, and of the documents that later steps have not processed yet."""
        return self.num_bytes + max(self.units.num_bytes, self.units.unkeyed_bytes)

    @property
    def rebuilt(self) -> tuple[Step, ...]:
        """The existing tables that the run rebuilds."""
        return tuple(step for step in self.begin if self.versions[step] is not None)

    @property
    def starts_lake_epoch(self) -> bool:
        """Whether the run drops rows first, or finishes what another process began to drop."""
        return self.lake_epoch is None or bool(self.rebuilt or self.changed)

    def has_work(self) -> bool:
        """Return whether a run would change anything."""
        is_interrupted = self.lake_epoch is None
        is_due = is_interrupted or self.begin or self.changed or len(self.splits) or self.doubts
        return bool(is_due) or self.units != UnitsToDo()


def make_plan(recipe: Recipe, drops: Drops = NO_DROPS) -> Plan:
    """List the source, compare it with the lake, and return the remaining work.

    Raises the errors of ``check_stages``, ``plan_work`` and ``check_drops``.
    """
    check_stages(recipe)
    plan = plan_work(recipe, open_ledgers(recipe), drops)
    check_drops(plan, drops)
    return plan


def check_stages(recipe: Recipe) -> None:
    """Raise the error of a stage that cannot run, before any work is done."""
    for stage in recipe.stages:
        stage.check()


def plan_work(
    recipe: Recipe,
    ledgers: Mapping[Step, Ledger],
    drops: Drops = NO_DROPS,
    *,
    different: AbstractSet[Comparison] = frozenset(),
    postpones: bool = True,
) -> Plan:
    """Return the remaining work of a recipe, given the ledgers of its tables.

    ``different`` are files that have been compared with rows of the lake, and have others. With
    ``postpones``, copies among new files are left to a later plan.

    Raises MismatchError if the lake was written by a different recipe (unless ``drops.rebuild``), if input
    files have changed since their rows were committed (unless ``drops.replace_changed``), or if another
    program has changed the data of a table; and SourceError if the source matches no files.
    """
    others = open_reference_lakes(recipe)
    # Also tables that the recipe does not fill: their rows may be made from rows that are dropped.
    existing = all_ledgers(str(recipe.lake), ledgers.values())
    begin = _tables_to_begin(recipe, ledgers, rebuild=drops.rebuild)
    _check_missing_tables(recipe, ledgers, begin)
    _check_foreign_changes(recipe, ledgers, begin)
    documents = ledgers["documents"]
    is_new = "documents" in begin
    is_unread = is_new or "texts" in begin
    held = HeldTables(documents, ledgers["texts"])
    before = None if is_new else held.read_before(str(recipe.lake))
    listing = list_source(recipe.source, before, lake=str(recipe.lake))
    inputs = InputLog.empty() if is_new else documents.inputs
    table = None if is_new else documents.table
    known = identify_files(
        listing.files,
        recipe.source,
        inputs,
        table,
        different=different,
        postpones=postpones,
    )
    _check_guard(recipe, listing, known)
    splits = SpilledList(cut_files(known.files, recipe.source, inputs.parts))
    todo = splits if is_unread else SpilledList(unread(splits, documents, ledgers["texts"]))
    of_tables = held.followed()  # the log says what became of these files
    # A file in a folder that could not be listed is not missing.
    unlisted = [f"{error.where}/" for error in listing.problems]
    missing = [
        uri
        for uri in known.missing
        if uri not in of_tables and not f"{uri}/".startswith(tuple(unlisted))
    ]
    changed = held.addresses_of(listing.removed) | dict.fromkeys(known.changed, _CHANGED)
    if changed and not drops.replace_changed:
        raise _changed_error(changed)
    if drops.drop_missing:
        changed, missing = changed | dict.fromkeys(missing, _MISSING), []
    if changed and "duplicates" in ledgers:  # the replaced rows may be keepers of other files' rows
        decided = ("duplicates", *recipe.tokenizers)
        begin = tuple(s for s in recipe.steps if s in begin or s in decided)
    for name, ledger in existing.items():
        if ledger.table is not None:
            removes = name in begin or bool(changed) or spec_of(name).is_index
            ledger.table.check_writable(removes=removes)
    uncounted = {split.uri for split in todo if split.first_row is None}
    problems = [error for stage in recipe.stages for error in stage.unreadable_files()]
    return Plan(
        recipe=recipe,
        lake_epoch=lake_epoch_of(existing),
        versions={s: led.table.version if led.table else None for s, led in ledgers.items()},
        begin=begin,
        splits=todo,
        uncounted=SpilledList(split for split in splits if split.uri in uncounted),
        done=len(splits) - len(todo),
        changed=frozenset(changed),
        units=count_units(ledgers, begin),
        doubts=tuple(known.doubts),
        postponed=tuple(known.postponed),
        missing=MissingInputs.of(missing, documents, ledgers["texts"]),
        others=tuple(others),
        moves=listing.moves,
        problems=(*listing.problems, *problems),
        unfilled=tuple(filter(partial(_is_unfilled, recipe), existing)),
    )


def _check_guard(recipe: Recipe, listing: SourceListing, known: KnownFiles) -> None:
    """Raise RecipeError if a group that is exempt from the guard has no documents."""
    listed = chain((file.uri for file in listing.files), (file.source for file in known.files))
    has_languages = identifies_languages(recipe.stages)
    recipe.guard.check_exempt(chain(listed, known.missing), has_languages=has_languages)


def _changed_error(changed: Mapping[str, str]) -> MismatchError:
    counts = sorted(Counter(changed.values()).items())
    return MismatchError(
        "; ".join(f"{many(count, 'input file')} {what}" for what, count in counts),
        where=min(changed),
        hint="pass --replace-changed to replace the old rows with the new ones",
    )


def _check_missing_tables(
    recipe: Recipe, ledgers: Mapping[Step, Ledger], begin: Sequence[Step]
) -> None:
    """Raise DamagedLogError if a table is missing, and another one has rows that were made from it."""
    missing = [step for step in recipe.steps if ledgers[step].table is None]
    for step, ledger in ledgers.items():
        lost = [name for name in missing if name in spec_of(step).made_from]
        if lost and step not in begin and ledger.has_rows():
            raise DamagedLogError(
                "the table is missing, but others that were made from it are there",
                where=ledgers[lost[0]].url,
                hint=f"`etl repair {recipe.lake} --yes` creates it; `etl run` fills it again",
            )


def _check_foreign_changes(
    recipe: Recipe, ledgers: Mapping[Step, Ledger], begin: Sequence[Step]
) -> None:
    """Raise MismatchError if another program changed data or columns of a table that is not rebuilt."""
    for step, ledger in ledgers.items():
        if step in begin or ledger.table is None:
            continue
        refuse_foreign_changes(ledger)
        columns = {field.name: field.type for field in ledger.table.schema}
        for column in spec_of(step).schema(recipe):
            if columns.get(column.name) != column.type:
                raise MismatchError(
                    f"another program has changed or removed the column {column.name!r}",
                    where=ledger.url,
                    hint="pass --rebuild to make the table again",
                )


def _is_unfilled(recipe: Recipe, name: str) -> bool:
    spec = spec_of(name)
    return name not in recipe.steps and not (spec.is_index or spec.from_training)


def check_drops(plan: Plan, drops: Drops) -> None:
    """Raise MismatchError if rows are dropped, and tables that the recipe does not fill depend on them."""
    if not plan.unfilled or not (plan.changed or drops.rebuild):
        return
    name, lake = plan.unfilled[0], plan.recipe.lake
    hint = "use another --lake, or the recipe that filled all tables"
    if schemas.is_tokens(name):
        drop = f"`etl drop {lake} {name} --yes`"
        hint = f"add its `tokenize` to the recipe, or remove the table: {drop}"
    raise MismatchError(
        f"the lake has the table {name!r}, which this recipe does not fill",
        where=plan.recipe.table_url(name),
        hint=hint,
    )


def _tables_to_begin(
    recipe: Recipe, ledgers: Mapping[Step, Ledger], *, rebuild: bool
) -> tuple[Step, ...]:
    others = [step for step in recipe.steps if ledgers[step].is_other_recipe]
    if others and not any(ledger.has_rows() for ledger in ledgers.values()):
        rebuild = True  # nothing is lost: the lake adopts the recipe
    if others and not rebuild:
        raise other_recipe_error(recipe, ledgers[others[0]], others[0])
    begin = {step for step in recipe.steps if ledgers[step].table is None}
    if rebuild:  # the tables that differ and all made from them; all tables if none differs
        first = {*others} or {"documents"}
        first |= {"documents"} if "texts" in first else set()  # which are read together
        begin |= {s for s in recipe.steps if s in first or first.intersection(spec_of(s).made_from)}
    return tuple(step for step in recipe.steps if step in begin)


def other_recipe_error(
    recipe: Recipe, ledger: Ledger, step: Step, advice: str | None = None
) -> MismatchError:
    """Return the error for a table that another recipe made, with ``advice`` as its hint."""
    assert ledger.table is not None
    record = find_record(ledger.table)
    changes: Iterable[str] = ()
    if record is not None:
        old, new = _content(record.canonical, recipe), _content(recipe.canonical(), recipe)
        changes = differences(old, new)
    shown = "; ".join(islice(changes, 5)) or "the recipe's fingerprint differs"
    what = f"the table {step!r} was created by a different recipe ({shown})"
    hint = "use another --lake, or pass --rebuild (older versions stay readable)"
    if advice is not None:
        hint = advice
    elif schemas.is_tokens(step):
        hint = f"give the new tokenizer another `name`, which makes another table; else {hint}"
    elif step == "documents":
        hint = f"`etl plan RECIPE --apply-change` prints what a change does and costs; else {hint}"
    return MismatchError(what, where=ledger.url, hint=hint)


def _content(canonical: Mapping[str, Any], like: Recipe) -> dict[str, Any]:
    """Return the settings of a canonical recipe that decide which rows it makes."""
    source = {key: canonical["source"].get(key) for key in like.source.identity()}
    return {**canonical, "source": source, "name": None, "lake": None, "guard": None}
