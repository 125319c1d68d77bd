"""Open the ledgers of the tables of a recipe's lake."""

from collections.abc import Iterable, Mapping
from typing import Any

from etl import schemas, storage
from etl.delta.table import Table
from etl.lake.commit_info import find_record
from etl.lake.keys_table import KeysTable
from etl.lake.lake_epochs import all_ledgers
from etl.lake.ledger import Ledger
from etl.lake.stage_costs import TOKENIZE
from etl.lake.table_names import token_tables
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
    existing = {name: ledger for name, ledger in ledgers.items() if ledger.table is not None}
    if {"duplicates", "keys"} <= existing.keys():
        existing["keys"] = KeysTable(existing["duplicates"], existing["keys"].table).ledger
    for name in token_tables(existing):
        table = existing[name].table
        assert table is not None
        if name not in recipe.steps and (tokenizer := tokenizer_of(table)) is not None:
            # It follows changes of the recipe, too: with the tokenizer that it has.
            fingerprint = recipe.token_fingerprint(name, tokenizer)
            existing[name] = Ledger(table.url, fingerprint=fingerprint, table=table)
    return existing


def tokenizer_of(table: Table) -> dict[str, Any] | None:
    """Return the identity of the stage that fills a table of tokens; None if no recipe made it."""
    record, name = find_record(table), table.url.rpartition("/")[2]
    stages = [] if record is None else record.canonical["stages"]
    return next((stage for stage in stages if _fills(stage, name)), None)


def _fills(stage: Mapping[str, Any], name: str) -> bool:
    return stage["kind"] == TOKENIZE and schemas.tokens_of(stage["name"]) == name


def is_other_recipe(recipe: Recipe, ledgers: Mapping[str, Ledger]) -> bool:
    """Return whether a recipe judges or deduplicates otherwise than the recipe that a lake has.

    ``ledgers`` is the result of ``open_all_ledgers``. After an interrupted change, it has the new recipe.
    """
    documents, duplicates = ledgers["documents"], ledgers.get("duplicates")
    if documents.is_other_recipe or duplicates is None or "duplicates" not in recipe.steps:
        return documents.is_other_recipe
    if not duplicates.is_other_recipe or duplicates.change == documents.change:
        return duplicates.is_other_recipe
    record = None if documents.table is None else find_record(documents.table)
    return record is None or record.fingerprints.get("duplicates") != duplicates.fingerprint


def is_followed(ledgers: Iterable[Ledger]) -> bool:
    """Return whether all tables of a lake follow the last change of its recipe."""
    return len({ledger.change for ledger in ledgers}) <= 1
