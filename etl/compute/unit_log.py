"""Tell the driver how far workers are in their units of work, through the events of Dask's scheduler."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from distributed import Client, get_worker

_TOPIC: Final = "tokenlake-units"
_SECONDS: Final = (2.0, 4.0, 8.0)  # before each message of a unit, then as before the last one
"""Chosen here: a unit of usual size sends one or two, few compared with the messages of its task."""


class UnitLog:
    """Sends the state of a unit of work from its task to the driver, every few seconds."""

    def __init__(self) -> None:
        self._sent = time.monotonic()
        self._pauses = [*reversed(_SECONDS)]

    def send(self, state: tuple[Any, ...]) -> None:
        """Send the state, a tuple of texts and numbers, unless one was just sent or no task runs here."""
        now = time.monotonic()
        if now - self._sent < self._pauses[-1]:
            return
        self._sent = now
        if len(self._pauses) > 1:
            self._pauses.pop()
        try:
            worker = get_worker()
        except ValueError:  # not in a task
            return
        worker.log_event(_TOPIC, state)


@contextmanager
def follow_units(client: Client, show: Callable[[tuple[Any, ...]], None]) -> Iterator[None]:
    """Call ``show`` in another thread with each state that a worker sends."""
    client.subscribe_topic(_TOPIC, lambda event: show(event[1]))
    try:
        yield
    finally:
        if client.status == "running":
            client.unsubscribe_topic(_TOPIC)
