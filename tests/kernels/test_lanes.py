"""Intrinsics for 16 numbers against NumPy and Python integers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.bytes import lanes
from etl.kernels.jit import kernel


@kernel
def _load_float(data, at):
    return lanes.load_float(data, at)


@kernel
def _add(sums, first, data, at):
    lanes.add_floats(sums, first, data, at)


@kernel
def _add_rows(sums, data, rows, first, last, size):
    lanes.add_rows(sums, 1, data, 2, rows, first, last, size)


@kernel
def _step(out, hashes, codes):
    lanes.fnv_steps(out, 2, hashes, 1, codes, 3)


@kernel
def _fill(numbers, first, value):
    lanes.fill_lanes(numbers, first, value)


@kernel
def _load_32(data, at, size):
    lanes.prefetch(data, at)
    return lanes.load_32(data, at, size)


@kernel
def _copy(out, data, at, place):
    lanes.copy_replacing(out, data, at, place, 60, 62)


@given(offset=st.integers(0, 7), first=st.integers(0, 5))
def test_floats_are_read_and_added_at_any_offset(offset, first):
    numbers = np.arange(40, dtype=np.float32) / 7
    data = np.frombuffer(b"\0" * offset + numbers.tobytes(), np.uint8)
    assert _load_float(data, offset + 4 * first) == numbers[first]
    sums = np.ones(30, np.float32)
    _add(sums, first, data, offset + 8)
    expected = np.ones(30, np.float32)
    expected[first : first + lanes.LANES] += numbers[2 : 2 + lanes.LANES]
    assert sums.tolist() == expected.tolist()


@given(
    rows=st.lists(st.integers(0, 9), max_size=8), skipped=st.integers(0, 3), size=st.integers(1, 20)
)
def test_rows_are_added_in_order(rows, skipped, size):
    data = np.arange(9 * size + 18, dtype=np.float32) / 7
    sums, expected = np.ones(18, np.float32), np.ones(18, np.float32)
    for row in rows[skipped:]:
        expected[1:17] += data[row * size + 2 :][:16]
    _add_rows(sums, data, np.array(rows, np.int32), min(skipped, len(rows)), len(rows), size)
    assert sums.tolist() == expected.tolist()


@given(codes=st.lists(st.integers(0, 255), min_size=20, max_size=20))
def test_a_step_of_fnv_takes_bytes_as_signed(codes):
    hashes, out = np.arange(18, dtype=np.uint32) * 123_456_789, np.zeros(18, np.uint32)
    signed = np.array(codes, np.uint8).view(np.int8).tolist()
    expected = [
        (hashed ^ code & 0xFFFFFFFF) * lanes.FNV_PRIME & 0xFFFFFFFF
        for hashed, code in zip(hashes[1:17].tolist(), signed[3:19], strict=True)
    ]
    _step(out, hashes, np.array(codes, np.uint8))
    assert out.tolist() == [0, 0, *expected]


def test_a_number_is_stored_in_all_lanes():
    for kind in (np.float32, np.int32):
        numbers = np.zeros(19, kind)
        _fill(numbers, 2, 7)
        assert numbers.tolist() == [0, 0, *[7] * 16, 0]


@given(text=st.binary(min_size=40, max_size=40), at=st.integers(0, 8), size=st.integers(0, 32))
def test_up_to_32_bytes_are_four_numbers(text, at, size):
    numbers = _load_32(np.frombuffer(text, np.uint8), at, size)
    assert np.array(numbers, np.int64).tobytes() == text[at : at + size].ljust(32, b"\0")


@given(text=st.binary(min_size=70, max_size=70), at=st.integers(0, 6), place=st.integers(1, 63))
def test_two_of_64_copied_bytes_are_replaced(text, at, place):
    out = np.zeros(64, np.uint8)
    _copy(out, np.frombuffer(text, np.uint8), at, place)
    copied = bytearray(text[at : at + 64])
    copied[0], copied[place] = b"<>"
    assert out.tobytes() == bytes(copied)
