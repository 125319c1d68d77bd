"""Compute frames as a whole, and start again if a shuffle fails.

Dask starts a shuffle again if one of its workers leaves. It fails if a worker does not respond or a disk is
full, and it may lose rows, which ``etl.compute.verified_shuffle`` detects. Then the computation starts again
from the frames that the workers hold, as new tasks.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Final, TypeVar

import dask.dataframe as dd
import pandas as pd
from distributed import Client, Future, as_completed, futures_of
from distributed.shuffle._exceptions import P2PConsistencyError, P2POutOfDiskError

from etl.compute.connect import raise_if_scheduler_lost, warn
from etl.compute.dask_tasks import to_tokenlake_error
from etl.compute.verified_shuffle import fuse_shuffles, start_again
from etl.errors import HeldFrameError, ShuffleError, TokenlakeError, error_line

MAX_RESTARTS: Final = 3
"""How often a computation starts again if its shuffles fail; chosen here."""

_PAUSE = 1.0  # seconds before the first restart, doubled for each: workers remove what they stored
_HINT: Final = (
    "see the logs and the free disk space of the workers; run again: committed work is kept"
)

Result = TypeVar("Result")
_Finish = Callable[[dd.DataFrame, Sequence[Future[Any]]], Result]
"""Makes a result of a frame and its computed partitions."""


def compute_frame(client: Client, frame: dd.DataFrame, *, label: str) -> pd.DataFrame:
    """Compute a frame as a whole: any failed task fails the computation.

    The partitions of a frame are fetched separately, so no worker holds the whole frame. Raises
    TokenlakeErrors of tasks unchanged and their other errors as StageError, and ClusterError if the
    scheduler is lost. A failed shuffle starts again ``MAX_RESTARTS`` times; then ShuffleError is raised.
    HeldFrameError is raised if a frame of ``hold_frame`` failed since.
    """
    return _compute(client, frame, lambda _, futures: _fetch(client, futures), label)


def hold_frame(client: Client, frame: dd.DataFrame, *, label: str) -> dd.DataFrame:
    """Return a frame as computed and held by the workers, so that each use reads it.

    Raises as ``compute_frame`` does.
    """
    return _compute(client, frame, _held, label)


def restart_lost_frames(client: Client, function: Callable[[], Result], *, label: str) -> Result:
    """Call a function that holds frames, and call it again if it raises HeldFrameError.

    Dask computes a held frame again if it was lost with a worker. If that fails, so do all computations that
    use the frame.
    """
    return with_restarts(client, lambda _: function(), HeldFrameError, label)


def _compute(client: Client, frame: dd.DataFrame, finish: _Finish[Result], label: str) -> Result:
    def attempt(restarts: int) -> Result:
        attempted = (start_again(frame) if restarts else frame).optimize()
        # Tasks are sent, where `client.persist` sends the expression. A process keeps its expressions in a
        # table of weak references without a lock. If a scheduler of this process reads an expression while
        # this thread drops it, Dask raises KeyError.
        keys = attempted.__dask_keys__()
        futures = client.get(fuse_shuffles(attempted.__dask_graph__()), keys, sync=False)
        try:
            with raise_if_scheduler_lost(client):
                for future in as_completed(futures, client.loop):
                    if future.status != "finished":
                        future.result()  # raises its error
                return finish(attempted, futures)
        except Exception as error:
            _release(futures)  # so that workers remove what the shuffles have stored
            raise _converted(error, frame, label) from error

    return with_restarts(client, attempt, ShuffleError, label)


def _fetch(client: Client, futures: Sequence[Future[pd.DataFrame]]) -> pd.DataFrame:
    """Return the partitions that the workers hold, as one frame."""
    frame: pd.DataFrame = pd.concat(client.gather(futures))
    return frame


def _held(frame: dd.DataFrame, futures: Sequence[Future[pd.DataFrame]]) -> dd.DataFrame:
    """Return a frame with the partitions that the workers hold."""
    rebuild, arguments = frame.__dask_postpersist__()
    return rebuild(dict(zip(frame.__dask_keys__(), futures, strict=True)), *arguments)


def _release(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.release()


def _converted(error: Exception, frame: dd.DataFrame, label: str) -> TokenlakeError:
    """Convert an error of a task; a failed shuffle is a ShuffleError or a HeldFrameError."""
    if isinstance(error, ShuffleError):
        what = error.what
    elif any(map(_is_full_disk, _causes(error))):
        what = "a shuffle failed: the disk of a worker is full"
    elif isinstance(error, P2PConsistencyError | RuntimeError) and "P2P" in str(error):
        *_, cause = _causes(error)
        what = f"a shuffle failed: {error_line(cause)}"
    else:
        return to_tokenlake_error(error, label)
    is_held = any(future.status == "error" for future in futures_of(frame))
    return (HeldFrameError if is_held else ShuffleError)(what, where=label, hint=_HINT)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, and so on to the first cause."""
    while error is not None:
        yield error
        error = error.__cause__


def _is_full_disk(error: BaseException) -> bool:
    """Return whether a worker had no space; the scheduler passes errors of workers on by their names."""
    return isinstance(error, P2POutOfDiskError) or P2POutOfDiskError.__name__ in str(error)


def with_restarts(
    client: Client, attempt: Callable[[int], Result], restartable: type[TokenlakeError], label: str
) -> Result:
    """Return the result of the first attempt that does not raise an error that is ``restartable``.

    An attempt is given the number of earlier ones. After ``MAX_RESTARTS`` more attempts its error is raised.
    """
    for restarts in count():
        try:
            return attempt(restarts)
        except restartable as error:
            what = error.what
            if restarts == MAX_RESTARTS:
                what = f"{what} (attempt {restarts + 1} of {MAX_RESTARTS + 1})"
                raise restartable(what, where=label, hint=_HINT) from error
        warn(client, f"{label}: {what}; starting again ({restarts + 1} of {MAX_RESTARTS})")
        time.sleep(_PAUSE * 2**restarts)
    raise AssertionError
