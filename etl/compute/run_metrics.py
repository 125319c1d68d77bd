"""Send the values of a run to Dask's scheduler, which exports them to Prometheus."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from distributed import Client

from etl import storage
from etl.compute.certificates import expires_at
from etl.compute.listener import Listener, Progress, RunTotals
from etl.compute.local_cluster import has_dashboard
from etl.compute.scheduler_metrics import DiskSpace, Run, RunMetrics, Values, update_metrics
from etl.errors import error_line

if TYPE_CHECKING:
    from etl.schemas import TableName

_SECONDS: Final = 2.0  # between two messages to the scheduler, of a few kB each; chosen here
_TIMEOUT: Final = 5.0  # for the last message, if the scheduler does not answer
_MAX_LABELS: Final = 100  # of a metric: a stage of the user may give any number of reasons
_OTHER: Final = "other"


@contextmanager
def exported_metrics(
    client: Client, lake: str, kind: str, listener: Listener
) -> Iterator[Listener]:
    """Yield a listener whose values the scheduler exports as metrics of a lake, if it has ``/metrics``.

    Another thread sends them every two seconds, and once more at the end. A scheduler that cannot export
    them is noted to ``listener``, and the run goes on.
    """
    values = _RunValues(expires_at(client.security))
    if not has_dashboard(client) or not _is_prepared(client, listener):
        yield values
        return
    ended = threading.Event()
    sender = threading.Thread(
        target=_send_values,
        args=(client, (storage.normalize(lake), kind), values, ended),
        name="metrics",
        daemon=True,
    )
    sender.start()
    try:
        yield values
    finally:
        ended.set()
        sender.join(_TIMEOUT)


def _is_prepared(client: Client, listener: Listener) -> bool:
    """Register the plugins at the scheduler and the workers; note it if the scheduler cannot have them."""
    try:
        client.register_plugin(RunMetrics())
        client.register_plugin(DiskSpace())
    except Exception as error:  # noqa: BLE001 - a scheduler raises what it likes; none of it ends a run
        listener.note(
            f"metrics    none of this run at /metrics of the scheduler ({error_line(error)}): "
            "install tokenlake[k8s] there"
        )
        return False
    return True


def _send_values(client: Client, run: Run, values: "_RunValues", ended: threading.Event) -> None:
    is_running = True
    while is_running:
        is_running = not ended.wait(_SECONDS)
        with suppress(Exception):  # the run itself raises if its scheduler is lost
            client.run_on_scheduler(
                update_metrics,
                run,
                values.now(is_running=is_running),
                callback_timeout=_TIMEOUT,
            )


class _RunValues(Listener):
    """Keeps what it gets of a run, and returns the values to export."""

    def __init__(self, certificates_expire: datetime | None = None) -> None:
        self._expire: dict[tuple[str, ...], float] = {}
        if certificates_expire is not None:
            self._expire[()] = certificates_expire.timestamp()
        self._started = self._committed = time.time()
        self._totals = RunTotals()
        self._steps: dict[TableName, Progress] = {}

    def progress(self, progress: Progress) -> None:
        """Keep the progress of a step."""
        self._steps[progress.step] = progress

    def committed(self, totals: RunTotals) -> None:
        """Keep the totals."""
        if totals.commits != self._totals.commits:
            self._committed = time.time()
        self._totals = totals

    def now(self, *, is_running: bool) -> Values:
        """Return the values of all metrics."""
        totals, steps = self._totals, dict(self._steps)
        documents: dict[tuple[str, ...], float] = {("kept", ""): totals.kept}
        documents |= {("rejected", *reason): n for reason, n in _limited(totals.rejected).items()}
        left = {name: _seconds_left(each) for name, each in steps.items()}
        return {
            "documents": documents,
            "duplicates": {(): totals.duplicates},
            "tokens": {(): totals.tokens},
            "text_bytes": {(): totals.text_bytes},
            "read_bytes": _limited(totals.read_bytes),
            "stored_bytes": _limited(totals.stored_bytes),
            "commits": _limited(totals.commits),
            "quarantined": {(): totals.quarantined},
            "stage_seconds": _limited(totals.seconds),
            "splits": {key: n for each in steps.values() for key, n in _splits(each).items()},
            "remaining_seconds": {(name,): s for name, s in left.items() if s is not None},
            "running": {(): is_running},
            "started_timestamp_seconds": {(): self._started},
            "last_commit_timestamp_seconds": {(): self._committed},
            "updated_timestamp_seconds": {(): time.time()},
            "certificates_expire_timestamp_seconds": self._expire,
        }


def _splits(progress: Progress) -> dict[tuple[str, ...], float]:
    """Return the splits of a step by state."""
    states = {
        "done": progress.done - progress.failed,
        "failed": progress.failed,
        "left": progress.total - progress.done,
    }
    return {(progress.step, state): number for state, number in states.items()}


def _seconds_left(progress: Progress) -> float | None:
    return 0.0 if progress.done == progress.total else progress.seconds_left


def _limited(counts: Mapping[Any, float]) -> dict[tuple[str, ...], float]:
    """Return the largest counts by label, and the sum of the others.

    >>> _limited({"read": 2.0, "tokenize": 1.0})
    {('read',): 2.0, ('tokenize',): 1.0}
    """
    largest = sorted(counts.items(), key=itemgetter(1), reverse=True)
    limited: dict[tuple[str, ...], float] = {(n,): count for n, count in largest[:_MAX_LABELS]}
    if rest := largest[_MAX_LABELS:]:
        limited[_OTHER,] = sum(count for _, count in rest)
    return limited
