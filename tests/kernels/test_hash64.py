"""Hashes against Python integers, which never overflow, also at the ends of the range."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import hash64, simd
from etl.kernels.jit import kernel

LOWEST, HIGHEST = -(2**63), 2**63 - 1
ends = st.sampled_from([LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST])
numbers = ends | st.integers(LOWEST, HIGHEST)


@kernel
def _arithmetic(one, other):
    return (
        hash64.wrapping_add(one, other),
        hash64.wrapping_subtract(one, other),
        hash64.wrapping_multiply(one, other),
    )


@kernel
def _hashes(key, number):
    return hash64.fnv_step(key, number), hash64.fold_hash(key, number), hash64.mix_bits(key)


@kernel
def _clear_first_bit(mask):
    return simd.clear_first_bit(mask)


@kernel
def _hash_bytes(data):
    return hash64.hash_bytes(data, 0, len(data))


def wrapped(number: int) -> int:
    """The low 64 bits of a number, as an int64."""
    return (number - LOWEST) % 2**64 + LOWEST


def fnv_step(key: int, number: int) -> int:
    return wrapped((key ^ number) * 0x100000001B3)


def mixed(key: int) -> int:
    key %= 2**64
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        key = (key ^ key >> 33) * factor % 2**64
    return wrapped(key ^ key >> 33)


def naive_hash(text: bytes) -> int:
    """The hash of at least eight bytes."""
    eights = [*range(0, len(text) - 8, 8), len(text) - 8]
    key = wrapped(len(text) << 56) ^ hash64.SEED
    for at in eights:
        number = int.from_bytes(text[at : at + 8], "little", signed=True)
        key = fnv_step(key, number)
        key ^= key >> 32 if at != eights[-1] else 0
    return key


@given(numbers, numbers)
@example(LOWEST, LOWEST)
@example(LOWEST, -1)
@example(HIGHEST, HIGHEST)
def test_arithmetic_wraps_around(one, other):
    results = wrapped(one + other), wrapped(one - other), wrapped(one * other)
    assert _arithmetic(one, other) == results


@given(numbers, numbers)
@example(LOWEST, HIGHEST)
def test_hashes_equal_those_of_python_integers(key, number):
    step = fnv_step(key, number)
    assert _hashes(key, number) == (step, step ^ (step >> 32 & 0xFFFFFFFF), mixed(key))


@given(numbers)
@example(LOWEST)
def test_the_first_bit_is_cleared_from_any_mask(mask):
    bits = mask % 2**64
    assert _clear_first_bit(mask) == wrapped(bits & bits - 1 if bits else 0)


@given(st.binary(min_size=8, max_size=70))
@example(b"\xff" * 64)
@example(b"\x80" * 33)
def test_bytes_are_hashed_eight_at_a_time(text):
    assert _hash_bytes(np.frombuffer(text, np.uint8)) == naive_hash(text)


def test_hashes_are_a_stored_format():
    """Lakes hold such hashes, so they must not change."""
    assert _hash_bytes(np.frombuffer(b"paragraph", np.uint8)) == 1385627418742340656
    assert _hashes(hash64.SEED, 97)[0] == wrapped(0xAF63DC4C8601EC8C)  # FNV-1a of "a"
