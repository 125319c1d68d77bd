"""Masks of 64 bits against lists of bit numbers."""

from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.bytes import simd
from etl.kernels.jit import kernel
from tests.helpers.bits import set_bits


@kernel
def _masks(first, last):
    return (
        simd.low_bits(last),
        simd.bits_between(first, last),
        simd.first_bit(simd.bits_between(first, last)),
    )


@given(st.integers(0, 200), st.integers(0, 200))
def test_masks_have_the_bits_of_a_range(first, last) -> None:
    lowest, between, index = _masks(first, last)
    assert set_bits(lowest) == [*range(min(last, 64))]
    assert set_bits(between) == [*range(first, min(last, 64))]
    assert index == (first if first < min(last, 64) else 64)
