"""Choose the documents that stay among pairs of similar ones, which fit in memory."""

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl.dedup.similarity import empty_pairs
from etl.kernels.hashing import independent_set

CHOSEN: Final = empty_pairs(
    document="int64", keeper="int64", similarity="float64", is_estimate="bool"
)
"""Duplicates, each with its keeper."""


def choose_among(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return what ``choose_keepers`` returns, for pairs that fit in memory."""
    documents, better, worse = numbered(pairs)
    return as_chosen(pairs[independent_set.choose_independent(len(documents), better, worse)])


def as_chosen(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return pairs of a duplicate and its keeper with the columns of the result."""
    return pairs.rename(columns={"worse": "document", "better": "keeper"})[list(CHOSEN.columns)]


def numbered(
    pairs: pd.DataFrame,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the documents, best first, and for each pair the indices of its better and worse document."""
    better, worse = pairs["better"].to_numpy(), pairs["worse"].to_numpy()
    ranks = np.concatenate([pairs["better_rank"].to_numpy(), pairs["worse_rank"].to_numpy()])
    # A document has the same rank in all of its pairs, so the first one is enough.
    documents, first, numbers = np.unique(
        np.concatenate([better, worse]), return_index=True, return_inverse=True
    )
    order = np.lexsort((documents, ranks[first]))
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return documents[order], positions[numbers[: len(better)]], positions[numbers[len(better) :]]
