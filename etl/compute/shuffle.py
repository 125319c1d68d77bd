"""Rows of numbers with equal values in one place: Dask's shuffle, where there is more than one place."""

from typing import Final

import dask.dataframe as dd
import numpy as np
from numpy.typing import NDArray

ROWS_PER_PARTITION: Final = 4_000_000
"""Of keys: 160 MB that a thread of a worker holds at a time, and as much again to work on them."""

_KEYS_PER_TASK = 1 << 20  # read and sent to their partitions; of fewer in all a thousandth,
_TASKS = 1024  # so that all workers have some
_OLD_FOR_NEW = 8  # an old key is read and looked up at this share of a new one's cost
_RANGES_PER_PARTITION = 4


def shuffle_by_value(frame: dd.DataFrame, column: str, partitions: int) -> dd.DataFrame:
    """The frame with equal values of a column in one partition."""
    if partitions == 1:
        return frame.repartition(npartitions=1)
    return frame.shuffle(column, npartitions=partitions)


def task_batches(files: NDArray[np.int64], keys: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Numbers of data files, in parts whose keys are read by one task; ``keys``: how many each has.

    So there are as many tasks as the keys ask for, into however small files these were written.

    >>> len(task_batches(np.arange(5000), np.ones(5000, np.int64)))
    1000
    """
    ends = np.cumsum(keys)
    part = (ends - keys) // min(_KEYS_PER_TASK, 1 + int(keys.sum()) // _TASKS)
    return np.split(files, 1 + np.flatnonzero(np.diff(part)))


def partitions_for(new: int, old: int = 0) -> int:
    """How many partitions so many new keys need, beside old ones that are read where they stand."""
    return 1 + max(new, old // _OLD_FOR_NEW) // ROWS_PER_PARTITION


def shuffle_by_range(frame: dd.DataFrame, column: str, partitions: int) -> dd.DataFrame:
    """The frame with equal integers of a column in one partition, and mostly neighbouring ones.

    Where there are several partitions, the column ``range`` (int64) numbers the ranges: several a
    partition, so that chance fills all of them alike.
    """
    if partitions == 1:
        return frame.repartition(npartitions=1)
    bits = (_RANGES_PER_PARTITION * partitions - 1).bit_length()
    return frame.assign(range=frame[column] // 2 ** (64 - bits)).shuffle(
        "range", npartitions=partitions
    )
