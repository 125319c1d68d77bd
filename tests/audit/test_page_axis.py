"""Axes: every value is in the bin whose edges surround it, and limits nearby are on the axis."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.audit.page.axis import BINS, Axis

NUMBERS = st.floats(-1e6, 1e9, allow_nan=False)
VALUES = st.lists(NUMBERS, min_size=1, max_size=50) | st.lists(
    st.integers(0, 1000).map(float), min_size=1, max_size=50
)


@given(VALUES, st.lists(NUMBERS, max_size=3))
def test_a_value_is_in_the_bin_between_its_edges(values: list[float], limits: list[float]) -> None:
    numbers = np.array(values)
    axis = Axis.over(numbers, limits)
    assert axis.low < axis.high
    assert 1 <= axis.bins <= BINS
    assert len(axis.edges) == axis.bins + 1
    assert (np.diff(axis.edges) > 0).all()
    inside = np.clip(numbers, axis.low, axis.high)
    bins = axis.bins_of(numbers)
    slack = 1e-6 * (1 + np.abs(inside))
    assert (axis.edges[bins] <= inside + slack).all()
    assert (inside <= axis.edges[bins + 1] + slack).all()
    assert all(axis.includes(tick) for tick in axis.ticks())
    assert all(0 <= axis.position(value) <= 1 for value in values)


@given(VALUES)
def test_positions_are_in_the_order_of_the_values(values: list[float]) -> None:
    axis = Axis.over(np.array(values), [])
    positions = [axis.position(value) for value in sorted(values)]
    assert positions == sorted(positions)


def test_bins_of_integers_have_the_same_number_of_integers() -> None:
    axis = Axis.over(np.arange(100.0, 200.0), [])
    assert np.diff(axis.edges).tolist() == [axis.edges[1] - axis.edges[0]] * axis.bins
    assert (axis.edges[1] - axis.edges[0]) % 1 == 0


def test_a_limit_far_from_all_values_does_not_squeeze_them() -> None:
    values = np.linspace(0.4, 0.6, 100)
    assert Axis.over(values, [0.7]).includes(0.7)
    assert not Axis.over(values, [90.0]).includes(90.0)
