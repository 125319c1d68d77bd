"""A recipe and what is committed already -> what is left to do. Printable, and no Dask."""

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
    """The kept rows of one split of the input, as ``documents`` holds them: the second pass's work."""

    key: str  # of the split that wrote them
    source: str
    paths: tuple[str, ...]  # data files of ``documents``, in the order of their rows
    rows: int
    size: int  # bytes on disk


@dataclass(frozen=True)
class Plan:
    """What a run of a recipe will do: the tables to begin, and the splits to read."""

    recipe: Recipe
    ledgers: dict[Step, Ledger]
    begin: tuple[Step, ...]  # tables that are created, or begun anew
    splits: Spilled[Split]  # to read
    uncounted: Spilled[Split]  # all splits of the files whose records must be counted first
    done: int  # splits that are read already
    changed: frozenset[str]  # input files whose rows are replaced
    others: tuple[OtherLake, ...] = ()  # lakes that the documents are compared with

    @property
    def is_rebuild(self) -> bool:
        """Whether a table that exists is begun anew."""
        return any(self.ledgers[step].table is not None for step in self.begin)

    @cached_property
    def units(self) -> Spilled[Unit]:
        """The kept rows that ``documents`` held when the plan was made."""
        table = self.ledgers["documents"].table
        is_new = table is None or "documents" in self.begin
        return Spilled(() if is_new or table is None else kept_units(table))

    def undecided(self) -> Iterator[Unit]:
        """The units that deduplication has not looked at yet."""
        return self._open_units("duplicates")

    def untokenized(self) -> Iterator[Unit]:
        """The units whose tokens are not written yet."""
        return self._open_units("tokens")

    def unkeyed(self) -> Iterator[Unit]:
        """The units that are decided, and whose keys are not written yet."""
        ledger = self.ledgers["duplicates"]
        if "duplicates" in self.begin:
            return  # nothing is decided
        keys = KeyTable(ledger)
        for unit in self.units:
            if ledger.is_done(ledger.key(unit.key)) and not keys.has(unit.key):
                yield unit

    def has_work(self) -> bool:
        """Whether a run would change anything."""
        has_splits = len(self.splits) > 0
        return bool(self.begin) or has_splits or self._has_open_units() or self._is_stale()

    def _has_open_units(self) -> bool:
        found: list[Iterator[Unit]] = []
        if "duplicates" in self.ledgers:
            found += [self.undecided(), self.unkeyed()]
        if "tokens" in self.ledgers:
            found += [self.untokenized()]
        return any(True for _ in chain(*found))

    def _is_stale(self) -> bool:
        """Whether tokens stand of documents that were replaced by others."""
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
    """List the source, look at the lake, and say what is left to do.

    Raises MismatchError if the lake holds rows of another recipe (unless ``rebuild``) or of an earlier
    content of an input file (unless ``replace_changed``), SourceError if the source matches nothing.
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
                hint="restore the version before, or --rebuild; rows can not be traced to work done",
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
            hint="--replace-changed puts the new rows in place of the old ones",
        )
    if changed and "duplicates" in ledgers:  # other files' keepers may be among the rows that go
        begin = tuple(s for s in recipe.steps if s in begin or s != "documents")
    files = {split.uri for split in todo if split.first_row is None}
    uncounted = Spilled(split for split in splits if split.uri in files)
    done = len(splits) - len(todo)
    return Plan(recipe, ledgers, begin, todo, uncounted, done, changed, tuple(others))


def split_key(ledger: Ledger, split: Split) -> str:
    """The key of a split in ``documents``."""
    edition = ledger.edition(split.uri, split.fingerprint)
    return ledger.key(split.uri, split.fingerprint, edition, split.start, split.stop)


def kept_units(documents: Table) -> Iterator[Unit]:
    """The kept rows of ``documents`` by the split that wrote them, in the order of their addresses."""
    columns = ("size", "rows", "partition.verdict", "min.source", "min.row")
    files = documents.files(*columns, by=("min.source", "min.row"))
    rows = (row for row in files if row["partition.verdict"] == "kept" and row["rows"])
    for key, group in groupby(rows, key=lambda row: key_of(row["path"])):
        of_split = list(group)
        yield Unit(
            key=key,
            source=of_split[0]["min.source"],
            paths=tuple(row["path"] for row in of_split),
            rows=sum(row["rows"] for row in of_split),
            size=sum(row["size"] for row in of_split),
        )


def stale_fragments(ledger: Ledger, live: Container[str]) -> dict[str, list[str]]:
    """The live data files with rows of a unit of work that is no longer there, by (first) input file."""
    if ledger.table is None:
        return {}
    found: dict[str, list[str]] = {}
    files, again = tee(ledger.table.files("path", "min.source"))
    units = ledger.units_of(file["path"] for file in again)
    for file, keys in zip(files, units, strict=True):
        if any(key not in live for key in keys):
            found.setdefault(file["min.source"], []).append(file["path"])
    return found


def _tables_to_begin(
    recipe: Recipe, ledgers: dict[Step, Ledger], *, rebuild: bool
) -> tuple[Step, ...]:
    others = [step for step in recipe.steps if ledgers[step].is_other_recipe]
    if others and not rebuild:
        raise _mismatch(recipe, ledgers[others[0]], others[0])
    if rebuild:  # from the first table that differs on, or all of them
        first = recipe.steps.index(others[0]) if others else 0
        return tuple(
            s for i, s in enumerate(recipe.steps) if i >= first or ledgers[s].table is None
        )
    return tuple(step for step in recipe.steps if ledgers[step].table is None)


def _mismatch(recipe: Recipe, ledger: Ledger, step: Step) -> MismatchError:
    assert ledger.table is not None
    found = ledger.table.record()
    differences = []
    if found is not None:
        differences = list(differing(found["canonical"], recipe.canonical()))
    shown = "; ".join(differences[:5]) or "the recipe's fingerprint differs"
    return MismatchError(
        f"the table {step!r} was made by another recipe ({shown})",
        where=ledger.url,
        hint="use another --lake, or --rebuild to begin a new version (older ones stay readable)",
    )


def differing(old: object, new: object, name: str = "") -> Iterator[str]:
    """Where two canonical recipes differ, as ``key: old -> new``.

    >>> list(differing({"seed": 0}, {"seed": 1}))
    ['seed: 0 -> 1']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differing(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (a, b) in enumerate(zip(old, new, strict=True)):
            kind = a.get("kind", place) if isinstance(a, dict) else place
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
