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
    """Duplicate -> keeper and likeness."""
    stays: list[int] = []
    found = {}
    for document in range(num):
        alike = [k for k in stays if (k, document) in known]
        if alike:
            found[document] = alike[0], known[alike[0], document]
        else:
            stays.append(document)
    return found


def choose(num: int, known: Pairs, order=lambda pairs: pairs) -> dict[int, tuple[int, float]]:
    listed = order([(*pair, likeness) for pair, likeness in known.items()])
    better, worse, likeness = (
        np.array([row[place] for row in listed], kind)
        for place, kind in enumerate((np.int64, np.int64, np.float64))
    )
    found = independent_set.choose(num, better, worse, likeness)
    named = zip(found.keeper.tolist(), found.similarity.tolist(), strict=True)
    return {k: (keeper, value) for k, (keeper, value) in enumerate(named) if keeper != k}


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
def test_what_comes_later_changes_nothing(known, cut):
    before = {pair: value for pair, value in known.items() if max(pair) < cut}
    found = choose(15, known)
    assert choose(cut, before) == {k: value for k, value in found.items() if k < cut}


@given(pairs)
def test_a_duplicate_is_like_its_keeper_who_stays(known):
    found = choose(15, known)
    assert all(known[keeper, k] == value for k, (keeper, value) in found.items())
    assert not {keeper for keeper, _ in found.values()} & found.keys()


def test_a_chain_does_not_collapse():
    found = choose(100, {(k, k + 1): 0.9 for k in range(99)})
    assert found == {k: (k - 1, 0.9) for k in range(1, 100, 2)}


def test_nothing_is_alike():
    assert choose(0, {}) == choose(3, {}) == {}
