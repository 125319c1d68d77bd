"""Run many units of work on Dask, with a bounded number of live tasks.

Units are submitted in waves, each as the partitions of a Dask DataFrame (one partition per unit), so a
million units never become a million live tasks. Each unit returns one small value, in order of completion. A
partition is the value itself: a frame with one row would cost the driver one more millisecond, a third of
its total cost per unit (``benchmarks/scale.py``).
"""

import math
import uuid
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, Generic, TypeVar

import dask.dataframe as dd
import pandas as pd
from distributed import Client, Future, KilledWorker, as_completed, get_worker
from distributed.client import CancelledError

from etl.compute.compile_log import send_compile_log
from etl.compute.connect import raise_if_scheduler_lost
from etl.compute.unit_time_limit import run_with_time_limit
from etl.errors import LimitError, StageError, TokenlakeError

_MIN_LIVE = 512  # live tasks; a wave costs the driver about 10 ms, however small it is
_LIVE_PER_THREAD = 8
_RETRIES = 2  # of a task that raised; Dask counts dead workers separately (allowed-failures)
_META = pd.DataFrame({"result": pd.Series(dtype=object)})

Result = TypeVar("Result")
Unit = tuple[Any, ...]
"""The arguments of a function for one unit of work."""


def map_unordered(
    client: Client,
    function: Callable[..., Result],
    units: Iterable[Unit],
    *,
    label: str,
    time_limit: float = math.inf,
) -> Generator[tuple[Unit, Result | BaseException]]:
    """Call ``function(*unit)`` on the workers for each unit; yield each unit with its result or error.

    Results are small and never None; this process unpickles them. ``label`` names the tasks on the
    dashboard. A unit that takes longer than ``time_limit`` seconds yields a LimitError and is not retried; so
    does one on which several workers died.
    Closing the iterator cancels the remaining units. Raises ClusterError if the scheduler is lost.
    """
    remaining = iter(units)
    running: dict[Future[Any], Unit] = {}
    window = max(_MIN_LIVE, _LIVE_PER_THREAD * sum(client.nthreads().values()))
    completed = as_completed(loop=client.loop)  # not of the default client, which may be another

    def submit() -> None:
        wave = list(islice(remaining, window - len(running)))
        if not wave:
            return
        frame = dd.from_map(
            _Partition(function, time_limit),
            wave,
            meta=_META,
            label=label,
            enforce_metadata=False,
        )
        frame = frame.optimize(fuse=False)
        # One graph per wave: the scheduler never forgets a computed collection.
        graph, keys = frame.__dask_graph__(), frame.__dask_keys__()
        futures = client.get(graph, keys, sync=False, retries=_RETRIES)
        running.update(zip(futures, wave, strict=True))
        completed.update(futures)

    try:
        submit()
        while running:
            done = completed.next_batch()
            with raise_if_scheduler_lost(client):
                answers = client.gather(dict(enumerate(done)), errors="skip")  # all in one message
            finished = [running.pop(future) for future in done]
            failed = [i for i, answer in answers.items() if answer is None]
            errors = {i: _describe_deaths(done[i].exception()) for i in failed}
            _raise_if_forgotten(client, errors.values())
            _release(done)
            # Refill half a window at once: a graph costs the driver 10 ms, for one unit or for hundreds.
            if len(running) <= window // 2:
                submit()
            for i, unit in enumerate(finished):
                yield unit, errors.get(i, answers[i])
    finally:
        _release(running)


def _describe_deaths(error: BaseException | None) -> BaseException | None:
    """Return the error of a task, or a LimitError if its workers died."""
    if not isinstance(error, KilledWorker):
        return error
    return LimitError(
        f"{error.allowed_failures + 1} workers died on it: they ran out of memory, their code ended the "
        "process, or native code hung beyond the time limit (see the worker logs)",
        hint="try a larger --memory-limit or fewer --workers",
    )


def _release(futures: Iterable[Future[Any]]) -> None:
    """Release futures; otherwise Dask would reuse their results if the same task were submitted again."""
    for future in futures:
        future.release()


def _raise_if_forgotten(client: Client, errors: Iterable[BaseException | None]) -> None:
    """Raise ClusterError if a task has neither a result nor an error, or was cancelled.

    Its scheduler was lost then, and the client has connected to another one at the same address.
    """
    with raise_if_scheduler_lost(client):
        for error in errors:
            if error is None or isinstance(error, CancelledError):
                raise CancelledError


def call_on_each_worker(client: Client, function: Callable[..., object], *args: Any) -> None:
    """Call a function as a task on each worker that is there; wait for the first one if there is none.

    Raises the error of the first that fails.
    """
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    name = f"{function.__name__}-{uuid.uuid4().hex}"
    futures = [
        client.submit(
            function,
            *args,
            key=f"{name}-{number}",
            workers=None if worker is None else [worker],
            allow_other_workers=worker is not None,  # if it has been lost
            retries=_RETRIES,
            pure=False,
        )
        for number, worker in enumerate(workers or [None])
    ]
    with raise_if_scheduler_lost(client):
        client.gather(futures)


def to_tokenlake_error(error: BaseException, label: str) -> TokenlakeError:
    """Convert an error of a task that does not belong to a split to a TokenlakeError."""
    if isinstance(error, TokenlakeError):
        return error
    text = f"a task failed ({' '.join(repr(error).split())})"
    return StageError(text, where=label, hint="run again: committed work is kept")


class _Partition(Generic[Result]):
    """Computes one partition: what the function returns for one unit, or a LimitError."""

    def __init__(self, function: Callable[..., Result], time_limit: float) -> None:
        self._function = function
        self._time_limit = time_limit

    def __call__(self, unit: Unit) -> Result | LimitError:
        send_compile_log()  # the worker may have joined late
        if self._time_limit == math.inf:
            return self._function(*unit)
        worker = get_worker()
        # A process with other threads would take their units with it when it ends; without a nanny
        # nothing would start it again.
        alone = worker.nanny is not None and worker.state.nthreads == 1
        try:
            return run_with_time_limit(
                lambda: self._function(*unit), self._time_limit, may_end_process=alone
            )
        except LimitError as error:  # returned, because Dask retries a task that raises
            return error
