"""SIGTERM ends a command as Ctrl-C does, so that it stops what it has started, with another exit code."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SHELL: Final = 128
"""Plus the number of a signal, it is a shell's exit status of a process that the signal ended."""


class Terminated(KeyboardInterrupt):
    """SIGTERM has arrived."""


def stop_of(interrupt: KeyboardInterrupt) -> tuple[str, int]:
    """Return the word for the end of a command, and its exit code.

    >>> stop_of(KeyboardInterrupt()), stop_of(Terminated())
    (('interrupted', 130), ('terminated', 143))
    """
    if isinstance(interrupt, Terminated):
        return "terminated", _SHELL + signal.SIGTERM
    return "interrupted", _SHELL + signal.SIGINT


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Raise Terminated at SIGTERM; the first signal is enough, later ones would stop the cleanup."""
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated
