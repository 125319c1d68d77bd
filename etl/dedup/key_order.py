"""Sort keys, and choose those that look-ups need.

Keys are hashes, of which most differ. It is enough to sort by the keys alone, which is ten times as fast as
by several columns, and then to sort the equal ones.
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from etl.dedup.key_lookup import SHORT_CHECK
from etl.kernels.hashing.sorted_sets import repeated


def sort_order(keys: NDArray[np.int64], *others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order of rows by key, and of rows with equal keys by the other columns.

    >>> sort_order(np.array([7, 5, 7]), np.array([1, 2, 0])).tolist()
    [1, 2, 0]
    """
    order: NDArray[np.int64] = np.argsort(keys)
    is_equal = keys[order[1:]] == keys[order[:-1]]
    if is_equal.any():
        tied = np.flatnonzero(np.append(is_equal, False) | np.append(False, is_equal))
        columns = pl.DataFrame([column[order[tied]] for column in (keys, *others)])
        by = columns.select(pl.arg_sort_by(columns.columns)).to_series().to_numpy()
        order[tied] = order[tied][by]
    return order


def first_keys(
    keys: NDArray[np.int64], check: NDArray[np.int64], documents: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the positions of the keys of passages that look-ups need.

    Of equal keys, look-ups need the key of the first document, and of the first document that is not short:
    if a look-up excludes short documents, the next one must be known.

    Keys are equal if ``keys`` and the upper bits of ``check`` are; the bit ``SHORT_CHECK`` is that of a short
    document.

    >>> check = np.array([0, 0, SHORT_CHECK, SHORT_CHECK])
    >>> first_keys(np.array([5, 5, 5, 5]), check, np.array([4, 3, 2, 1])).tolist()
    [1, 3]
    """
    several = repeated(keys)
    rest = check & ~SHORT_CHECK
    order = several[sort_order(keys[several], rest[several], documents[several])]
    is_needed = np.ones(len(keys), np.bool_)
    is_needed[several] = False
    for part in (order, order[check[order] & SHORT_CHECK == 0]):
        is_needed[part[:1]] = True
        later, before = part[1:], part[:-1]
        is_needed[later[(keys[later] != keys[before]) | (rest[later] != rest[before])]] = True
    return np.flatnonzero(is_needed)
