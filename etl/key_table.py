"""The ``keys`` table of a lake: an index of the keys by which duplicates are found.

It is an index, not a step of a recipe: it is derived from ``documents`` and ``duplicates`` alone, and rebuilt
if it is missing or does not match them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import schemas
from etl import storage
from etl.fragment import KEYS
from etl.ledger import Ledger

Kind = Literal["exact", "near"]
KINDS: Final[tuple[Kind, ...]] = ("exact", "near")
"""The kinds of duplicates, and of keys."""


class KeyTable:
    """The current ``keys`` table of a lake, next to the table ``duplicates``.

    Its fingerprint includes the recipe and the generation of ``duplicates``: rebuilding that table also
    invalidates the keys.
    """

    def __init__(self, duplicates: Ledger) -> None:
        lake, _, _ = duplicates.url.rpartition("/")
        self.ledger = Ledger(storage.join(lake, "keys"), fingerprint=duplicates.key("keys"))
        is_other = self.ledger.table is None or self.ledger.is_other_recipe
        self.fits = not is_other and not self.ledger.foreign_files()

    def begin(self, lineage: Callable[[int], Mapping[str, Any]]) -> None:
        """Create or rebuild the table as ``Ledger.begin`` does; create a new KeyTable afterwards."""
        self.ledger.begin(schemas.KEYS, KEYS, lineage)

    def has(self, unit: str) -> bool:
        """Return whether the table holds the keys of a unit of ``documents``, given the unit's key."""
        return self.fits and self.ledger.is_done(self.ledger.key(unit))
