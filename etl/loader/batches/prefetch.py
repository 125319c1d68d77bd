"""Prefetch by a thread, and a count of the seconds spent waiting for items.

A thread is enough, because the slow work, reading and decompressing, releases the GIL. DataLoader workers
would add the cost of a message, about a millisecond for 64 KB.
"""

import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from time import perf_counter
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


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


class _Buffer(Generic[_Item]):
    """Items between two threads; the writing thread pauses from a full buffer to a half empty one.

    A thread that wakes up finds cold caches, so it then makes several items.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: deque[_Item] = deque()
        self._end: BaseException | None = None
        self._is_ended = self._is_stopped = False
        lock = threading.Lock()
        self._filled, self._drained = threading.Condition(lock), threading.Condition(lock)

    def put(self, item: _Item) -> bool:
        """Add an item; when full, wait until half is left. Return False once the reader has stopped."""
        with self._filled:
            self._items.append(item)
            self._filled.notify()
            if len(self._items) >= self._size:
                while len(self._items) > self._size // 2 and not self._is_stopped:
                    self._drained.wait()
            return not self._is_stopped

    def end(self, error: BaseException | None) -> None:
        """Let the reader end after the last item, or raise an error."""
        with self._filled:
            self._is_ended, self._end = True, error
            self._filled.notify()

    def stop(self) -> None:
        """Let the writer end."""
        with self._filled:
            self._is_stopped = True
            self._drained.notify()

    def __iter__(self) -> Iterator[_Item]:
        while True:
            with self._filled:
                while not self._items:
                    if self._end is not None:
                        raise self._end
                    if self._is_ended:
                        return
                    self._filled.wait()
                item = self._items.popleft()
                if len(self._items) == self._size // 2:
                    self._drained.notify()
            yield item
            del item  # before waiting for the next one


def prefetch(items: Generator[_Item], size: int) -> Generator[_Item]:
    """Yield items, up to ``size`` of them prepared ahead by a thread that ends with the iterator."""
    ready = _Buffer[_Item](size)
    thread = threading.Thread(
        target=_produce, args=(items, ready), name="tokenlake-prefetch", daemon=True
    )
    thread.start()
    try:
        yield from ready
    finally:
        ready.stop()
        thread.join()


def _produce(items: Generator[_Item], ready: _Buffer[_Item]) -> None:
    """Put all items into the buffer, or the exception that ended them; the body of the thread."""
    end: BaseException | None = None
    try:
        with closing(items):
            for item in items:
                if not ready.put(item):
                    return
    except BaseException as error:  # noqa: BLE001 - it is raised in the reading thread
        end = error
    ready.end(end)
