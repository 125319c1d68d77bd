"""Open the ledgers of the tables of a recipe's lake."""

from collections.abc import Iterable

from etl import storage
from etl.lake.lake_epochs import all_ledgers
from etl.lake.ledger import Ledger
from etl.recipe.recipe import Recipe, Step


def open_ledgers(recipe: Recipe) -> dict[Step, Ledger]:
    """Open the ledgers of the tables that a recipe fills, in the order of steps."""
    # Tables made from others come first: what they hold is there when the others are opened.
    ledgers = {
        step: Ledger(recipe.table_url(step), fingerprint=recipe.fingerprint(step))
        for step in reversed(recipe.steps)
    }
    return {step: ledgers[step] for step in recipe.steps}


def open_all_ledgers(recipe: Recipe) -> dict[str, Ledger]:
    """Open the ledgers of all tables that exist in a recipe's lake."""
    ledgers = all_ledgers(storage.normalize(str(recipe.lake)), open_ledgers(recipe).values())
    return {name: ledger for name, ledger in ledgers.items() if ledger.table is not None}


def is_followed(ledgers: Iterable[Ledger]) -> bool:
    """Return whether all tables of a lake follow the last change of its recipe."""
    return len({ledger.change for ledger in ledgers}) <= 1
