"""Checksums of rows that do not depend on their order: what enters a shuffle must leave it."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl.kernels.bytes.utf8 import frozen
from etl.kernels.hashing.row_sums import add_rows, fold_column


def sum_rows(frame: pd.DataFrame, parts: NDArray[np.int64], num_parts: int) -> pd.DataFrame:
    """Return the number of rows of each part, and the sum of the hashes of these rows.

    The order of the rows does not matter.

    >>> rows = pd.DataFrame({"key": [7, 8, 9], "rank": [0.5, np.nan, -np.inf]})
    >>> sums = sum_rows(rows, np.array([1, 0, 1]), 2)
    >>> sums["rows"].tolist()
    [1, 2]
    >>> sums.equals(sum_rows(rows[::-1], np.array([1, 0, 1]), 2))
    True
    """
    hashes = np.zeros(len(frame), np.int64)
    counts, sums = np.zeros((2, num_parts), np.int64)
    for name in frame.columns:
        fold_column(hashes, _words(frame[name].to_numpy()))
    add_rows(hashes, _words(parts), counts, sums)
    return pd.DataFrame({"rows": counts, "sum": sums})


def _words(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return numbers as int64, by their bits; all NaN are the same."""
    if values.dtype.kind == "f":
        is_nan = np.isnan(values)
        values = np.where(is_nan, np.nan, values) if is_nan.any() else values
        values = values.astype(np.float64, copy=False).view(np.int64)
    return frozen(np.ascontiguousarray(values, np.int64))
