"""Shuffles of numeric frames by value or by range, and the number of partitions and tasks for them."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import dask.dataframe as dd
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl.compute.verified_shuffle import shuffle_verified

ROWS_PER_PARTITION: Final = 1_000_000
"""Keys in a partition: 50 MB that a worker thread holds at a time, and several times as much for its work."""

MAX_TASKS: Final = 1 << 13
"""The most tasks of a step, and partitions; chosen here: all steps take 0.8 GB of Dask's scheduler, at about
1 kB for each task (``benchmarks/driver_memory.py``). With more keys, partitions grow instead."""

_KEYS_PER_TASK = 1 << 20  # the most keys that one task reads and sends to their partitions
_TASKS = 1024  # fewer keys are spread over about this many tasks, to occupy all workers
_OLD_FOR_NEW = 8  # reading and looking up this many old keys costs as much as one new key
_RANGES_PER_PARTITION = 4


def shuffle_by_value(frame: dd.DataFrame, column: str, partitions: int) -> dd.DataFrame:
    """Return the frame with equal values of a column in the same partition."""
    return shuffle_verified(frame, partial(_by_value, column, partitions), partitions)


def task_batches(files: NDArray[np.int64], keys: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split the numbers of data files into parts, one for each task; ``keys`` has the keys of each file.

    The number of parts depends on the number of keys, not on the number of files, and is limited.

    >>> len(task_batches(np.arange(5000), np.ones(5000, np.int64)))
    1000
    """
    ends = np.cumsum(keys)
    total = int(keys.sum())
    per_task = max(min(_KEYS_PER_TASK, 1 + total // _TASKS), 1 + total // MAX_TASKS)
    part = (ends - keys) // per_task
    return np.split(files, 1 + np.flatnonzero(np.diff(part)))


def partitions_for(new: int, old: int = 0) -> int:
    """Return the number of partitions for ``new`` keys that are shuffled and ``old`` keys looked up."""
    return min(1 + max(new, old // _OLD_FOR_NEW) // ROWS_PER_PARTITION, MAX_TASKS)


def shuffle_by_range(frame: dd.DataFrame, column: str, partitions: int) -> dd.DataFrame:
    """Return the frame with equal integers of a column in the same partition.

    With more than one partition, each gets several ranges of integers (``range_of``), which evens out the
    sizes of the partitions.
    """
    return shuffle_verified(frame, partial(_by_range, column, partitions), partitions)


def range_of(values: Any, partitions: int) -> Any:
    """Return the number of the range of each integer, for at least two partitions."""
    # The top bits of an integer: for 3 partitions, 4 bits, so ranges -8 to 7.
    bits = (_RANGES_PER_PARTITION * partitions - 1).bit_length()
    return values // 2 ** (64 - bits)


def split_at(frame: dd.DataFrame, column: str, starts: Sequence[int]) -> dd.DataFrame:
    """Return the frame with the values of a column from each start to the next in one partition.

    ``starts`` are ascending; the first partition has all lower values, too. A frame of one partition stays
    as it is: ``map_frames`` passes it to all tasks.
    """
    if frame.npartitions == 1:
        return frame
    return shuffle_verified(frame, partial(_by_start, column, starts[1:]), len(starts))


def _by_range(column: str, partitions: int, frame: pd.DataFrame) -> NDArray[np.int64]:
    places: NDArray[np.int64] = range_of(frame[column].to_numpy(), partitions) % partitions
    return places


def _by_value(column: str, partitions: int, frame: pd.DataFrame) -> NDArray[np.int64]:
    places: NDArray[np.int64] = frame[column].to_numpy() % partitions
    return places


def _by_start(column: str, starts: Sequence[int], frame: pd.DataFrame) -> NDArray[np.int64]:
    return np.searchsorted(starts, frame[column].to_numpy(), "right")
