"""Many units of work through Dask, a bounded number of them at a time.

Units go in as the partitions of a Dask DataFrame (one each), a wave at a time, so that a million of them
do not become a million live tasks; what comes back is one small text each, in order of completion. A
partition is that text itself: as a frame of one row it would cost the driver a millisecond more, which
is a third of what a unit costs it (``benchmarks/scale.py``).
"""

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any

import dask.dataframe as dd
import pandas as pd
from distributed import Client, Future, as_completed, get_worker

from etl.cluster import lost_is_told
from etl.errors import LimitError, StageError, TokenlakeError
from etl.job.limits import limited

_LEAST_LIVE = 512  # a wave costs the driver some 10 ms, however small it is
_LIVE_PER_THREAD = 8
_RETRIES = 2  # of a task that raised; a worker that died is Dask's own count (allowed-failures)
_META = pd.DataFrame({"result": pd.Series(dtype=object)})


def stream(
    client: Client,
    function: Callable[..., str],
    units: Iterable[tuple[Any, ...]],
    *,
    label: str,
    time_limit: float | None = None,
) -> Generator[tuple[tuple[Any, ...], str | BaseException]]:
    """Call ``function(*unit)`` for each unit on the workers; yield each unit with its text or error.

    ``label`` names the tasks, so that the dashboard reads like the recipe. A unit that takes longer than
    ``time_limit`` seconds gives a LimitError, and is not tried again. What is left
    when the iterator is closed is given up.
    """
    remaining = iter(units)
    running: dict[Future[Any], tuple[Any, ...]] = {}
    window = max(_LEAST_LIVE, _LIVE_PER_THREAD * sum(client.nthreads().values()))
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
        frame = frame.optimize(fuse=False)
        # As one graph: of each collection that is computed the scheduler keeps a note for ever.
        graph, keys = frame.__dask_graph__(), frame.__dask_keys__()
        futures = client.get(graph, keys, sync=False, retries=_RETRIES)
        running.update(zip(futures, wave, strict=True))
        completed.update(futures)

    try:
        submit()
        while running:
            done = completed.next_batch()
            answers = client.gather(dict(enumerate(done)), errors="skip")  # one message for all
            finished = [running.pop(future) for future in done]
            errors = {i: done[i].exception() for i, answer in answers.items() if answer is None}
            _release(done)
            if len(running) <= window // 2:
                submit()
            for i, unit in enumerate(finished):
                yield unit, errors.get(i, answers[i])
    finally:
        _release(running)


def _release(futures: Iterable[Future[Any]]) -> None:
    """Forget them: the same task, were it asked for again, would have the same answer."""
    for future in futures:
        future.release()


def compute(client: Client, frame: Any, *, label: str) -> Any:
    """Compute a frame, or a number over one, of which no part is of use without the others.

    The parts of a frame come one by one: no worker has to hold all of it. Raises what a task raised: an
    error of ours as it is, another as StageError; ClusterError if the scheduler is lost.
    """
    try:
        with lost_is_told(client):
            if not isinstance(frame, dd.DataFrame):
                return client.compute(frame).result()
            return pd.concat(client.gather(client.compute(frame.to_delayed())))
    except Exception as error:
        raise as_ours(error, label) from error


def as_ours(error: BaseException, label: str) -> TokenlakeError:
    """What a task without a split of its own raised, as an error of ours."""
    if isinstance(error, TokenlakeError):
        return error
    text = f"a task failed ({' '.join(repr(error).split())})"
    return StageError(text, where=label, hint="run again: what is committed stays")


class _Partition:
    """One unit as one partition: the text that the function returns, or a LimitError."""

    def __init__(self, function: Callable[..., str], time_limit: float | None) -> None:
        self._function = function
        self._time_limit = time_limit

    def __call__(self, unit: tuple[Any, ...]) -> str | LimitError:
        if self._time_limit is None:
            return self._function(*unit)
        worker = get_worker()
        alone = worker.nanny is not None and worker.state.nthreads == 1
        try:
            return limited(lambda: self._function(*unit), self._time_limit, may_end_process=alone)
        except LimitError as error:  # raised, it would be tried again and take as long again
            return error
