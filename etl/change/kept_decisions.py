"""Whether decisions on duplicates stay as they are when the recipe changes."""

from collections.abc import Mapping
from itertools import chain

from etl.change.refusals import changes_dedup
from etl.lake.commit_info import find_record
from etl.lake.ledger import Ledger
from etl.lake.unit_files import unit_files
from etl.recipe.recipe import Recipe
from etl.stages.dedup_exact import DedupExact
from etl.stages.dedup_minhash import DedupMinhash


def keeps_all(duplicates: Ledger | None, recipe: Recipe, sources: Mapping[str, str | None]) -> bool:
    """Return whether deduplication has the same settings, and prefers documents by the same values.

    ``sources`` are the stored columns of the new ones (``Judge.sources``).
    """
    if duplicates is None or duplicates.table is None:
        return True
    # The record of ``documents`` may name settings that were never applied: of a change that was killed,
    # after which the old recipe was run again.
    record = find_record(duplicates.table)
    if record is None or changes_dedup(record, recipe):
        return False
    read = {stage.keep_column for stage in recipe.dedup_stages} - {None}
    return all(sources.get(str(column)) == column for column in read)


def keeps_others(recipe: Recipe, ledgers: Mapping[str, Ledger]) -> bool:
    """Return whether documents that a change does not affect keep their decisions for certain."""
    duplicates, keys, stages = ledgers["duplicates"], ledgers.get("keys"), recipe.dedup_stages
    record = None if duplicates.table is None else find_record(duplicates.table)
    if record is None or changes_dedup(record, recipe):
        return False
    if not all(isinstance(stage, DedupExact | DedupMinhash) for stage in stages):
        return False
    # Values of a column may have changed, and with them which document is kept.
    if any(stage.keep_column is not None or stage.references() for stage in stages):
        return False
    # What a repair has dropped counts for the other documents of its arrival: a run first reads it again.
    if _lacks_rows(ledgers["documents"], ledgers["texts"]):
        return False
    # A kill between the commits of the two tables, or another program, may have left other keys.
    is_sound = keys is not None and not keys.is_other_recipe and keys.foreign_changes() is None
    return is_sound and keys is not None and keys.change == duplicates.change


def _lacks_rows(documents: Ledger, texts: Ledger) -> bool:
    """Return whether rows were dropped that the next run reads again if it finds them in the input."""
    if min(chain(documents.arrivals(), texts.arrivals()), default=0) >= 0:
        return False
    assert documents.table is not None
    keys = {texts.key(file["unit"]) for file in unit_files(documents.table)}
    lacks_texts = any(not texts.is_done(key) and texts.arrival_of(key) is not None for key in keys)
    return lacks_texts or documents.inputs.has_dropped()
