"""The progress of one step of a run: its finished units, and those that workers still run."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, Final, Self, TypeVar

from etl.compact_collections import SpilledList
from etl.compute.listener import Progress
from etl.job.run_context import RunContext
from etl.lake.work_units import WorkPart, WorkResult, WorkUnit
from etl.recipe.recipe import Step
from etl.sources import Split

Arguments = TypeVar("Arguments", bound=tuple[Any, ...])

_SECONDS: Final = 0.5  # between two reports of parts, each of which adds up all; chosen here
_MAX_SHARE: Final = 0.99  # of a unit that is not finished, whose size is an estimate


class StepProgress:
    """Counts the units of a step of a run, and reports the counts after each change.

    ``start`` has the totals of the step.
    """

    def __init__(self, run: RunContext, start: Progress) -> None:
        self._run = run
        self._finished = start
        self._started = self._reported = time.monotonic()
        self._num_bytes: dict[str, int] = {}  # of the units that have been submitted, by key
        self._parts: dict[str, WorkPart] = {}  # of the units that run, by key
        self._lock = Lock()
        run.report(start)

    @classmethod
    def of(
        cls,
        run: RunContext,
        step: Step,
        packs: SpilledList[tuple[Split, ...]] | SpilledList[tuple[WorkUnit, ...]],
    ) -> Self:
        """Begin to count the units of a step, given those that one task does together."""
        num_bytes = sum(unit_bytes(unit) for pack in packs for unit in pack)
        return cls(run, Progress(step, 0, sum(map(len, packs)), total_bytes=num_bytes))

    def note_submitted(
        self, packs: Iterable[Sequence[Arguments]]
    ) -> Iterator[tuple[Arguments, ...]]:
        """Yield the arguments of units by task as they are submitted: the unit, its key, and others."""
        for pack in packs:
            for each in pack:
                self._num_bytes[each[1]] = unit_bytes(each[0])
            yield tuple(pack)

    def add_part(self, fields: tuple[Any, ...]) -> None:
        """Replace the part of a running unit; called in another thread. Units of other runs are ignored."""
        part = WorkPart(*fields)
        with self._lock:
            if part.key not in self._num_bytes:
                return
            self._parts[part.key] = part
            if (now := time.monotonic()) - self._reported >= _SECONDS:
                self._reported = now
                self._run.report(self._with_parts())

    def add_finished(self, key: str, result: WorkResult | None) -> None:
        """Count a unit of work; its result is None if it failed."""
        with self._lock:
            num_bytes = self._num_bytes.pop(key)
            self._parts.pop(key, None)
            self._finished = add_unit(
                self._finished, result, num_bytes=num_bytes, workers=self._run.num_workers
            )
            self._run.report(self._with_parts())

    def drop(self, key: str) -> None:
        """Forget a unit that failed in a pack: it will be run again alone."""
        with self._lock:
            del self._num_bytes[key]
            self._parts.pop(key, None)

    def _with_parts(self) -> Progress:
        finished, parts = self._finished, self._parts.values()
        done = (min(part.share, _MAX_SHARE) * self._num_bytes[part.key] for part in parts)
        compiling = sum(part.compile_seconds for part in parts) / self._run.num_workers
        return replace(
            finished,
            done_bytes=finished.done_bytes + int(sum(done)),
            rows=finished.rows + sum(part.rows for part in parts),
            kept=finished.kept + sum(part.kept for part in parts),
            text_bytes=finished.text_bytes + sum(part.text_bytes for part in parts),
            seconds=time.monotonic() - self._started,
            compile_seconds=finished.compile_seconds + compiling,
            busy_seconds=(finished.busy_seconds or 0.0) + sum(part.seconds for part in parts),
            workers=self._run.num_workers,
        )


def add_unit(
    progress: Progress, result: WorkResult | None, *, num_bytes: int, workers: int
) -> Progress:
    """Return the progress after one more unit of work of so many bytes; None if the unit failed."""
    # A unit that could not be committed with its pack is done twice.
    progress = replace(
        progress,
        done=min(progress.done + 1, progress.total),
        done_bytes=min(progress.done_bytes + num_bytes, progress.total_bytes),
        workers=workers,
    )
    if result is None:
        return replace(progress, failed=progress.failed + 1)
    return replace(
        progress,
        rows=progress.rows + result.rows,
        kept=progress.kept + result.kept,
        text_bytes=progress.text_bytes + result.text_bytes,
        compile_seconds=progress.compile_seconds + result.compile_seconds / workers,
        busy_seconds=(progress.busy_seconds or 0.0) + sum(result.costs.values()),
    )


def unit_bytes(unit: Split | WorkUnit) -> int:
    """Return the bytes of a unit of work in the files that it is read from."""
    return unit.size if isinstance(unit, WorkUnit) else unit.bytes
