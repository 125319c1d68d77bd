"""Estimate what a change of the recipe costs, and say what to do about it.

Core-seconds of a change = seconds per document x documents + seconds of reading input again + the share of
documents that are judged from their text x the core-seconds of making the tables again. These come from
the formula of ``etl.job.cost_estimate``, and so does the uncertainty: a factor of 2.
"""

from typing import Final

from etl.change.apply_change import LakeChange
from etl.job.cost_estimate import MEGABYTES_PER_SECOND, estimate_cost
from etl.job.plan import Drops, make_plan
from etl.lake.stage_costs import READ

_SECONDS_PER_ROW: Final = 2e-5
"""Of a document in all tables, whether it changes or not: ``benchmarks/RESULTS.md``, Changes of a recipe."""


def advise(change: LakeChange) -> str:
    """Return what a change does and costs, or why it cannot be applied, and what to do.

    Lists the source. Raises SourceError if that cannot be listed.
    """
    plan = make_plan(change.recipe, Drops(rebuild=True))
    rebuild = estimate_cost(plan)
    seconds, of_rebuild = (
        rebuild.usage.core_seconds,
        f"about {rebuild.usage.core_seconds:,.0f} core-seconds",
    )
    otherwise = "use another --lake, or pass --rebuild"
    if change.refusals:
        return f"{otherwise} ({of_rebuild}; older versions stay readable)"
    expansion = rebuild.text_bytes / max(plan.num_bytes, 1)
    reading = change.num_bytes * expansion / MEGABYTES_PER_SECOND[READ] / 1e6
    judging = seconds * change.num_judged / max(change.num_rows, 1)
    price = change.num_rows * _SECONDS_PER_ROW + reading + judging
    return (
        f"change: {'; '.join(change.lines())}; about {price:,.1f} core-seconds. Pass --apply-change, or "
        f"{otherwise} ({of_rebuild}; older versions stay readable)"
    )
