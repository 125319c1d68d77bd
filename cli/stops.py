"""What stops a command early (Ctrl-C, SIGTERM, a broken pipe), and how its process then ends."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread, get_ident
from typing import Final, NoReturn

_SHELL: Final = 128
"""Plus the number of a signal, it is a shell's exit status of a process that the signal ended."""

BROKEN_PIPE: Final = _SHELL + signal.SIGPIPE
_INTERRUPTED: Final = _SHELL + signal.SIGINT
_TERMINATED: Final = _SHELL + signal.SIGTERM

_PAUSES: Final = (0.05, 0.5)
"""Seconds until the main thread is woken: while its handler of a signal runs, another one ends no wait."""


class Terminated(KeyboardInterrupt):
    """SIGTERM has arrived."""


def stop_of(interrupt: KeyboardInterrupt) -> tuple[str, int]:
    """Return the word for the end of a command, and its exit code.

    >>> stop_of(KeyboardInterrupt()), stop_of(Terminated())
    (('interrupted', 130), ('terminated', 143))
    """
    if isinstance(interrupt, Terminated):
        return "terminated", _TERMINATED
    return "interrupted", _INTERRUPTED


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise Terminated at SIGTERM, and let Ctrl-C end waits that libraries would continue.

    The first SIGTERM is enough: later ones would stop the cleanup.
    """
    handlers = {signal.SIGTERM: _terminate, signal.SIGURG: _ignore}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        with _waking_main_thread():
            yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _terminate(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def _ignore(_number: int, _frame: object) -> None:
    """Do nothing: a signal with a handler ends a wait, after which Python calls all handlers that are due."""


@contextmanager
def _waking_main_thread() -> Iterator[None]:
    """After each signal, send another to the main thread.

    When Polars is imported, it handles SIGINT so that the system continues a wait without a time limit. Then
    Python calls its own handler, which raises KeyboardInterrupt, only when the wait has ended.
    """
    signals, notify = os.pipe()
    os.set_blocking(notify, False)
    main, done = get_ident(), Event()

    def wake() -> None:
        while number := os.read(signals, 1)[0]:
            for pause in _PAUSES if number != signal.SIGURG else ():
                if not done.wait(pause):
                    signal.pthread_kill(main, signal.SIGURG)

    waker = Thread(target=wake, name="wake-main", daemon=True)
    waker.start()
    previous = signal.set_wakeup_fd(notify)
    try:
        yield
    finally:
        done.set()
        signal.set_wakeup_fd(previous)
        os.write(
            notify, b"\0"
        )  # a forked child may have the pipe, too, so closing it would not end the thread
        waker.join()
        os.close(notify)
        os.close(signals)


def is_stopped(code: int) -> bool:
    """Return whether an exit code is that of a command which was stopped."""
    return code in (_INTERRUPTED, _TERMINATED, BROKEN_PIPE)


def exit_now(code: int) -> NoReturn:
    """End the process, and do not wait for its threads: to compile a kernel takes up to a minute."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
