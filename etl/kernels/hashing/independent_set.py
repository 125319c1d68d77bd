"""Choose the documents to keep among similar pairs: the preferred ones, without chains.

Documents are visited in the order of preference. A document is kept unless it is similar to a document that
is kept already. Every duplicate is therefore similar to its own keeper; a chain of documents, each similar
to the next, does not collapse into one; and documents later in the order never change earlier decisions.
(Such a set is the lexicographically first maximal independent set of the graph.) Connected components, by
union-find, have neither property. One pass over the sorted pairs, or several over parts of them
(``thin_pairs``).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import kernel

STAYS: Final = 0
GOES: Final = 1
OPEN: Final = 2
"""The state of a document, int8: kept, removed, or not decided yet."""


def choose_independent(
    num_documents: int, better: NDArray[np.int64], worse: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which pairs consist of a duplicate and its keeper: the best document kept and similar to it.

    Documents are numbered in the order of preference; the best is 0. Pair ``k`` consists of the similar
    documents ``better[k] < worse[k]``. A document that is the worse one in no pair returned is kept.

    >>> choose_independent(3, np.array([0, 1]), np.array([1, 2]))
    array([ True, False])
    """
    # No document is OPEN, so one pair is left for each duplicate: the one with its keeper.
    return thin_pairs(better, worse, np.full(num_documents, STAYS, np.int8))


def thin_pairs(
    better: NDArray[np.int64], worse: NDArray[np.int64], state: NDArray[np.int8]
) -> NDArray[np.bool_]:
    """Return the pairs that can still matter, as a mask, and update ``state``.

    A pair can matter if its better document is not removed and its worse document has no keeper that is
    better still. Documents and pairs are as in ``choose_independent``, which returns the same result for
    the remaining pairs as for all. ``state`` is the state of each document; start with STAYS for a document
    that no pair outside this call can remove.

    >>> state = np.array([OPEN, STAYS, STAYS], np.int8)
    >>> thin_pairs(np.array([0, 1]), np.array([2, 2]), state), state
    (array([ True,  True]), array([2, 0, 1], dtype=int8))
    """
    # By worse document, best first, so that all pairs that decide a document come before those in which
    # it is the better one; within these by better document, so that the best keeper comes first.
    order = np.argsort(worse * len(state) + better)
    is_left = np.zeros(len(order), np.bool_)
    _thin_pairs(better, worse, order, state, is_left)
    return is_left


@kernel
def _thin_pairs(
    better: NDArray[np.int64],
    worse: NDArray[np.int64],
    order: NDArray[np.int64],
    state: NDArray[np.int8],
    is_left: NDArray[np.bool_],
) -> None:
    for k in order:
        better_state = state[better[k]]  # final: the pairs in which it is the worse one came before
        # A worse document that goes already has a keeper that is better than this one. A better document
        # that is open leaves its worse document open, unless a later pair has a keeper that stays.
        if better_state != GOES and state[worse[k]] != GOES:
            is_left[k] = True
            state[worse[k]] = GOES if better_state == STAYS else OPEN
