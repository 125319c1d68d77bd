"""LLVM intrinsics against Python integers and bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.bytes import simd
from etl.kernels.jit import kernel
from tests.helpers.bits import set_bits

SETS = (
    b"a",
    b"\x00\x01\xff",
    b"",
    bytes(range(0x80, 0x100)),
    b"acegik",
    b"\n\v\f\r\x1c\x1d\x1e\xc2\xe2",
)
EDGES = b"\x00\x01\n\x1e\x1f abckl\x7f\x80\xbf\xc0\xc2\xe2\xff"
_find = simd.make_byte_finder(*SETS)
texts = st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 255)), min_size=64, max_size=200)


@kernel
def _kinds(data, at):
    return _find(data, at)


@kernel
def _load(data, at):
    return simd.load_eight(data, at)


@kernel
def _equal(numbers, one, other):
    return simd.count_equal(numbers, one, other)


@kernel
def _copy(out, to, data, at):
    simd.copy_64(out, to, data, at)


@kernel
def _bit_counts(bits):
    return simd.count_ones(bits), simd.leading_zeros(bits), simd.first_bit(bits)


@given(texts, st.data())
def test_kinds_have_a_bit_for_each_member_of_a_set(text, data) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    masks = _kinds(np.array(text, np.uint8), at)
    for mask, members in zip(masks, SETS, strict=True):
        assert set_bits(mask) == [k for k, byte in enumerate(text[at : at + 64]) if byte in members]


@given(st.integers(-(2**63), 2**63 - 1))
def test_bit_counts_equal_those_of_the_binary_digits(number) -> None:
    digits = f"{number % 2**64:064b}"
    zeros = len(digits) - len(digits.lstrip("0")), len(digits) - len(digits.rstrip("0"))
    assert _bit_counts(number) == (digits.count("1"), *zeros)


@given(st.binary(min_size=8, max_size=40), st.data())
def test_load_returns_eight_bytes_as_a_little_endian_number(text, data) -> None:
    at = data.draw(st.integers(0, len(text) - 8))
    loaded = _load(np.frombuffer(text, np.uint8), at)
    assert loaded == int.from_bytes(text[at : at + 8], "little", signed=True)


@given(st.lists(st.integers(0, 1), min_size=16, max_size=16))
def test_equal_numbers_are_counted_up_to_the_first_difference(bits) -> None:
    pairs = [*zip(bits[:8], bits[8:], strict=True)]
    same = next((k for k, (one, other) in enumerate(pairs) if one != other), 8)
    assert _equal(np.array([9, *bits], np.int64), 1, 9) == same


@pytest.mark.parametrize("to", [0, 3])
def test_copy_writes_64_bytes(to: int) -> None:
    out = np.zeros(70, np.uint8)
    _copy(out, to, np.arange(1, 70, dtype=np.uint8), 2)
    assert out.tolist() == [0] * to + [*range(3, 67)] + [0] * (6 - to)
