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


def send_compile_log() -> None:
    """Send the messages of this process about compiled kernels to the drivers that follow them."""
    if not any(isinstance(handler, _ToDriver) for handler in _LOG.handlers):
        _LOG.addHandler(_ToDriver())


@contextmanager
def follow_compile_log(client: Client, show: Callable[[str], None]) -> Iterator[None]:
    """Call ``show``, in another thread, with each message of a worker about the kernels it compiles."""
    client.run(send_compile_log, on_error="ignore")
    client.subscribe_topic(_TOPIC, lambda event: show(f"kernels    {event[1]}"))
    try:
        yield
    finally:
        if client.status == "running":
            client.unsubscribe_topic(_TOPIC)
