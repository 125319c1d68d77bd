"""Report while a cluster has no workers: its tasks wait until one joins."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from distributed import Client

from etl.compute.listener import Listener

_INTERVAL: Final = 2.0  # seconds between two looks; each is one small message
_PATIENCE: Final = 10.0  # seconds without workers before the first report
_REPEAT: Final = 60.0
_BRIEF: Final = 10.0  # seconds; a worker that left sooner has probably failed as it started

Event = tuple[float, Mapping[str, Any]]
"""An event of Dask's topic ``all``: when (seconds), and what."""


@contextmanager
def reporting_missing_workers(client: Client, listener: Listener) -> Iterator[None]:
    """Notify a listener when a cluster has had no workers for ten seconds, and again every minute."""
    ended = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(client, listener, ended), name="missing-workers", daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        ended.set()


def _watch(client: Client, listener: Listener, ended: threading.Event) -> None:
    missing, report_at, had_workers = 0.0, _PATIENCE, False
    interval = min(_INTERVAL, _PATIENCE)
    while not ended.wait(interval):
        with suppress(Exception):  # the run itself raises if its scheduler is lost
            assert client.scheduler is not None
            if client.sync(client.scheduler.identity, n_workers=0)["n_workers"]:
                missing, report_at, had_workers = 0.0, _PATIENCE, True
                continue
            missing += interval
            if missing >= report_at:
                report_at = missing + _REPEAT
                events = client.get_events("all")
                listener.note(describe(events, missing, had_workers=had_workers))


def describe(events: Sequence[Event], seconds: float, *, had_workers: bool = False) -> str:
    """Return the line for a cluster without workers, with the end of the last one.

    The scheduler keeps only the latest events: ``had_workers`` says whether there was a worker before.

    >>> describe([(1.0, {"action": "add-worker", "worker": "tcp://a:1"}),
    ...           (1.5, {"action": "remove-worker", "worker": "tcp://a:1"})], 10)
    'workers    none for 10 s; tcp://a:1 left 0.5 s after it joined: see its log for the reason'
    >>> describe([(9.0, {"action": "remove-worker", "worker": "tcp://b:1"})], 10)
    'workers    none for 10 s; tcp://b:1 left'
    >>> describe([], 10), describe([], 10, had_workers=True)
    ('workers    none yet after 10 s', 'workers    none for 10 s')
    """
    joined: dict[str, float] = {}
    text = f"workers    none {'for' if had_workers else 'yet after'} {seconds:.0f} s"
    for time, event in events:
        worker = str(event.get("worker"))
        if event.get("action") == "add-worker":
            joined[worker] = time
        elif event.get("action") == "remove-worker":
            text = f"workers    none for {seconds:.0f} s; {worker} left"
            if (lived := time - joined.get(worker, float("-inf"))) < _BRIEF:
                text += f" {lived:.1f} s after it joined: see its log for the reason"
    return text
