"""Compare a recipe with its lake: a ``Plan`` of the tables to create and the splits to read."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice

from etl import storage
from etl.compact_collections import PackedKeySet, SpilledList
from etl.dedup.reference_lakes import ReferenceLake, open_reference_lakes
from etl.errors import MismatchError
from etl.lake.keys_table import KeysTable
from etl.lake.ledger import Ledger
from etl.lake.work_units import WorkUnit, kept_units, split_key, stale_data_files
from etl.recipe.diff import differences
from etl.recipe.recipe import Recipe, Step
from etl.sources import Split, list_splits
from etl.stages import DedupMinhash, Stage
from etl.stages.tokenize import Encoder


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

    def lines(self) -> Iterator[str]:
        """Yield the lines of a readable description of the plan."""
        recipe = self.recipe
        yield f"recipe      {recipe.name}  {recipe.fingerprint(recipe.steps[-1])[:12]}"
        for path in recipe.source.paths:
            yield f"source      {path}"
        yield f"lake        {recipe.lake}"
        size = sum(split.bytes for split in self.splits)
        yield f"splits      {len(self.splits)} to read ({size / 1e6:.1f} MB), {self.done} done"
        for step, ledger in self.ledgers.items():
            state = f"version {ledger.table.version}" if ledger.table else "does not exist"
            if step in self.begin:
                state += ", will be rebuilt" if ledger.table else ", will be created"
            stages = " -> ".join(s.kind for s in _stages(recipe, step)) or "no stages"
            yield f"{step:<11} {stages}; {state}"
        if recipe.minhash_stage is not None:
            yield from _curve(recipe.minhash_stage)
        if recipe.tokenize_stage is not None:
            reason = Encoder.of(recipe.tokenize_stage).fallback
            fallback = f"tokenizers, 30 to 90 times slower: {reason}"
            yield f"tokenizer   {'gigatoken' if reason is None else fallback}"
        for other in self.others:
            kinds = " and ".join(other.kinds)
            yield f"against     {other.url}, documents version {other.documents.version}: {kinds}"
        unkeyed = self.unkeyed() if "duplicates" in self.ledgers else ()
        if count := sum(1 for _ in unkeyed):
            yield f"keys        {count} deduplicated splits still need their keys"
        for uri in sorted(self.changed):
            yield f"replaces    {uri}"
        if not self.has_work():
            yield "nothing to do"

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
    recipe = recipe.located()
    for stage in recipe.stages:
        stage.check()
    others = open_reference_lakes(recipe)
    ledgers = {
        step: Ledger(recipe.table_url(step), fingerprint=recipe.fingerprint(step))
        for step in recipe.steps
    }
    begin = _tables_to_begin(recipe, ledgers, rebuild=rebuild)
    for step, ledger in ledgers.items():
        if step not in begin and (foreign := ledger.foreign_files()):
            raise MismatchError(
                f"{len(foreign)} data files of {step!r} were written by another program (OPTIMIZE?)",
                where=storage.join(ledger.url, foreign[0]),
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
    record = ledger.table.record()
    changes = [] if record is None else differences(record["canonical"], recipe.canonical())
    shown = "; ".join(islice(changes, 5)) or "the recipe's fingerprint differs"
    return MismatchError(
        f"the table {step!r} was created by a different recipe ({shown})",
        where=ledger.url,
        hint="use another --lake, or pass --rebuild (older versions stay readable)",
    )


def _curve(stage: DedupMinhash) -> Iterator[str]:
    r"""Yield the probability that a pair of documents is found and joined, by similarity.

    >>> print(*_curve(DedupMinhash(verify="exact")), sep="\n")
    near        14 bands of 8 rows: 452 bytes per document; joins 92.4% of pairs at similarity 0.80
      similarity   0.50   0.60   0.70   0.75   0.80   0.85   0.90   0.95
      found          5%    21%    56%    77%    92%    99%   100%   100%
      joined         0%     0%     0%     0%    92%    99%   100%   100%
    """
    points = stage.curve()
    threshold, size = stage.min_similarity, 4 * (1 + stage.permutations)
    yield (
        f"near        {stage.bands} bands of {stage.rows} rows: {size} bytes per document; "
        f"joins {stage.joined(threshold):.1%} of pairs at similarity {threshold:.2f}"
    )
    yield "  similarity" + "".join(f"{point:>7.2f}" for point, _, _ in points)
    yield "  found     " + "".join(f"{found:>7.0%}" for _, found, _ in points)
    yield "  joined    " + "".join(f"{joined:>7.0%}" for _, _, joined in points)


def _stages(recipe: Recipe, step: Step) -> tuple[Stage, ...]:
    match step:
        case "documents":
            return recipe.documents_stages
        case "duplicates":
            return recipe.dedup_stages
    return () if recipe.tokenize_stage is None else (recipe.tokenize_stage,)
