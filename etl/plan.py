"""The plan of a run: the work that a recipe still needs, given what is already committed."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, tee

from etl import storage
from etl.compact import KeySet, Spilled
from etl.errors import MismatchError
from etl.key_table import KeyTable
from etl.ledger import Ledger, key_of
from etl.recipe import Recipe, Step
from etl.references import OtherLake, other_lakes
from etl.sources import Split, list_splits
from etl.table import Table


@dataclass(frozen=True, slots=True)
class Unit:
    """The kept rows of one split in ``documents``: the unit of work of the second pass."""

    key: str  # key of the split that wrote the rows
    source: str
    paths: tuple[str, ...]  # data files of ``documents``, in row order
    rows: int
    size: int  # bytes on disk


@dataclass(frozen=True)
class Plan:
    """The work of one run of a recipe: the tables to create or rebuild, and the splits to read."""

    recipe: Recipe
    ledgers: dict[Step, Ledger]
    begin: tuple[Step, ...]  # tables to create or rebuild
    splits: Spilled[Split]  # splits to read
    uncounted: Spilled[Split]  # all splits of the files whose records must be counted first
    done: int  # number of splits that were read by earlier runs
    changed: frozenset[str]  # input files whose rows are replaced
    others: tuple[OtherLake, ...] = ()  # other lakes to compare the documents with

    @property
    def is_rebuild(self) -> bool:
        """Whether the run rebuilds an existing table."""
        return any(self.ledgers[step].table is not None for step in self.begin)

    @cached_property
    def units(self) -> Spilled[Unit]:
        """The units that ``documents`` held when the plan was made."""
        table = self.ledgers["documents"].table
        is_new = table is None or "documents" in self.begin
        return Spilled(() if is_new or table is None else kept_units(table))

    def undecided(self) -> Iterator[Unit]:
        """Yield the units that are not deduplicated yet."""
        return self._open_units("duplicates")

    def untokenized(self) -> Iterator[Unit]:
        """Yield the units that are not tokenized yet."""
        return self._open_units("tokens")

    def unkeyed(self) -> Iterator[Unit]:
        """Yield the deduplicated units whose keys are not written yet."""
        ledger = self.ledgers["duplicates"]
        if "duplicates" in self.begin:
            return  # nothing is deduplicated yet
        keys = KeyTable(ledger)
        for unit in self.units:
            if ledger.is_done(ledger.key(unit.key)) and not keys.has(unit.key):
                yield unit

    def has_work(self) -> bool:
        """Return whether a run would change anything."""
        has_splits = len(self.splits) > 0
        return bool(self.begin) or has_splits or self._has_open_units() or self._is_stale()

    def _has_open_units(self) -> bool:
        open_units: list[Iterator[Unit]] = []
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
        live = KeySet(ledger.key(unit.key) for unit in self.units)
        return bool(stale_fragments(ledger, live))

    def _open_units(self, step: Step) -> Iterator[Unit]:
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
    others = other_lakes(recipe)
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
    splits = Spilled(list_splits(recipe.source))
    documents = ledgers["documents"]
    todo, changed = splits, frozenset[str]()
    if "documents" not in begin:
        changed = frozenset(s.uri for s in splits if documents.has_changed(s.uri, s.fingerprint))
        todo = Spilled(s for s in splits if not documents.is_done(split_key(documents, s)))
    if changed and not replace_changed:
        raise MismatchError(
            f"{len(changed)} input files have changed since their rows were committed",
            where=min(changed),
            hint="pass --replace-changed to replace the old rows with the new ones",
        )
    if changed and "duplicates" in ledgers:  # the replaced rows may be keepers of other files' rows
        begin = tuple(s for s in recipe.steps if s in begin or s != "documents")
    files = {split.uri for split in todo if split.first_row is None}
    uncounted = Spilled(split for split in splits if split.uri in files)
    done = len(splits) - len(todo)
    return Plan(recipe, ledgers, begin, todo, uncounted, done, changed, tuple(others))


def split_key(ledger: Ledger, split: Split) -> str:
    """Return the key of a split in ``documents``."""
    edition = ledger.edition(split.uri, split.fingerprint)
    return ledger.key(split.uri, split.fingerprint, edition, split.start, split.stop)


def kept_units(documents: Table) -> Iterator[Unit]:
    """Yield the kept rows of ``documents``, one unit per split, ordered by source and row."""
    columns = ("size", "rows", "partition.verdict", "min.source", "min.row")
    files = documents.files(*columns, by=("min.source", "min.row"))
    kept = (file for file in files if file["partition.verdict"] == "kept" and file["rows"])
    for key, group in groupby(kept, key=lambda file: key_of(file["path"])):
        split_files = list(group)
        yield Unit(
            key=key,
            source=split_files[0]["min.source"],
            paths=tuple(file["path"] for file in split_files),
            rows=sum(file["rows"] for file in split_files),
            size=sum(file["size"] for file in split_files),
        )


def stale_fragments(ledger: Ledger, live: Container[str]) -> dict[str, list[str]]:
    """Return the live data files with rows of units that are not in ``live``, by (first) input file."""
    if ledger.table is None:
        return {}
    stale: dict[str, list[str]] = {}
    files, same_files = tee(ledger.table.files("path", "min.source"))
    units = ledger.units_of(file["path"] for file in same_files)
    for file, keys in zip(files, units, strict=True):
        if any(key not in live for key in keys):
            stale.setdefault(file["min.source"], []).append(file["path"])
    return stale


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
    differences = []
    if record is not None:
        differences = list(differing(record["canonical"], recipe.canonical()))
    shown = "; ".join(differences[:5]) or "the recipe's fingerprint differs"
    return MismatchError(
        f"the table {step!r} was created by a different recipe ({shown})",
        where=ledger.url,
        hint="use another --lake, or pass --rebuild (older versions stay readable)",
    )


def differing(old: object, new: object, name: str = "") -> Iterator[str]:
    """Yield the differences between two canonical recipes, as ``key: old -> new``.

    >>> list(differing({"seed": 0}, {"seed": 1}))
    ['seed: 0 -> 1']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differing(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            kind = a.get("kind", index) if isinstance(a, dict) else index
            yield from differing(a, b, f"{name}.{kind}")
    elif old != new:
        yield f"{name}: {_short(old)} -> {_short(new)}"


def _short(value: object) -> str:
    text = (
        str([v.get("kind", v) if isinstance(v, dict) else v for v in value])
        if isinstance(value, list)
        else str(value)
    )
    return text if len(text) <= 80 else text[:77] + "..."
