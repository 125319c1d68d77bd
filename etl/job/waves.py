"""Many units of work through Dask, a bounded number of them at a time.

Units go in as the partitions of a Dask DataFrame (one each), a wave at a time, so that a million of them
do not become a million live tasks; what comes back is one small text each, in order of completion.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import dask.dataframe as dd
import pandas as pd
from distributed import Client, as_completed, get_worker

from etl.cluster import lost_is_told
from etl.errors import LimitError, StageError, TokenlakeError
from etl.job.limits import limited

_RETRIES = 2  # of a task that raised; a worker that died is Dask's own count (allowed-failures)
_META = pd.DataFrame({"result": pd.Series(dtype=object)})


def stream(
    client: Client,
    function: Callable[..., str],
    units: Iterable[tuple[Any, ...]],
    *,
    label: str,
    time_limit: float | None = None,
) -> Iterator[tuple[tuple[Any, ...], str | BaseException]]:
    """Call ``function(*unit)`` for each unit on the workers; yield each unit with its text or error.

    ``label`` names the tasks, so that the dashboard reads like the recipe. A unit that takes longer than
    ``time_limit`` seconds gives a LimitError, and is not tried again.
    """
    remaining = iter(units)
    running: dict[Any, tuple[Any, ...]] = {}
    threads = sum(client.nthreads().values()) or 1
    window = max(16, 8 * threads)
    completed = as_completed()

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
        futures = client.compute(frame.to_delayed(optimize_graph=False), retries=_RETRIES)
        for future, unit in zip(futures, wave, strict=True):
            running[future] = unit
            completed.add(future)

    submit()
    while running:
        future = next(completed)
        unit = running.pop(future)
        error = future.exception()
        yield unit, future.result()["result"].iloc[0] if error is None else error
        future.release()
        if len(running) <= window // 2:
            submit()


def compute(client: Client, frame: Any, *, label: str) -> Any:
    """Compute a frame, or a number over one, of which no part is of use without the others.

    Raises what a task raised: an error of ours as it is, another as StageError; ClusterError if the
    scheduler is lost.
    """
    try:
        with lost_is_told(client):
            return client.compute(frame).result()
    except Exception as error:
        raise as_ours(error, label) from error


def as_ours(error: BaseException, label: str) -> TokenlakeError:
    """What a task without a split of its own raised, as an error of ours."""
    if isinstance(error, TokenlakeError):
        return error
    text = f"a task failed ({' '.join(repr(error).split())})"
    return StageError(text, where=label, hint="run again: what is committed stays")


class _Partition:
    """One unit as one partition: a frame with the one text that the function returns, or a LimitError."""

    def __init__(self, function: Callable[..., str], time_limit: float | None) -> None:
        self._function = function
        self._time_limit = time_limit

    def __call__(self, unit: tuple[Any, ...]) -> pd.DataFrame:
        return pd.DataFrame({"result": pd.Series([self._answer(unit)], dtype=object)})

    def _answer(self, unit: tuple[Any, ...]) -> str | LimitError:
        if self._time_limit is None:
            return self._function(*unit)
        worker = get_worker()
        alone = worker.nanny is not None and worker.state.nthreads == 1
        try:
            return limited(lambda: self._function(*unit), self._time_limit, may_end_process=alone)
        except LimitError as error:  # raised, it would be tried again and take as long again
            return error
