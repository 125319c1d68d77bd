"""Which documents stay, given the pairs that are alike: the best ones, and no chains.

In the order of preference a document stays unless one that stays and is preferred is like it. So every
duplicate is like its own keeper, and a chain of documents, each like the next, does not collapse into one;
and documents that come later in the order never change what was decided before them. (A set of this kind is
the lexicographically first maximal independent set of the graph.) Joining all that hangs together, by
union-find, has neither property. One pass over the sorted pairs, or several over parts of them (``thin``).
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import kernel

STAYS: Final = 0
GOES: Final = 1
OPEN: Final = 2
"""What is known of a document: int8."""


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
    # Nothing is open, so that of each duplicate the one pair with its keeper is left.
    counts = thin(better, worse, np.full(num_documents, STAYS, np.int8))
    found = Keepers(np.arange(num_documents), np.ones(num_documents))
    found.keeper[worse[counts]] = better[counts]
    found.similarity[worse[counts]] = similarity[counts]
    return found


def thin(
    better: NDArray[np.int64], worse: NDArray[np.int64], state: NDArray[np.int8]
) -> NDArray[np.bool_]:
    """Which pairs still count: those whose better document does not go, and no keeper of the other is better.

    Documents and pairs are as those of ``choose``, which finds the same among the pairs that count as
    among all. ``state`` says what is known of each document, STAYS if nothing speaks against it in other
    pairs than these, and is brought up to date.

    >>> state = np.array([OPEN, STAYS, STAYS], np.int8)
    >>> thin(np.array([0, 1]), np.array([2, 2]), state), state
    (array([ True,  True]), array([2, 0, 1], dtype=int8))
    """
    order = np.argsort(worse * len(state) + better)
    counts = np.zeros(len(order), np.bool_)
    _thin(better, worse, order, state, counts)
    return counts


@kernel
def _thin(
    better: NDArray[np.int64],
    worse: NDArray[np.int64],
    order: NDArray[np.int64],
    state: NDArray[np.int8],
    counts: NDArray[np.bool_],
) -> None:
    for k in order:
        known = state[better[k]]  # all pairs that it is the worse one of came before
        if known != GOES and state[worse[k]] != GOES:
            counts[k] = True
            state[worse[k]] = GOES if known == STAYS else OPEN
