"""`METRICS`: what Dask's scheduler exports of runs to Prometheus, and the plugins for it."""

import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from distributed import Scheduler, Worker, WorkerPlugin
from distributed.diagnostics.plugin import SchedulerPlugin

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

_MAX_RUNS: Final = 100  # whose values are kept; chosen here
_FREE: Final = "tokenlake_disk_free_bytes"


class Metric(NamedTuple):
    """A metric of a run: its help and labels, which follow ``lake`` and ``kind``."""

    type: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


METRICS: Final[Mapping[str, Metric]] = {
    "documents": Metric(
        "counter", "Documents committed; the reason is the rule", ("verdict", "reason")
    ),
    "duplicates": Metric("counter", "Kept documents that deduplication dropped"),
    "tokens": Metric("counter", "Tokens committed"),
    "text_bytes": Metric("counter", "Bytes of text of the documents committed"),
    "read_bytes": Metric("counter", "Bytes of the files that a step has read", ("step",)),
    "stored_bytes": Metric("counter", "Bytes of the data files committed to a table", ("table",)),
    "commits": Metric("counter", "Commits to a table", ("table",)),
    "quarantined": Metric("counter", "Splits that could not be read"),
    "stage_seconds": Metric("counter", "Seconds of all workers, as in etl report", ("stage",)),
    "splits": Metric("gauge", "Splits of a step that are done, failed or left", ("step", "state")),
    "remaining_seconds": Metric("gauge", "Estimate for the rest of a step", ("step",)),
    "running": Metric("gauge", "1 during a run, 0 after its end"),
    "started_timestamp_seconds": Metric("gauge", "When the run started"),
    "last_commit_timestamp_seconds": Metric("gauge", "When it last committed, or started"),
    "updated_timestamp_seconds": Metric("gauge", "When its driver last sent values"),
    "certificates_expire_timestamp_seconds": Metric("gauge", "When the first certificate expires"),
}
"""The metrics of a run, without the prefix ``tokenlake_``; the names of counters end with ``_total``."""

Values = Mapping[str, Mapping[tuple[str, ...], float]]
"""The values of a run: by metric, and then by its labels."""

Run = tuple[str, str]
"""A lake, and what runs there: a run or a shuffle."""


class RunMetrics(SchedulerPlugin):
    """Keeps the newest values of each run, and exports them; they stay until the next run of the lake."""

    name = "tokenlake-metrics"
    idempotent = True  # drivers of the same scheduler share it

    def __init__(self) -> None:
        self._runs: dict[Run, Values] = {}
        self._scheduler: Scheduler | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Export the metrics with Dask's own; raise ImportError without prometheus_client."""
        from prometheus_client import REGISTRY

        self._scheduler = scheduler
        REGISTRY.register(self)

    async def close(self) -> None:
        """Export nothing more: another scheduler may start in this process."""
        from prometheus_client import REGISTRY

        REGISTRY.unregister(self)

    def update(self, run: Run, values: Values) -> None:
        """Replace the values of a run, unless they are of a later run of the same lake."""
        known = self._runs.pop(run, values)
        self._runs[run] = max(values, known, key=_started)  # the last one, as the newest of all
        if len(self._runs) > _MAX_RUNS:
            del self._runs[next(iter(self._runs))]

    def describe(self) -> list["Family"]:
        """Declare no names: the registry refuses a second scheduler in this process otherwise."""
        return []

    def collect(self) -> Iterator["Family"]:
        """Yield the metrics that have a value."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        for name, metric in METRICS.items():
            labels = ("lake", "kind", *metric.labels)
            family = families[metric.type](f"tokenlake_{name}", metric.help, labels=labels)
            for run, values in self._runs.items():
                for own, value in values.get(name, {}).items():
                    family.add_metric([*run, *own], value)
            if family.samples:
                yield family
        workers = () if self._scheduler is None else self._scheduler.workers.values()
        free = [worker.metrics[_FREE] for worker in workers if _FREE in worker.metrics]
        if free:
            yield GaugeMetricFamily(_FREE, "Free space where workers spill, the least", min(free))


class DiskSpace(WorkerPlugin):
    """Adds the free space of a worker's disk to what it reports to the scheduler."""

    name = "tokenlake-disk-space"

    def setup(self, worker: Worker) -> None:
        """Report the free space where the worker spills its data and keeps its part of shuffles."""
        worker.metrics[_FREE] = _free_bytes


def _free_bytes(worker: Worker) -> int:
    return shutil.disk_usage(worker.local_directory).free


def _started(values: Values) -> float:
    return values["started_timestamp_seconds"][()]


def update_metrics(run: Run, values: Values, dask_scheduler: Any = None) -> None:
    """Replace the values of a run at the scheduler, in which this function is called."""
    dask_scheduler.plugins[RunMetrics.name].update(run, values)
