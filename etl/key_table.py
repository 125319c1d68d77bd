"""The table ``keys`` of a lake: whether it fits the decisions, and whose keys it holds.

It is an index and no step of a recipe: it is made of ``documents`` and ``duplicates`` alone, and made anew
where it does not fit these, or is not there.
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
    """The table ``keys`` beside a table ``duplicates``, as it is now.

    Its fingerprint names the recipe and the generation of ``duplicates``: begun anew, these take the keys
    with them.
    """

    def __init__(self, duplicates: Ledger) -> None:
        lake, _, _ = duplicates.url.rpartition("/")
        self.ledger = Ledger(storage.join(lake, "keys"), fingerprint=duplicates.key("keys"))
        other = self.ledger.table is None or self.ledger.is_other_recipe
        self.fits = not other and not self.ledger.foreign_files()

    def begin(self, lineage: Callable[[int], Mapping[str, Any]]) -> None:
        """Create the table, or begin it anew: look at it again then; ``lineage`` as for ``Ledger.begin``."""
        self.ledger.begin(schemas.KEYS, KEYS, lineage)

    def has(self, unit: str) -> bool:
        """Whether the keys of a unit of ``documents``, named by its key, stand in the table."""
        return self.fits and self.ledger.is_done(self.ledger.key(unit))
