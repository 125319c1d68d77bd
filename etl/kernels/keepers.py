"""Which documents stay, given the pairs that are alike: the best ones, and no chains.

In the order of preference a document stays unless one that stays is like it. So every duplicate is like
its own keeper, and a chain of documents, each like the next, does not collapse into one; and documents
that come later in the order never change what was decided before them. (A set of this kind is the
lexicographically first maximal independent set of the graph.) Joining all that hangs together, by
union-find, has neither property. One pass over the sorted pairs.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import kernel


class Keepers(NamedTuple):
    """For each document its keeper, itself if it stays, and how alike they are."""

    keeper: NDArray[np.int64]  # (n,)
    similarity: NDArray[np.float64]  # (n,) 1 for what stays


def choose(
    num_documents: int,
    better: NDArray[np.int64],
    worse: NDArray[np.int64],
    similarity: NDArray[np.float64],
) -> Keepers:
    """The keeper of each document: of those that stay and are like it, the best.

    Documents are numbers in the order of preference, the best is 0; pair ``k`` is ``better[k] <
    worse[k]``, and how alike they are.

    >>> one, two = choose(3, np.array([0, 1]), np.array([1, 2]), np.array([0.9, 0.8]))
    >>> one
    array([0, 0, 2])
    """
    order = np.lexsort((better, worse))
    found = Keepers(np.arange(num_documents), np.ones(num_documents))
    _choose(better[order], worse[order], similarity[order], found.keeper, found.similarity)
    return found


@kernel
def _choose(
    better: NDArray[np.int64],
    worse: NDArray[np.int64],
    similarity: NDArray[np.float64],
    keeper: NDArray[np.int64],
    how_alike: NDArray[np.float64],
) -> None:
    for k in range(len(worse)):
        stays = keeper[better[k]] == better[k]  # known: all its pairs came before
        if stays and keeper[worse[k]] == worse[k]:
            keeper[worse[k]], how_alike[worse[k]] = better[k], similarity[k]
