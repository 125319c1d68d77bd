"""Rows of numbers with equal values in one place: Dask's shuffle, where there is more than one place."""

from typing import Final

import dask.dataframe as dd

ROWS_PER_PARTITION: Final = 4_000_000
"""Of keys: 160 MB that a thread of a worker holds at a time, and as much again to work on them."""


def together(frame: dd.DataFrame, column: str, partitions: int) -> dd.DataFrame:
    """The frame with equal values of a column in one partition."""
    if partitions == 1:
        return frame.repartition(npartitions=1)
    return frame.shuffle(column, npartitions=partitions)
