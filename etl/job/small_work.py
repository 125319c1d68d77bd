"""Which work a thread of the command does, which costs less than workers that must start first."""

from collections.abc import Sequence
from typing import Final

from etl.job.plan import Plan
from etl.stages.dedup_base import DedupStage, find_cutting_stage

_DRIVER_BYTES: Final = 512 << 20
"""Of stored texts, chosen here: one thread compares their documents, at 30 us each, about as soon as workers
that must start first, and for less CPU time (``benchmarks/RESULTS.md``, Changes of a recipe)."""


def fits_driver(plan: Plan) -> bool:
    """Return whether the work is only to compare a few documents by stored hashes.

    Nothing is read that could crash a process, and no text is cut or tokenized.
    """
    units = plan.units
    is_more = len(plan.splits) or plan.doubts or plan.postponed or plan.others or units.untokenized
    stored_bytes = max(units.undecided_bytes, units.unkeyed_bytes)
    return not is_more and compares_in_driver(plan.recipe.dedup_stages, stored_bytes)


def compares_in_driver(stages: Sequence[DedupStage], stored_bytes: int) -> bool:
    """Return whether documents with so many bytes of stored texts are few enough, and no text is cut."""
    return find_cutting_stage(stages) is None and stored_bytes <= _DRIVER_BYTES
