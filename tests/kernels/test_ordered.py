"""Sets by sorting against those of Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.hashing.sorted_sets import among, distinct, repeated

some = st.lists(st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)), max_size=20)


def array(values):
    return np.array(values, np.int64)


@given(some)
def test_each_once(values):
    assert distinct(array(values)).tolist() == sorted(set(values))


@given(some, some)
def test_those_among_others(values, others):
    found = among(array(values), array(others))
    assert found.tolist() == [value in others for value in values]


@given(some)
def test_those_that_are_there_again(values):
    found = repeated(array(values)).tolist()
    assert sorted(found) == [k for k, value in enumerate(values) if values.count(value) > 1]
    assert [values[k] for k in found] == sorted(values[k] for k in found)
