"""Other lakes that a recipe's documents are compared with: what they keep is left out.

A reference is looked up once, as a run begins: the version of its ``documents``, what is a duplicate there,
and its table ``keys`` if it has one. Its texts are not hashed again, so that its hashes and signatures must
be made as the recipe makes its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import schemas
from etl import storage
from etl.errors import MismatchError, RecipeError
from etl.key_table import KINDS, KeyTable, Kind
from etl.ledger import Ledger
from etl.recipe import Recipe
from etl.stages.against import Reference
from etl.table import Table


@dataclass(frozen=True)
class OtherLake:
    """Another lake at one version: what it keeps, and for which kinds of duplicates it is asked."""

    url: str
    kinds: tuple[Kind, ...]
    documents: Table
    duplicates: Ledger | None  # None: it keeps all that its filters keep
    keys: KeyTable | None = None
    keyed: tuple[Kind, ...] = ()  # the kinds whose keys in ``keys`` are made as the recipe's are

    def keyed_kinds(self, unit: str) -> tuple[Kind, ...]:
        """The kinds of which the keys of a unit of ``documents``, named by its key, can be looked up."""
        return self.keyed if self.keys is not None and self.keys.has(unit) else ()

    def tables(self) -> Iterator[schemas.InputTable]:
        """What is read of it, with the versions, for the lineage."""
        keys = self.keys.ledger if self.keys is not None else None
        ledgers = [ledger for ledger in (self.duplicates, keys) if ledger is not None]
        for table in (self.documents, *(ledger.table for ledger in ledgers)):
            if table is not None:
                yield schemas.InputTable(name=table.url, url=table.url, version=table.version)


def other_lakes(recipe: Recipe) -> list[OtherLake]:
    """The lakes that a recipe's deduplication stages name, as they are now.

    Raises RecipeError if a lake is the recipe's own, or is named with two versions; TableError if there
    is no such lake or version; MismatchError if its hashes or signatures are not those of the recipe.
    """
    found: dict[str, list[tuple[Kind, Reference]]] = {}
    for kind in KINDS:
        for reference in recipe.references.get(kind, ()):
            found.setdefault(storage.normalize(reference.lake), []).append((kind, reference))
    for url, named in found.items():
        if recipe.lake is not None and url == storage.normalize(recipe.lake):
            raise RecipeError("a lake is compared with itself", where=url, hint="leave it out")
        if len({reference.version for _, reference in named}) > 1:
            raise RecipeError("a lake is named with two versions", where=url, hint="choose one")
    lakes = []
    for url, named in found.items():
        version = named[0][1].version
        documents = Table.open(storage.join(url, "documents"), version)
        look = _Look(recipe, url, documents, is_pinned=version is not None)
        lakes.append(look.lake(tuple(kind for kind, _ in named)))
    return lakes


@dataclass(frozen=True)
class _Look:
    """Looks at one lake for a recipe."""

    recipe: Recipe
    url: str
    documents: Table
    is_pinned: bool  # whether the recipe names the version

    def lake(self, kinds: tuple[Kind, ...]) -> OtherLake:
        """The lake, if it fits."""
        self._check(kinds)
        duplicates = self._ledger("duplicates")
        if duplicates is None:
            return OtherLake(self.url, kinds, self.documents, None)
        if self.is_pinned:
            self._check_generation()
        keys = KeyTable(duplicates)
        record = keys.ledger.table.record() if keys.fits and keys.ledger.table else None
        if record is None:
            return OtherLake(self.url, kinds, self.documents, duplicates)
        return OtherLake(self.url, kinds, self.documents, duplicates, keys, self._keyed(record))

    def _check(self, kinds: Sequence[Kind]) -> None:
        """Raise MismatchError if what stands there is not made as the recipe makes it."""
        theirs = self._recipe(self.documents.record())
        mine = self.recipe
        if "exact" in kinds and theirs.hash_normalization != mine.hash_normalization:
            raise self._mismatch(
                f"its texts are hashed with normalize: {theirs.hash_normalization}, "
                f"the recipe's with {mine.hash_normalization}"
            )
        if "near" not in kinds or mine.minhash_stage is None:
            return
        if theirs.minhash_stage is None:
            raise self._mismatch("its documents have no signatures")
        others = theirs.minhash_stage.signature_identity()
        differing = [
            f"{name} {others[name]} there, {value} here"
            for name, value in mine.minhash_stage.signature_identity().items()
            if others[name] != value
        ]
        if differing:
            raise self._mismatch(f"its signatures are others ({'; '.join(differing)})")

    def _check_generation(self) -> None:
        head = Table.open(self.documents.url)
        before, now = (t.transactions().get("generation") or 1 for t in (self.documents, head))
        if before != now:
            raise MismatchError(
                f"its documents were begun anew since version {self.documents.version}: "
                "what was a duplicate there is not known any more",
                where=self.url,
                hint="name a later version: see `etl history`",
            )

    def _keyed(self, record: dict[str, Any]) -> tuple[Kind, ...]:
        """The kinds of keys in its table ``keys`` that are those of the recipe."""
        theirs, mine = self._recipe(record).minhash_stage, self.recipe.minhash_stage
        if theirs is None or mine is None or theirs.bands != mine.bands:
            return ("exact",)
        return ("exact", "near")

    def _ledger(self, name: str) -> Ledger | None:
        url = storage.join(self.url, name)
        if not Table.exists(url):
            return None
        record = Table.open(url).record()
        return Ledger(url, fingerprint="" if record is None else str(record["fingerprint"]))

    def _recipe(self, record: dict[str, Any] | None) -> Recipe:
        if record is None:
            raise self._mismatch("its documents were not made by a recipe")
        return Recipe.recorded(record["canonical"], where=self.documents.url)

    def _mismatch(self, what: str) -> MismatchError:
        hint = "make it again with the settings of the recipe, or give the recipe those of the lake"
        return MismatchError(what, where=self.url, hint=hint)
