"""Set operations by sorting against lists and sets of Python."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.hashing.sorted_sets import among, between, distinct, repeated

numbers = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
lists = st.lists(numbers, max_size=20)


def array(values):
    return np.array(values, np.int64)


@given(lists)
def test_distinct_values_are_those_of_a_set(values):
    assert distinct(array(values)).tolist() == sorted(set(values))


@given(lists, numbers, numbers)
def test_between_includes_both_bounds(values, low, high):
    values.sort()
    expected = [value for value in values if low <= value <= high]
    assert between(array(values), low, high).tolist() == expected


@given(lists, lists)
def test_among_marks_the_values_in_the_other_list(values, others):
    mask = among(array(values), array(others))
    assert mask.tolist() == [value in others for value in values]


@given(lists)
def test_repeated_positions_are_ordered_by_value(values):
    positions = repeated(array(values)).tolist()
    assert sorted(positions) == [k for k, value in enumerate(values) if values.count(value) > 1]
    assert [values[k] for k in positions] == sorted(values[k] for k in positions)
