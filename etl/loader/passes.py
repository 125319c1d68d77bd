"""Where each pass over a dataset begins, agreed between a process and its DataLoader workers.

A pass reads from a position to the end of its epoch. The next pass begins where the last one did, unless all
its readers have returned their last batch: then it begins the next epoch. This process and its workers, old
and new ones, share a page of memory in which each reader records that it has ended. The first worker of a
loader decides where a pass begins; the others wait for its decision, so that they cannot differ. Ranks that
were forked or spawned with the dataset share its memory too, so each process that runs loaders has its page.

A worker that resumes knows only how many steps it had returned itself. Together these give the step at which
the loader continues, which all workers compute from each other's records.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from mmap import PAGESIZE, mmap
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from etl.errors import LoaderError
from etl.loader.ranks import process_rank

_OWNER, _EPOCH, _FIRST, _IS_SET, _PASS, _LOADER, _LOADER_PASS, _READERS, _HEADER = range(9)
_ENDED, _RESUMED, _STEPS, _PER_WORKER = range(4)
_PAGES = 256  # 1 MB; a machine has fewer ranks
_CLAIM_S = 0.002  # two processes may claim a page at once: the later one keeps it
_MAX_WORKERS = (PAGESIZE // 8 - _HEADER) // _PER_WORKER  # 168 for pages of 4 kB
_WAIT_S = 600.0  # spawned workers import torch and the user's program first: seconds to minutes


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A reader of a pass: a DataLoader worker, or this process (the only reader, 0 of 1)."""

    id: int
    count: int
    loader: int  # the same number for all workers of a loader's iterator; 0: not a worker

    @staticmethod
    def current() -> "Worker":
        """Return the reader that this process is.

        Workers of an iterator are started one after the other, so their process numbers are consecutive.
        """
        info: Any = get_worker_info()
        if info is None:
            return Worker(id=0, count=1, loader=0)
        if info.num_workers > _MAX_WORKERS:
            raise LoaderError(
                f"a DataLoader has {info.num_workers} workers, but at most {_MAX_WORKERS} are supported"
            )
        number = multiprocessing.current_process()._identity[-1]  # noqa: SLF001
        return Worker(id=info.id, count=info.num_workers, loader=number - info.id)


class Resumed(NamedTuple):
    """The state of a worker that resumes: the start of its pass, its turn, and the steps it returned."""

    epoch: int
    first_sample: int
    turn: int
    steps: int


class Start(NamedTuple):
    """Where a reader begins a pass."""

    epoch: int
    first_sample: int
    turn: int  # of this reader among the workers, which take the steps in turn
    steps: int  # of this reader that are already done
    number: int  # of the pass


class Passes:
    """The position of a dataset and the pass that is under way, in memory shared with its workers.

    Forked workers share the mapping. For spawned ones torch moves it to shared memory when it is pickled,
    which takes 5 ms.
    """

    def __init__(self) -> None:
        memory = torch.frombuffer(mmap(-1, _PAGES * PAGESIZE), dtype=torch.int64)
        self._pages = memory.reshape(_PAGES, -1)
        self._initial = (0, 0, 0)  # the position of a page that is claimed
        self._claimed = (os.getpid(), 0)  # the process that runs the loaders, and its page
        self._pages[0, _OWNER] = os.getpid()
        self._loader_pass = 0  # how many passes this process has begun as a worker
        self._pickled = (0, 0)  # the process that unpickled this, and the rank of its parent

    @property
    def rank(self) -> int:
        """The rank of this process among all, or that of the parent of this worker."""
        is_spawned = get_worker_info() is not None and self._pickled[0] == os.getpid()
        return self._pickled[1] if is_spawned else process_rank()

    @property
    def _values(self) -> torch.Tensor:
        """The page of this process, or of the one whose loader has started this worker."""
        info: Any = get_worker_info()
        parent = None if info is None else multiprocessing.parent_process()
        owner = os.getpid() if parent is None else int(parent.pid or 0)
        if self._claimed[0] != owner:
            if info is not None and info.id > 0:
                self._wait(lambda: self._find_page(owner) is not None)
            number = self._find_page(owner)
            self._claimed = (owner, self._claim_page(owner) if number is None else number)
        return self._pages[self._claimed[1]]

    def _find_page(self, owner: int) -> int | None:
        found = torch.nonzero(self._pages[:, _OWNER] == owner)
        return int(found[0, 0]) if len(found) else None

    def _claim_page(self, owner: int) -> int:
        """Return the number of a free page for a process, which begins where this one was moved last."""
        for number in range(owner, owner + _PAGES):
            page = self._pages[number % _PAGES]
            if page[_OWNER] == 0:
                page[_EPOCH], page[_FIRST], page[_IS_SET] = self._initial
                page[_OWNER] = owner
                time.sleep(_CLAIM_S)
                if page[_OWNER] == owner:
                    return number % _PAGES
        raise LoaderError(f"more than {_PAGES} processes have read this dataset")

    @property
    def position(self) -> tuple[int, int]:
        """The epoch and the first sample of the pass under way, or of the next one if none has begun."""
        values = self._values
        return int(values[_EPOCH]), int(values[_FIRST])

    @property
    def is_read_by_workers(self) -> bool:
        """Whether the newest pass is read by the workers of a DataLoader."""
        return bool(self._values[_READERS]) and bool(self._values[_LOADER])

    @property
    def has_ended(self) -> bool:
        """Whether all readers of the newest pass have returned their last batch."""
        values, readers = self._values, int(self._values[_READERS])
        return readers > 0 and all(
            values[_slot(reader, _ENDED)] == values[_PASS] for reader in range(readers)
        )

    def move(self, epoch: int, first_sample: int, *, is_set: bool = False) -> None:
        """Begin the next pass at a position; ``is_set``: even if nothing is left of the epoch there."""
        values = self._values
        self._initial = (epoch, first_sample, int(is_set))
        values[_EPOCH], values[_FIRST], values[_IS_SET] = self._initial
        values[_READERS] = 0

    def keep_epoch(self) -> None:
        """Let the next pass read the rest of this epoch, even if nothing is left of it."""
        self._initial = (*self._initial[:2], 1)
        self._values[_IS_SET] = 1

    def begin(
        self,
        worker: Worker,
        count_steps: Callable[[int, int], int],
        resumed: Resumed | None = None,
    ) -> Start:
        """Begin a pass in this reader; ``count_steps`` returns the steps of an epoch from a sample on.

        A pass of no steps, after a state saved at the end of an epoch, moves to the next epoch.
        """
        self._loader_pass += 1
        turn, done = worker.id, 0
        if resumed is None:
            start = self._next_start(count_steps)
        else:
            total = self._exchange_steps(worker, resumed.steps)
            start, turn, done = resumed[:2], resumed.turn, resumed.steps
            if total >= count_steps(resumed.epoch, resumed.first_sample):
                start, turn, done = (resumed.epoch + 1, 0), (turn - total) % worker.count, 0
        if worker.id == 0:
            self._publish(worker, start)
        else:
            self._wait(lambda: self._is_published(worker))
            start = self.position if resumed is None else start
        return Start(*start, turn, done, int(self._values[_PASS]))

    def end(self, worker: Worker, number: int) -> None:
        """Record that a reader has returned its last batch of a pass."""
        self._values[_slot(worker.id, _ENDED)] = number

    def _next_start(self, count_steps: Callable[[int, int], int]) -> tuple[int, int]:
        epoch, first = self.position
        is_set = bool(self._values[_IS_SET])
        if self.has_ended or (first > 0 and not is_set and not count_steps(epoch, first)):
            return epoch + 1, 0
        return epoch, first

    def _publish(self, worker: Worker, start: tuple[int, int]) -> None:
        values = self._values
        if start != self.position:
            values[_IS_SET] = 0
        values[_EPOCH], values[_FIRST] = start
        values[_PASS] += 1
        values[_READERS], values[_LOADER] = worker.count, worker.loader
        values[_LOADER_PASS] = self._loader_pass  # last: the other workers wait for it

    def _is_published(self, worker: Worker) -> bool:
        values = self._values
        key = (worker.loader, self._loader_pass)
        return (int(values[_LOADER]), int(values[_LOADER_PASS])) == key

    def _exchange_steps(self, worker: Worker, steps: int) -> int:
        """Return the steps that all workers had returned before they resumed."""
        values = self._values
        values[_slot(worker.id, _STEPS)] = steps
        values[_slot(worker.id, _RESUMED)] = worker.loader
        others = range(worker.count)
        self._wait(lambda: all(values[_slot(w, _RESUMED)] == worker.loader for w in others))
        return sum(int(values[_slot(w, _STEPS)]) for w in others)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pickled": (0, process_rank())}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update(fields)
        self._pickled = (os.getpid(), self._pickled[1])

    def _wait(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not is_done():
            if time.monotonic() > deadline:
                raise LoaderError(
                    f"the other workers of this DataLoader have not begun within {_WAIT_S:.0f} seconds",
                    hint="open one dataset for each DataLoader that is iterated at the same time",
                )
            time.sleep(0.001)


def _slot(worker: int, field: int) -> int:
    return _HEADER + worker * _PER_WORKER + field
