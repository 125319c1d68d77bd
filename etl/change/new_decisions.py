"""Decide again on the documents that a change of the recipe affects, and find what changes in the tables.

``duplicates`` and ``keys`` say which documents were decided on, ``documents`` and ``texts`` which are there
now. The difference shows what to decide again. Nothing is remembered of the change itself, so that a kill at
any moment does no harm.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from etl.change.decided_documents import DecidedDocuments, TableChange
from etl.change.kept_decisions import keeps_others
from etl.dedup.affected import find_affected
from etl.dedup.decide_again import decide_again
from etl.dedup.numbered_files import file_of
from etl.kernels.hashing.sorted_sets import among
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.ledger import Ledger
from etl.lake.work_units import WorkUnit, arrived_units
from etl.recipe.recipe import Recipe

_MAX_DOCUMENTS: Final = 1 << 17  # chosen here: they take about 100 MB
_MAX_SHARE: Final = 0.25  # chosen here: more documents are decided sooner by workers
_FEW: Final = 1 << 12  # chosen here: so many are decided here in any case


class NewDecisions(NamedTuple):
    """What changes in ``duplicates`` and in ``keys``."""

    duplicates: TableChange
    keys: TableChange


def decide_affected(
    recipe: Recipe, ledgers: Mapping[str, Ledger], kept: Mapping[str, pa.Table]
) -> NewDecisions | None:
    """Decide again on the affected documents, and write data files; None if all must be compared again.

    ``kept`` are the kept documents by unit of work (``kept_documents``), which ``texts`` has, too. All are
    compared again if decisions may change for another reason, or so many documents become duplicates that
    the guard of the recipe must look at them.
    """
    if not keeps_others(recipe, ledgers):
        return None
    units = _decided_units(*(ledgers[name] for name in ("texts", "duplicates", "keys")))
    if not units:
        return None
    lake = DecidedDocuments.of(recipe, ledgers, units, kept)
    limit = min(_MAX_DOCUMENTS, max(_FEW, int(len(lake.live) * _MAX_SHARE)))
    affected = find_affected(lake.live, lake.links, lake.index, lake.source, limit)
    if affected is None:
        return None
    arrivals = np.array([unit.arrival for unit in units], np.int64)
    documents = affected.documents.addresses
    pairs = decide_again(affected.documents, arrivals[file_of(documents)], lake.source)
    num_more = len(pairs) - np.count_nonzero(among(lake.links.documents, documents))
    if recipe.guard.max_share < 1 and num_more >= recipe.guard.min_documents:
        return None
    return NewDecisions(lake.change_duplicates(affected, pairs), lake.change_keys(affected, pairs))


def _decided_units(texts: Ledger, duplicates: Ledger, keys: Ledger) -> list[WorkUnit] | None:
    """Return the units of work to decide on, by arrival; None if all documents must be compared again.

    Later arrivals than those decided on are left to the run. A unit that had no documents when its arrival
    was decided may have some now.
    """
    units = sorted(arrived_units(texts, duplicates), key=lambda unit: unit.arrival)
    decisions = DedupDecisions(duplicates)
    newest = max((unit.arrival for unit in units if decisions.include(unit)), default=0)
    units = [unit for unit in units if unit.arrival <= newest]
    for unit in units:
        if decisions.include(unit):
            is_sound = keys.is_done(keys.key(unit.key))
        else:  # a repair has undone its decisions, if there were any
            is_sound = duplicates.arrival_of(duplicates.key(unit.key)) is None
        if not is_sound:
            return None
    return units
