"""Number the rows of a table, so that equal rows can be found by comparing integers."""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_MAX_COUNT: Final = 1 << 62
_Numbers = NDArray[np.int64]


def number_rows(rows: pa.Table) -> _Numbers:
    """Return a number for each row, not negative: the same for equal rows, and another for others.

    Nulls are equal. The columns may not be lists. Integers and columns of few different values, such as the
    names of files, take no sorting.

    >>> table = pa.table({"source": ["a", "b", "a", "a"], "row": [7, 7, 7, None]})
    >>> first, second, third, fourth = number_rows(table).tolist()
    >>> first == third, len({first, second, fourth})
    (True, 3)
    """
    numbers, count = np.zeros(rows.num_rows, np.int64), 1
    for column in rows.columns if rows.num_rows else ():
        codes, size = _codes(column)
        if count * size > _MAX_COUNT:
            numbers, count = _dense(numbers)
            codes, size = _dense(codes)
        numbers = numbers * size + codes
        count *= size
    return numbers


def _codes(column: pa.ChunkedArray) -> tuple[_Numbers, int]:
    """Return a number for each value, and a number above them."""
    if pa.types.is_signed_integer(column.type) and not column.null_count:
        values = column.to_numpy().astype(np.int64)
        low, high = int(values.min()), int(values.max())
        if high - low < _MAX_COUNT:
            return values - low, high - low + 1
    encoded = column.dictionary_encode(null_encoding="encode")
    indices = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    return np.concatenate(indices).astype(np.int64), len(encoded.chunk(0).dictionary)


def _dense(numbers: _Numbers) -> tuple[_Numbers, int]:
    """Return numbers from 0 on without gaps, in the same order, and how many there are."""
    distinct, dense = np.unique(numbers, return_inverse=True)
    return dense, len(distinct)
