"""Resolve the other lakes that a recipe deduplicates against.

Documents that another lake keeps are left out. A reference is resolved once, at the start of a run: the
version of its ``texts``, its duplicates, and its table ``keys`` if it has one. Its texts are not hashed
again, so its hashes and signatures must have been computed with the settings of the recipe.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import MismatchError, RecipeError
from etl.lake.commit_info import find_record
from etl.lake.keys_table import KeysTable, Kind
from etl.lake.ledger import Ledger
from etl.lake.open_table import find_table, open_table
from etl.lake.work_units import WorkUnit
from etl.recipe.recipe import Recipe
from etl.stages.against import Reference
from etl.stages.dedup_base import find_dedup_stage
from etl.stages.dedup_minhash import DedupMinhash
from etl.stages.document_columns import describing_stages


@dataclass(frozen=True)
class ReferenceLake:
    """Another lake at one version: its kept documents, and the kinds of duplicates to look up."""

    url: str
    kinds: tuple[str, ...]
    texts: Table
    duplicates: Ledger | None  # None if it does not deduplicate
    keys: KeysTable | None = None
    keyed: tuple[Kind, ...] = ()  # the kinds whose keys in ``keys`` match the recipe's

    def keyed_kinds(self, unit: WorkUnit) -> tuple[Kind, ...]:
        """Return the kinds for which the keys of a unit of work can be looked up."""
        return self.keyed if self.keys is not None and self.keys.has(unit.key) else ()

    def tables(self) -> Iterator[schemas.InputTable]:
        """Yield the tables that are read, with their versions, for the lineage."""
        keys = self.keys.ledger if self.keys is not None else None
        ledgers = [ledger for ledger in (self.duplicates, keys) if ledger is not None]
        for table in (self.texts, *(ledger.table for ledger in ledgers)):
            if table is not None:
                yield schemas.InputTable(name=table.url, url=table.url, version=table.version)


def open_reference_lakes(recipe: Recipe) -> list[ReferenceLake]:
    """Return the lakes that a recipe's deduplication stages name, in their current state.

    Raises RecipeError if a lake is the recipe's own, or is named with two versions; TableError if the lake
    or the version does not exist; MismatchError if its hashes or signatures differ from the recipe's.
    """
    by_url: dict[str, list[tuple[str, Reference]]] = {}
    for kind, references_of_kind in recipe.references.items():
        for reference in references_of_kind:
            by_url.setdefault(storage.normalize(reference.lake), []).append((kind, reference))
    for url, references in by_url.items():
        if recipe.lake is not None and url == storage.normalize(recipe.lake):
            hint = "remove it from `against`"
            raise RecipeError("a lake cannot be compared with itself", where=url, hint=hint)
        if len({reference.version for _, reference in references}) > 1:
            raise RecipeError("a lake is named with two versions", where=url, hint="name one")
    lakes = []
    for url, references in by_url.items():
        version = references[0][1].version
        texts = open_table(storage.join(url, "texts"), version)
        resolver = _Resolver(recipe, url, texts, is_pinned=version is not None)
        lakes.append(resolver.lake(tuple(kind for kind, _ in references)))
    return lakes


@dataclass(frozen=True)
class _Resolver:
    """Opens one lake for a recipe."""

    recipe: Recipe
    url: str
    texts: Table
    is_pinned: bool  # whether the recipe names the version

    def lake(self, kinds: tuple[str, ...]) -> ReferenceLake:
        """Return the lake; raise MismatchError if it does not match the recipe."""
        self._check(kinds)
        duplicates = self._ledger("duplicates")
        if duplicates is None:
            return ReferenceLake(self.url, kinds, self.texts, None)
        if self.is_pinned:
            self._check_generation()
        keys = KeysTable(duplicates)
        record = find_record(keys.ledger.table) if keys.fits and keys.ledger.table else None
        if record is None:
            return ReferenceLake(self.url, kinds, self.texts, duplicates)
        return ReferenceLake(self.url, kinds, self.texts, duplicates, keys, self._keyed(record))

    def _check(self, kinds: Sequence[str]) -> None:
        """Raise MismatchError if its hashes or signatures differ from the recipe's."""
        theirs = describing_stages(self._recipe(find_record(self.texts)).stages)
        identities = {stage.identity_key: stage.column_identity() for stage in theirs}
        for stage in describing_stages(self.recipe.stages):
            if not set(kinds) & set(stage.kinds):
                continue
            columns = ", ".join(stage.document_columns().names)
            if stage.identity_key not in identities:
                raise self._mismatch(f"its texts have no column {columns}")
            there, here = identities[stage.identity_key], stage.column_identity()
            if there != here:
                what = _differences(there, here)
                raise self._mismatch(
                    f"its column {columns} has other settings of {stage.kind}: {what}"
                )

    def _check_generation(self) -> None:
        head = Table.open(self.texts.url)
        before, now = (t.transactions().get("generation") or 1 for t in (self.texts, head))
        if before != now:
            raise MismatchError(
                f"its texts were rebuilt after version {self.texts.version}: "
                "the duplicates of that version are no longer known",
                where=self.url,
                hint=f"name a later version: `etl history {head.url}` lists them",
            )

    def _keyed(self, record: schemas.Lineage) -> tuple[Kind, ...]:
        """Return the kinds whose keys in its table ``keys`` match the recipe's keys."""
        theirs, mine = (
            find_dedup_stage(recipe.dedup_stages, DedupMinhash)
            for recipe in (self._recipe(record), self.recipe)
        )
        if theirs is None or mine is None or theirs.bands != mine.bands:
            return ("exact",)
        return ("exact", "near")

    def _ledger(self, name: str) -> Ledger | None:
        table = find_table(storage.join(self.url, name))
        if table is None:
            return None
        record = find_record(table)
        fingerprint = "" if record is None else record.fingerprint
        return Ledger(table.url, fingerprint=fingerprint, table=table)

    def _recipe(self, record: schemas.Lineage | None) -> Recipe:
        if record is None:
            raise self._mismatch("its texts were not made by a recipe")
        return Recipe.recorded(record.canonical, where=self.texts.url)

    def _mismatch(self, what: str) -> MismatchError:
        hint = "rebuild that lake with the settings of the recipe, or adapt the recipe to the lake"
        return MismatchError(what, where=self.url, hint=hint)


def _differences(there: Any, here: Any) -> str:
    """Describe how the settings of another lake differ from the recipe's settings.

    >>> _differences({"ngram": 5, "seed": 0}, {"ngram": 3, "seed": 0})
    'ngram 5 there, 3 here'
    """
    if not isinstance(there, Mapping):
        return f"{there} there, {here} here"
    return "; ".join(
        f"{name} {there[name]} there, {value} here"
        for name, value in here.items()
        if there[name] != value
    )
