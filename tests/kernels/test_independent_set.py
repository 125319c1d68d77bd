"""The choice of keepers against a few lines of Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.hashing import independent_set

Pairs = dict[tuple[int, int], float]

pairs = st.dictionaries(
    st.tuples(st.integers(0, 14), st.integers(0, 14)).filter(lambda pair: pair[0] < pair[1]),
    st.sampled_from([0.8, 0.85, 0.9, 1.0]),
    max_size=40,
)


def naive(num: int, known: Pairs) -> dict[int, tuple[int, float]]:
    """Return the keeper of each duplicate, and their similarity."""
    kept: list[int] = []
    duplicates = {}
    for document in range(num):
        similar = [k for k in kept if (k, document) in known]
        if similar:
            duplicates[document] = similar[0], known[similar[0], document]
        else:
            kept.append(document)
    return duplicates


def choose(num: int, known: Pairs, order=lambda pairs: pairs) -> dict[int, tuple[int, float]]:
    rows = order([(*pair, similarity) for pair, similarity in known.items()])
    better, worse = (np.array([row[column] for row in rows], np.int64) for column in range(2))
    chosen = np.flatnonzero(independent_set.choose_independent(num, better, worse))
    keepers = {rows[k][1]: (rows[k][0], rows[k][2]) for k in chosen}
    assert len(keepers) == len(chosen)
    return keepers


@given(pairs)
def test_keepers_are_those_of_python(known):
    assert choose(15, known) == naive(15, known)


@given(pairs, st.randoms())
def test_the_order_of_pairs_does_not_matter(known, rng):
    def shuffled(rows):
        rng.shuffle(rows)
        return rows

    assert choose(15, known, shuffled) == choose(15, known)


@given(pairs, st.integers(0, 15))
def test_later_documents_do_not_change_earlier_decisions(known, cut):
    before = {pair: value for pair, value in known.items() if max(pair) < cut}
    duplicates = choose(15, known)
    assert choose(cut, before) == {k: value for k, value in duplicates.items() if k < cut}


@given(pairs)
def test_a_duplicate_is_similar_to_its_keeper_which_is_kept(known):
    duplicates = choose(15, known)
    assert all(known[keeper, k] == value for k, (keeper, value) in duplicates.items())
    assert not {keeper for keeper, _ in duplicates.values()} & duplicates.keys()


@given(pairs, st.sets(st.integers(0, 14)))
def test_pairs_that_thin_drops_do_not_matter(known, undecided):
    """The documents in ``undecided`` may still be removed by other pairs."""
    better, worse = np.array([*known] or np.empty((0, 2)), np.int64).T
    state = np.full(15, independent_set.STAYS, np.int8)
    state[[*undecided]] = independent_set.OPEN
    is_left = independent_set.thin_pairs(better, worse, state)
    rest = {pair: value for pair, value in known.items() if is_left[[*known].index(pair)]}
    assert choose(15, rest) == choose(15, known)
    assert all(
        state[k] == independent_set.STAYS for k in range(15) if k not in {*worse, *undecided}
    )


def test_a_chain_does_not_collapse():
    duplicates = choose(100, {(k, k + 1): 0.9 for k in range(99)})
    assert duplicates == {k: (k - 1, 0.9) for k in range(1, 100, 2)}


def test_without_pairs_all_documents_are_kept():
    assert choose(0, {}) == choose(3, {}) == {}
