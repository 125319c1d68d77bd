"""Concatenate ranges of integers, given their starts and lengths."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def concatenate_ranges(starts: NDArray[np.int64] | int, counts: NDArray[Any]) -> NDArray[np.int64]:
    """Return ``start``, ``start + 1``, ... for each start, as many numbers as its count.

    >>> concatenate_ranges(np.array([5, 0, 1]), np.array([2, 0, 3])).tolist()
    [5, 6, 1, 2, 3]
    """
    ends = np.cumsum(counts, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - counts), counts)
