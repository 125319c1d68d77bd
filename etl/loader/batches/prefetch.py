"""Prefetch by a thread, and a count of the seconds spent waiting for items.

A thread is enough, because the slow work, reading and decompressing, releases the GIL. DataLoader workers
would add the cost of a message, about a millisecond for 64 KB.
"""

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from time import perf_counter
from typing import Any, Generic, TypeVar

_Item = TypeVar("_Item")
_Queue = queue.Queue[Any]  # items, then an exception or None


class Timed(Generic[_Item]):
    """An iterable that counts in ``waited`` the total seconds that its reader waited for items.

    ``dataset.waited`` is such a count for batches read in this process. For DataLoader workers, wrap the
    loader: ``loader = Timed(DataLoader(...))``.

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


def prefetch(items: Generator[_Item], size: int) -> Generator[_Item]:
    """Yield items, up to ``size`` of them prepared ahead by a thread that ends with the iterator."""
    ready: _Queue = queue.Queue(size)
    stopped = threading.Event()
    arguments = (items, ready, stopped)
    thread = threading.Thread(
        target=_produce, args=arguments, name="tokenlake-prefetch", daemon=True
    )
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()


def _produce(items: Generator[_Item], ready: _Queue, stopped: threading.Event) -> None:
    """Put all items into the queue, then None or the exception that ended them; the body of the thread."""
    end: BaseException | None = None
    try:
        with closing(items):
            for item in items:
                if not _put(ready, item, stopped):
                    return
    except BaseException as error:  # noqa: BLE001 - it is raised in the reading thread
        end = error
    _put(ready, end, stopped)


def _put(ready: _Queue, item: Any, stopped: threading.Event) -> bool:
    """Put an item into the queue; return False if the reader stopped first."""
    while not stopped.is_set():
        try:
            ready.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
