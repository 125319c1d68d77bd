"""Shuffles of numeric frames by value or by range, and the number of partitions and tasks for them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._shuffle import P2PShuffle
from numpy.typing import NDArray

from etl.compute.frame_tasks import map_frames

ROWS_PER_PARTITION: Final = 4_000_000
"""Keys in a partition: 160 MB that a worker thread holds at a time, and as much again for its work."""

MAX_TASKS: Final = 1 << 13
"""The most tasks of a step, and partitions; chosen here: all steps take 0.8 GB of Dask's scheduler, at about
1 kB for each task (``benchmarks/driver_memory.py``). With more keys, partitions grow instead."""

_KEYS_PER_TASK = 1 << 20  # the most keys that one task reads and sends to their partitions
_TASKS = 1024  # fewer keys are spread over about this many tasks, to occupy all workers
_OLD_FOR_NEW = 8  # reading and looking up this many old keys costs as much as one new key
_RANGES_PER_PARTITION = 4


def shuffle_by_value(frame: dd.DataFrame, column: str, partitions: int) -> dd.DataFrame:
    """Return the frame with equal values of a column in the same partition."""
    if partitions == 1:
        return frame.repartition(npartitions=1)
    return _exchange(
        frame, partial(_number_by_value, column=column, partitions=partitions), partitions
    )


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
    """Return the frame with equal integers of a column in the same partition, grouped into ranges.

    With more than one partition, the new column ``range`` (int64) numbers the ranges. A partition gets
    several ranges, which evens out the sizes of the partitions.
    """
    if partitions == 1:
        return frame.repartition(npartitions=1)
    ranged = map_frames(
        "p2p.ranges",
        partial(_with_ranges, column=column, partitions=partitions),
        frame,
        meta=frame._meta.assign(range=pd.Series(dtype="int64")),
    )
    return shuffle_by_value(ranged, "range", partitions)


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
    if frame.npartitions == 1 or len(starts) == 1:
        return frame.repartition(npartitions=1)
    number = partial(_number_by_start, column=column, starts=np.array(starts[1:]))
    return _exchange(frame, number, len(starts))


def _exchange(
    frame: dd.DataFrame, number: Callable[[pd.DataFrame], pd.DataFrame], partitions: int
) -> dd.DataFrame:
    """Return the frame with each row in the partition that ``number`` writes to the column ``_partitions``.

    ``DataFrame.shuffle`` would add tasks to number and to project the rows, whose names it does not let us
    choose.
    """
    meta = frame._meta.assign(_partitions=pd.Series(dtype="int64"))
    numbered = map_frames("p2p.numbers", number, frame, meta=meta)
    return new_collection(P2PShuffle(numbered.expr, "_partitions", partitions))


def _with_ranges(frame: pd.DataFrame, *, column: str, partitions: int) -> pd.DataFrame:
    return frame.assign(range=range_of(frame[column], partitions))


def _number_by_value(frame: pd.DataFrame, *, column: str, partitions: int) -> pd.DataFrame:
    return frame.assign(_partitions=frame[column] % partitions)


def _number_by_start(
    frame: pd.DataFrame, *, column: str, starts: NDArray[np.int64]
) -> pd.DataFrame:
    return frame.assign(_partitions=np.searchsorted(starts, frame[column], side="right"))
