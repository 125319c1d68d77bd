"""Tell the driver while workers compile kernels, through the events of Dask's scheduler."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from distributed import Client, get_worker

_TOPIC: Final = "tokenlake-compile"
_LOG: Final = logging.getLogger("etl.kernels.compile_clock")


class _ToDriver(logging.Handler):
    """Sends what is logged in a task to the driver, and prints everything else as usual."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            worker = get_worker()
        except ValueError:  # not in a task
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
        else:
            worker.log_event(_TOPIC, record.getMessage())


class _Shown(logging.Handler):
    """Shows what is logged in this process."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())


def send_compile_log() -> None:
    """Send the messages of this worker about kernels that it compiles to the drivers that follow them."""
    if not any(isinstance(handler, _ToDriver) for handler in _LOG.handlers):
        _LOG.addHandler(_ToDriver())


@contextmanager
def follow_compile_log(client: Client, show: Callable[[str], None]) -> Iterator[None]:
    """Call ``show`` with each message about kernels that workers or this process compile.

    Messages of workers arrive in another thread. Workers that wait for the same kernel are one message.
    """
    last = ""

    def show_line(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            show(f"kernels    {text}")

    client.run(send_compile_log, on_error="ignore")
    client.subscribe_topic(_TOPIC, lambda event: show_line(event[1]))
    here = _Shown(show_line)
    _LOG.addHandler(here)
    try:
        yield
    finally:
        _LOG.removeHandler(here)
        if client.status == "running":
            client.unsubscribe_topic(_TOPIC)
