"""Run the units of work of a step; report each that finishes, and quarantine those that fail."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from etl.compute.dask_tasks import map_unordered
from etl.errors import ClusterError, RecipeError, WriteError
from etl.job.failed_units import UnitLocation
from etl.job.first_failures import FirstFailures
from etl.job.run_context import RunContext
from etl.job.shipped_files import OnWorker
from etl.job.step_progress import StepProgress
from etl.job.tasks import ReadSplit, TokenizeUnit
from etl.lake.work_units import WorkResult, WorkUnit
from etl.recipe.recipe import Step
from etl.sources import Split

Unit = TypeVar("Unit", Split, WorkUnit)


@dataclass(frozen=True, kw_only=True)
class Work(Generic[Unit]):
    """The work of one step: a task, and its arguments for each unit, generated as they are needed.

    The arguments are the unit, its key, and whatever else the task needs.
    """

    step: Step
    task: ReadSplit | TokenizeUnit
    arguments: Iterable[Sequence[tuple[Unit, str, Any]]]  # by task
    progress: StepProgress
    label: str  # on the dashboard


@dataclass(frozen=True, slots=True)
class FinishedUnit(Generic[Unit]):
    """A unit whose task has ended: its result, or None if it failed.

    A unit that failed in a pack must be run again alone; any other is quarantined.
    """

    unit: Unit
    key: str
    result: WorkResult | None
    in_pack: bool = False


def run_units(run: RunContext, work: Work[Unit]) -> Iterator[list[FinishedUnit[Unit]]]:
    """Run units on the workers and yield them by task as they finish; quarantine units that fail.

    Raises RecipeError (of a list or model that a stage reads, for example), WriteError and ClusterError: then
    the input is not at fault, and deduplication must not run without it. Raises QuarantineError if the first
    units of a table without rows all fail in the same way.
    """
    progress = work.progress
    first = FirstFailures(is_empty=not run.ledgers[work.step].has_rows())
    task = OnWorker(work.task, run.files)
    arguments = progress.note_submitted(work.arguments)
    answers = map_unordered(
        run.job.client, task, arguments, label=work.label, time_limit=run.job.time_limit
    )
    with closing(answers):
        for pack, answer in answers:
            if isinstance(answer, RecipeError | WriteError | ClusterError):
                raise answer
            results = [None] * len(pack) if isinstance(answer, BaseException) else answer
            finished = []
            for (unit, key, *_), result in zip(pack, results, strict=True):
                finished.append(FinishedUnit(unit, key, result, len(pack) > 1))
                if result is not None:
                    run.failed.clear(work.step, unit_location(unit))
                    first.add_success()
                elif len(pack) > 1:
                    progress.drop(key)
                    continue
                else:
                    assert isinstance(answer, BaseException), "a unit has no result"
                    note = run.failed.add(work.step, unit_location(unit), answer)
                    first.add_failure(note, answer, lake=str(run.recipe.lake))
                progress.add_finished(key, result)
            yield finished


def unit_location(unit: Split | WorkUnit) -> UnitLocation:
    """Return the input file of a unit of work, and the part of it."""
    if isinstance(unit, WorkUnit):
        return unit.source, unit.key
    stop = "end" if unit.stop is None else unit.stop
    return unit.uri, "" if unit.is_whole else f"{unit.start}-{stop}"
