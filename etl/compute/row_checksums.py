"""Checksums of rows that do not depend on their order: what enters a shuffle must leave it."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from etl.kernels.bytes.one_chunk import one_chunk
from etl.kernels.bytes.utf8 import frozen, texts
from etl.kernels.hashing.row_sums import add_rows, fold_bytes, fold_column


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


def sum_table(table: pa.Table) -> int:
    """Return the sum of the hashes of the rows of an Arrow table, modulo 2^64.

    The columns are integers without nulls, strings, or lists of integers.

    >>> table = pa.table({"id": ["a", "b"], "tokens": [[1, 2], [3]]})
    >>> sum_table(table) == sum_table(table.take([1, 0])) != sum_table(table[:1])
    True
    """
    hashes = np.zeros(len(table), np.int64)
    counts, sums = np.zeros((2, 1), np.int64)
    for column in map(one_chunk, table.columns):
        if pa.types.is_integer(column.type):
            fold_column(hashes, _words(column.to_numpy()))
        elif pa.types.is_list(column.type):
            fold_bytes(hashes, *_bytes_of_lists(column))
        else:
            strings = texts(column)
            fold_bytes(hashes, strings.data, strings.offsets)
    add_rows(hashes, _words(np.zeros(len(table), np.int64)), counts, sums)
    return int(sums[0])


def _bytes_of_lists(lists: pa.ListArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of all numbers, and where the bytes of each list begin and end."""
    numbers = np.ascontiguousarray(lists.values.to_numpy())
    offsets = lists.offsets.to_numpy().astype(np.int64) * numbers.itemsize
    return frozen(numbers.view(np.uint8)), frozen(offsets)
