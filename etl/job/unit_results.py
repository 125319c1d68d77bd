"""Run the units of work of one step; quarantine those that fail, and batch the results for commits."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from etl.compute.submit import map_unordered
from etl.errors import WriteError
from etl.job.commit_policy import CommitPolicy
from etl.job.progress import Progress
from etl.job.run_commits import UnitLocation
from etl.job.run_context import RunContext
from etl.lake.work_units import WorkResult, WorkUnit
from etl.recipe.recipe import Step
from etl.sources import Split


@dataclass(frozen=True)
class Work:
    """The work of one step: a task and its units, which are generated as they are needed."""

    task: Callable[..., str]
    units: Iterable[tuple[Any, ...]]
    count: int
    label: str  # on the dashboard


def result_batches(
    run: RunContext, step: Step, work: Work
) -> Iterator[list[tuple[tuple[Any, ...], WorkResult]]]:
    """Run units and yield them with their results, one batch per commit; quarantine failed units."""
    finished: list[tuple[tuple[Any, ...], WorkResult]] = []
    policy, progress = CommitPolicy(), Progress(step, 0, work.count)
    begun = time.monotonic()
    answers = map_unordered(
        run.client, work.task, work.units, label=work.label, time_limit=run.time_limit
    )
    with closing(answers):
        for unit, answer in answers:
            location = unit_location(unit[0])
            if isinstance(answer, WriteError):
                # The input is not at fault: fail rather than deduplicate without it.
                if finished:
                    yield finished
                raise answer
            if isinstance(answer, BaseException):
                result = WorkResult(unit[1], location[0], failed=True)
                run.commits.put_aside(step, location, answer)
            else:
                result = WorkResult.from_json(answer)
                run.commits.clear(step, location)
            finished.append((unit, result))
            progress = progress.after(result, seconds=time.monotonic() - begun)
            run.report(progress)
            if policy.is_due(len(finished)):
                before = time.monotonic()
                yield finished
                policy.committed(seconds=time.monotonic() - before)
                finished = []
    if finished:
        yield finished


def unit_location(unit: Split | WorkUnit) -> UnitLocation:
    """Return the input file of a unit of work, and the part of it."""
    if isinstance(unit, WorkUnit):
        return unit.source, unit.key
    return unit.uri, "" if unit.stop is None else f"{unit.start}-{unit.stop}"
