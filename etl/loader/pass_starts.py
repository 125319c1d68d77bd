"""Where each pass over a dataset begins, agreed between a process and its DataLoader workers.

A pass reads from a position to the end of its epoch. After a complete pass, the next one begins the next
epoch. After a pass that was cut short, the next one continues behind the batch that was returned last. If the
readers of that pass ran ahead of the training loop, that batch is unknown, and the next pass is refused,
unless it shall repeat the samples.

A process shares a page of memory with its workers, old and new ones, in which each reader records that it has
ended. The first worker of a loader decides where a pass begins; the others wait for its decision, so that
they cannot differ. A process that was forked or spawned may be a worker, which reads the page of its parent,
or a rank, which needs another page: it has both.

A worker that resumes knows only how many steps it had returned itself. The sum over all workers is the step
at which the loader continues, which each of them computes from the records of all.
"""

import ctypes
import multiprocessing
import multiprocessing.util
import os
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawArray
from typing import Any

from torch.utils.data import get_worker_info

from etl.errors import LoaderError
from etl.loader.planned_passes import MAX_WORKERS, Planned, Resumed, Start, Worker
from etl.loader.ranks import Rank
from etl.loader.read_parts import (
    PAGE_VALUES,
    Place,
    TrainingPart,
    begin_part,
    cut_parts,
    from_page,
    to_page,
)
from etl.loader.steps import Steps

# Of the page. Position: the epoch, the first sample of the newest pass or of the next one, the sample after
# the batch that this process returned last, and whether a pass may begin where nothing is left of the epoch.
_OWNER, _EPOCH, _FIRST, _CONSUMED, _IS_SET, *_REST = range(19)
# The newest pass: its number, its readers, whether they run ahead, whether it followed a state at the end of
# an epoch, and its steps.
_PASS, _READERS, _RUNS_AHEAD, _MAY_BE_DISCARDED, *_REST = _REST
_STEPS = slice(_REST[0], _REST[0] + 5)  # as in ``_steps_as_numbers``
# The loader that has begun a pass last, whether it was refused, and how often the plan was changed.
_LOADER, _LOADER_PASS, _IS_REFUSED, _CHANGES, _HEADER = _REST[5:]
_ENDED, _RESUMED, _STEPS_DONE, _PER_WORKER = range(4)
_FIRST_PART = _HEADER + MAX_WORKERS * _PER_WORKER
# What the training has read, as states record it.
_PARTS = slice(_FIRST_PART, _FIRST_PART + PAGE_VALUES)
_WAIT_S = 600.0  # spawned workers import torch and the user's program first: seconds to minutes

_Page = ctypes.Array[Any]


class Passes:
    """The position of a dataset and its newest pass, in memory shared with the workers of this process.

    A copy, also a pickled one, begins at the same position and then has its own.
    """

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._page = _new_page(values)
        self._page_of_parent: _Page | None = None
        self._loader_pass = 0  # how many passes this process has begun as a worker
        multiprocessing.util.register_after_fork(self, Passes._leave_parent)

    @property
    def epoch(self) -> int:
        """The epoch of the newest pass, or of the next one after ``move``."""
        return int(self._values[_EPOCH])

    @property
    def consumed(self) -> int:
        """The sample of the epoch after the batch that this process has returned last."""
        return int(self._values[_CONSUMED])

    @property
    def runs_ahead(self) -> bool:
        """Whether the newest pass runs ahead of the training loop, so that ``consumed`` is not known."""
        return bool(self._values[_READERS]) and bool(self._values[_RUNS_AHEAD])

    @property
    def parts(self) -> list[TrainingPart]:
        """What the training has read, up to the batch that was returned last, as far as it is known."""
        values, parts = self._values, from_page(self._values[_PARTS])
        if not values[_READERS]:
            return parts
        epoch, known = int(values[_EPOCH]), int(values[_FIRST if self.runs_ahead else _CONSUMED])
        reached = (epoch + 1, 0) if self.has_ended else (epoch, known)
        return [*parts[:-1], TrainingPart.of(parts[-1].start, reached, parts[-1].size)]

    @property
    def steps(self) -> Steps | None:
        """The steps of the newest pass, for counting, or None if there was none."""
        batch_size, world_size, lanes, drop_last, multiple = self._values[_STEPS]
        if not batch_size:
            return None
        return Steps(
            batch_size=batch_size,
            rank=Rank(0, world_size),
            lanes=lanes,
            drop_last=bool(drop_last),
            multiple=multiple,
        )

    @property
    def has_ended(self) -> bool:
        """Whether all readers of the newest pass have returned their last batch."""
        values, readers = self._values, int(self._values[_READERS])
        return readers > 0 and all(
            values[_slot(reader, _ENDED)] == values[_PASS] for reader in range(readers)
        )

    def move(
        self,
        epoch: int,
        consumed: int,
        *,
        is_set: bool = False,
        parts: Sequence[TrainingPart] | None = None,
    ) -> None:
        """Begin the next pass at a position; ``is_set``: even if nothing is left of the epoch there.

        ``parts`` are what the training has read up to there, if it is another one.
        """
        values = self._values
        values[_PARTS] = to_page(self.parts if parts is None else parts)
        values[_EPOCH], values[_IS_SET], values[_READERS] = epoch, int(is_set), 0
        values[_FIRST] = values[_CONSUMED] = consumed

    @property
    def changes(self) -> int:
        """How often the plan of the samples was changed in this process, or in the one of its loader."""
        return int(self._values[_CHANGES])

    def count_change(self) -> None:
        """Count a change of the plan, which workers that have started do not know."""
        self._values[_CHANGES] += 1

    def keep_epoch(self) -> None:
        """Let the next pass read the rest of this epoch, even if nothing is left of it."""
        self._values[_IS_SET] = 1

    def record(self, consumed: int) -> None:
        """Record that this process has returned the samples of the epoch before one."""
        self._values[_CONSUMED] = consumed

    def begin(self, worker: Worker, planned: Planned, resumed: Resumed | None) -> Start | None:
        """Begin a pass in this reader, or return None if it is refused.

        A pass of no steps, after a state saved at the end of an epoch, moves to the next epoch.
        """
        self._loader_pass += 1
        # A loader that resumes continues after the steps of all its workers, which each must know: its own
        # turn depends on them.
        total = 0 if resumed is None else self._exchange_steps(worker, resumed.steps)
        # One reader decides. The position moves when it publishes its decision, so a second reader that
        # decided for itself could read the moved position and begin elsewhere.
        if worker.id == 0:
            if resumed is None:
                start, is_next_epoch = self._next_start(planned), False
            else:
                # A state may be saved after the last step of an epoch, before torchdata asked for the next.
                remaining = planned.count(resumed.epoch, resumed.first_sample)
                is_next_epoch = total >= remaining
                start = (resumed.epoch + 1, 0) if is_next_epoch else resumed[:2]
            parts = self.parts
            if resumed is not None:
                reached = resumed.first_sample + total * planned.steps.stride
                parts = cut_parts(resumed.parts, (resumed.epoch, reached))
            self._publish(worker, planned, start, parts)
            self._values[_MAY_BE_DISCARDED] = int(is_next_epoch)
        else:
            self._wait(lambda: self._is_published(worker))
        values = self._values
        if values[_IS_REFUSED]:
            return None
        # Within the epoch, a worker keeps its turn and continues after its own steps. If the loader goes on
        # to the next epoch, the turns start with the worker that comes next: after 3 steps of 2 workers,
        # worker 1.
        turn, done = worker.id, 0
        if resumed is not None:
            is_same = (values[_EPOCH], values[_FIRST]) == resumed[:2]
            turn = resumed.turn if is_same else (resumed.turn - total) % worker.count
            done = resumed.steps if is_same else 0
        return Start(int(values[_EPOCH]), int(values[_FIRST]), turn, done, int(values[_PASS]))

    def end(self, worker: Worker, number: int) -> None:
        """Record that a reader has returned its last batch of a pass."""
        self._values[_slot(worker.id, _ENDED)] = number

    def _next_start(self, planned: Planned) -> Place | None:
        """Return the epoch and the first sample of the next pass, or None to refuse it."""
        values = self._values
        epoch, first = int(values[_EPOCH]), int(values[_FIRST])
        if self.has_ended:
            return epoch + 1, 0
        # The pass was cut short. Its batches up to ``consumed`` are known to have reached the loop only if
        # nothing ran ahead of it.
        if not planned.repeats:
            if self.runs_ahead:
                # From the state of a complete pass, torchdata makes an iterator and discards it for another.
                return (epoch, first) if values[_MAY_BE_DISCARDED] else None
            first = int(values[_CONSUMED])
        # A state of the end of an epoch leaves no step: go on, unless ``set_epoch`` named this epoch.
        if first > 0 and not values[_IS_SET] and not planned.count(epoch, first):
            return epoch + 1, 0
        return epoch, first

    def _publish(
        self, worker: Worker, planned: Planned, start: Place | None, parts: Sequence[TrainingPart]
    ) -> None:
        """Write where the pass begins after the parts that were read, for the other workers."""
        values = self._values
        values[_IS_REFUSED] = int(start is None)
        if start is not None:
            is_complete = bool(parts) and not planned.count(*parts[-1].stop)
            values[_PARTS] = to_page(
                begin_part(parts, start, planned.steps.size, is_complete=is_complete)
            )
            if start != (values[_EPOCH], values[_FIRST]):
                values[_IS_SET] = 0
            values[_EPOCH], values[_FIRST], values[_CONSUMED] = *start, start[1]
            # A reader ends a pass by writing its number, so that records of earlier passes, also of workers
            # that still run, count for nothing.
            values[_PASS] += 1
            values[_READERS] = worker.count
            values[_RUNS_AHEAD] = int(planned.runs_ahead or worker.loader > 0)
            values[_STEPS] = _steps_as_numbers(planned.steps)
        values[_LOADER] = worker.loader
        values[_LOADER_PASS] = self._loader_pass  # last: the other workers wait for it

    def _is_published(self, worker: Worker) -> bool:
        newest = self._values[_LOADER : _LOADER_PASS + 1]
        return bool(newest == [worker.loader, self._loader_pass])

    def _exchange_steps(self, worker: Worker, steps: int) -> int:
        """Return the steps that all workers had returned before they resumed."""
        # The number of the loader marks the record as complete, so it is written after the steps.
        values = self._values
        values[_slot(worker.id, _STEPS_DONE)] = steps
        values[_slot(worker.id, _RESUMED)] = worker.loader
        others = range(worker.count)
        self._wait(lambda: all(values[_slot(w, _RESUMED)] == worker.loader for w in others))
        return sum(int(values[_slot(w, _STEPS_DONE)]) for w in others)

    @property
    def _values(self) -> _Page:
        """The page of this process or, in a worker, the page of the process that iterates the loader."""
        if get_worker_info() is None:
            if self._page[_OWNER] != os.getpid():  # after os.fork, which runs no hook
                self._leave_parent()
            return self._page
        # If the dataset was opened before os.fork, the page is not that of the process which has started this
        # worker, but of an ancestor with another position.
        parent, page = multiprocessing.parent_process(), self._page_of_parent
        if parent is None or page is None or page[_OWNER] != parent.pid:
            raise LoaderError(
                "the dataset was opened before os.fork, so that the workers of this process cannot share "
                "its position",
                hint="start processes with torch.multiprocessing, or open the dataset in each of them",
            )
        return page

    def _leave_parent(self) -> None:
        """Take another page in a forked process, and keep the page of its parent."""
        self._page_of_parent = self._page
        self._page = _new_page(_position(self._page))
        self._loader_pass = 0

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Copy the position; a process that is being spawned with the dataset gets this page, too."""
        shared = None if get_spawning_popen() is None else self._values
        return _restore, (_position(self._values), shared)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not is_done():
            if time.monotonic() > deadline:
                raise LoaderError(
                    f"the other workers of this DataLoader have not begun within {_WAIT_S:.0f} seconds",
                    hint="open one dataset for each DataLoader that is iterated at the same time",
                )
            time.sleep(0.001)


def _restore(values: list[int], page_of_parent: _Page | None) -> Passes:
    passes = Passes(values)
    passes._page_of_parent = page_of_parent  # noqa: SLF001 - of this module
    return passes


def _new_page(values: Iterable[int]) -> _Page:
    """Return a page of this process, which forked and spawned processes share."""
    page = RawArray(ctypes.c_int64, _PARTS.stop)
    for place, value in enumerate(values):
        page[place] = value
    page[_OWNER] = os.getpid()
    return page


def _position(page: _Page) -> list[int]:
    """Return the values of a page of the same position, as if its newest pass had one reader."""
    # A copy has no workers: one reader that has ended, or has not, represents all readers of the newest pass.
    values = list(page)
    others = slice(_HEADER + _PER_WORKER, _PARTS.start)
    values[others] = [0] * (others.stop - others.start)
    readers = values[_READERS]
    has_ended = all(page[_slot(reader, _ENDED)] == values[_PASS] for reader in range(readers))
    values[_READERS] = min(readers, 1)
    values[_HEADER + _ENDED] = values[_PASS] if has_ended else 0
    values[_LOADER] = values[_LOADER_PASS] = 0
    return values


def _steps_as_numbers(steps: Steps) -> list[int]:
    size, world_size = steps.batch_size, steps.rank.world_size
    return [size, world_size, steps.lanes, int(steps.drop_last), steps.multiple]


def _slot(worker: int, field: int) -> int:
    return _HEADER + worker * _PER_WORKER + field
