"""Pair documents that share a band key of their signatures."""

from typing import Final, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl.dedup.integer_ranges import concatenate_ranges
from etl.dedup.similarity import bucket_of, empty_pairs
from etl.kernels.hashing.sorted_sets import repeated

BANDS: Final = empty_pairs(key="int64", address="int64", rank="float64")
"""Band keys with the addresses and ranks of their documents."""

_MAX_BEST = 64  # best documents of a key that the others are compared with
_MAX_PAIRS = 1 << 16  # the best 1,024 of a key make about so many, and each doubling 45,000 more


class _Bands(NamedTuple):
    """Band keys with the documents that have them."""

    keys: NDArray[np.int64]  # (n,)
    documents: NDArray[np.int64]  # (n,) addresses
    ranks: NDArray[np.float64]  # (n,) lower is better, -inf for earlier arrivals

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Self:
        """Return the rows of a frame with the columns of ``BANDS``."""
        return cls(*(frame[name].to_numpy() for name in BANDS.columns))

    def shared(self) -> "_Bands":
        """Return the bands whose key occurs more than once, by key and then best document first."""
        rows = repeated(self.keys)  # usually few
        rows = rows[np.lexsort((self.documents[rows], self.ranks[rows], self.keys[rows]))]
        return _Bands(self.keys[rows], self.documents[rows], self.ranks[rows])


class _Pairs(NamedTuple):
    """Pairs of rows of ``_Bands`` that have the same key."""

    better: NDArray[np.int64]  # (m,)
    worse: NDArray[np.int64]  # (m,)


def pair_candidates(bands: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs to compare, each once: documents of the arrival with better ones of the same key.

    ``bands`` has the columns ``key``, ``address`` and ``rank``, and the result has ``bucket`` and the
    columns of ``ENDS``.
    """
    shared = _Bands.of(bands).shared()
    better, worse = _pairs_with_best(shared)
    pairs = pd.DataFrame(
        {
            "better": shared.documents[better],
            "worse": shared.documents[worse],
            "better_rank": shared.ranks[better],
            "worse_rank": shared.ranks[worse],
            "bucket": bucket_of(shared.documents[better]),
        }
    )
    return pairs.drop_duplicates(["better", "worse"])


def _pairs_with_best(bands: _Bands) -> _Pairs:
    """Pair each document of the arrival with the best documents of its key, as many as the limits allow.

    The rows of a key must be adjacent, best document first.
    """
    size = len(bands.keys)
    is_first = np.ones(size, np.bool_)
    is_first[1:] = bands.keys[1:] != bands.keys[:-1]
    starts = np.flatnonzero(is_first)  # (k,) the first row of each key
    sizes = np.diff(starts, append=size)  # (k,)
    # Of the documents A B C D of a key, best first, C has two better ones, and is paired with A and B.
    # The limit keeps a key of a thousand documents from making half a million pairs. It must not depend
    # on worse documents: a decision would change when one of these is added or removed.
    start = np.repeat(starts, sizes)  # (n,)
    num_better = np.arange(size) - start  # (n,) documents of the key that are better
    limit = np.clip(_MAX_PAIRS // (num_better + 1), 1, _MAX_BEST)
    num_pairs = np.where(bands.ranks == -np.inf, 0, np.minimum(num_better, limit))
    worse = np.repeat(np.arange(size), num_pairs)
    return _Pairs(concatenate_ranges(start, num_pairs), worse)
