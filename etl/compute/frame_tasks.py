"""Apply functions to the partitions of Dask DataFrames, in tasks whose names a dashboard can group."""

from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import pandas as pd


def map_frames(
    name: str, function: Callable[..., pd.DataFrame], *arguments: Any, meta: pd.DataFrame
) -> dd.DataFrame:
    """Return what a function returns for the partitions of frames with this number, in order.

    A frame of one partition is passed to all tasks, and so are arguments that are no frames. ``name`` is the
    name of the tasks at the scheduler, such as ``minhash.pairs``. Dask joins the names of up to four fused
    tasks with ``-``, and groups tasks by the first name and by the following names up to a character that is
    not a letter: with a ``.`` in each, by the first alone. Its dashboard cuts names after 15 characters.
    """
    return dd.map_partitions(function, *arguments, meta=meta, token=name, align_dataframes=False)
