"""Run the units of work of a step; report each that finishes, and quarantine those that fail."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from etl.compute.submit import map_unordered
from etl.errors import WriteError
from etl.job.progress import Progress
from etl.job.run_commits import UnitLocation
from etl.job.run_context import RunContext
from etl.lake.work_units import WorkResult, WorkUnit
from etl.recipe.recipe import Step
from etl.sources import Split


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of one step: a task, and the arguments for each unit, generated as they are needed.

    The first two arguments are the split or unit of work, and its key.
    """

    step: Step
    task: Callable[..., WorkResult]
    arguments: Iterable[tuple[Any, ...]]
    count: int
    label: str  # on the dashboard


@dataclass(frozen=True, slots=True)
class FinishedUnit:
    """A unit whose task has ended: its result, or None if it failed and is quarantined."""

    unit: Split | WorkUnit
    key: str
    result: WorkResult | None

    @property
    def source(self) -> str:
        """The input file of the unit."""
        return self.unit.source if isinstance(self.unit, WorkUnit) else self.unit.uri


def run_units(run: RunContext, work: Work) -> Iterator[FinishedUnit]:
    """Run units on the workers and yield them as they finish; quarantine units that fail.

    Raises WriteError: then the input is not at fault, and deduplication must not run without it.
    """
    progress, started = Progress(work.step, 0, work.count), time.monotonic()
    answers = map_unordered(
        run.client, work.task, work.arguments, label=work.label, time_limit=run.time_limit
    )
    with closing(answers):
        for (unit, key, *_), answer in answers:
            if isinstance(answer, WriteError):
                raise answer
            location, result = unit_location(unit), None
            if isinstance(answer, BaseException):
                run.commits.quarantine(work.step, location, answer)
            else:
                run.commits.clear_quarantine(work.step, location)
                result = answer
            progress = progress.after(result, seconds=time.monotonic() - started)
            run.report(progress)
            yield FinishedUnit(unit, key, result)


def unit_location(unit: Split | WorkUnit) -> UnitLocation:
    """Return the input file of a unit of work, and the part of it."""
    if isinstance(unit, WorkUnit):
        return unit.source, unit.key
    return unit.uri, "" if unit.stop is None else f"{unit.start}-{unit.stop}"
