"""Numbers of equal keys against ``list.index`` and ``list.count``."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.hashing.equal_keys import SLOTS_PER_KEY, number_keys, scatter_key
from etl.kernels.jit import kernel

keys_in_table = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)


@kernel
def _scatter(key):
    return scatter_key(key)


def numbered(keys: list[int], table: np.ndarray) -> tuple[list[int], list[int]]:
    firsts, counts = np.empty(len(keys), np.uint32), np.empty(len(keys), np.int32)
    number_keys(np.array([*keys, 0], np.int64), len(keys), firsts, counts, table)
    return firsts.tolist(), counts.tolist()


def naive(keys: list[int]) -> tuple[list[int], list[int]]:
    firsts = [keys.index(key) for key in keys]
    counts = [keys.count(key) if keys.index(key) == k else 0 for k, key in enumerate(keys)]
    return firsts, counts


@given(st.lists(keys_in_table, max_size=40))
@example([k << 32 for k in range(40)])  # equal lower halves
def test_firsts_and_counts_are_those_of_lists(keys):
    assert numbered(keys, np.empty(SLOTS_PER_KEY * max(1, len(keys)), np.uint32)) == naive(keys)


@given(st.lists(st.lists(keys_in_table, max_size=20), max_size=4))
def test_a_table_can_be_reused(batches):
    table = np.empty(SLOTS_PER_KEY * 20, np.uint32)
    for keys in batches:
        assert numbered(keys, table) == naive(keys)


@given(st.sets(keys_in_table, max_size=40))
def test_different_keys_stay_different_when_mixed(keys):
    assert len({_scatter(key) for key in keys}) == len(keys)
