"""Waiting for data: items made ahead by a thread, and the seconds that a reader waits.

A thread is enough: what takes time, reading and decompressing, releases the interpreter's lock. Workers of
a DataLoader cost a message besides, about a millisecond for 64 KB.
"""

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from time import perf_counter
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
_Queue = queue.Queue[Any]  # items, at their end an exception or None


class Timed(Generic[_Item]):
    """An iterable whose ``waited`` counts the seconds that its reader has waited for items, in all.

    ``dataset.waited`` is such a count for batches made in this process; what DataLoader workers make
    is waited for in the loader: ``loader = Timed(DataLoader(...))``.

    >>> timed = Timed([1, 2])
    >>> list(timed), timed.items, timed.waited < 1
    ([1, 2], 2, True)
    """

    def __init__(self, iterable: Iterable[_Item]) -> None:
        self.iterable = iterable
        self.waited = 0.0
        self.items = 0

    def __iter__(self) -> Iterator[_Item]:
        iterator = iter(self.iterable)
        while True:
            begin = perf_counter()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self.waited += perf_counter() - begin
            self.items += 1
            yield item


def ahead(items: Generator[_Item], size: int) -> Generator[_Item]:
    """The same items, up to ``size`` of them made ahead by a thread that ends with the iterator."""
    ready: _Queue = queue.Queue(size)
    stopped = threading.Event()
    arguments = (items, ready, stopped)
    thread = threading.Thread(target=_make, args=arguments, name="tokenlake-prefetch", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()


def _make(items: Generator[_Item], ready: _Queue, stopped: threading.Event) -> None:
    """What the thread does: items, and at the end None or the error that ended them."""
    end: BaseException | None = None
    try:
        with closing(items):
            for item in items:
                if not _put(ready, item, stopped):
                    return
    except BaseException as error:  # noqa: BLE001 - it is raised where the items are read
        end = error
    _put(ready, end, stopped)


def _put(ready: _Queue, item: Any, stopped: threading.Event) -> bool:
    """Whether an item got into the queue before the reader went away."""
    while not stopped.is_set():
        try:
            ready.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
