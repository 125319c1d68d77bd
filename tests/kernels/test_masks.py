"""64 bytes at once against one after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.bytes import simd
from etl.kernels.jit import kernel
from etl.kernels.words import spacy_english
from etl.kernels.words.spacy_ascii import find_kinds

SETS = (
    b"a",
    b"\x00\x01\xff",
    b"",
    bytes(range(0x80, 0x100)),
    b"acegik",
    b"\n\v\f\r\x1c\x1d\x1e\xc2\xe2",
)
EDGES = b"\x00\x01\n\x1e\x1f abckl\x7f\x80\xbf\xc0\xc2\xe2\xff"
_find = simd.kinds(*SETS)
texts = st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 255)), min_size=64, max_size=200)


@kernel
def _kinds(data, at):
    return _find(data, at)


@kernel
def _bits(first, last):
    return (
        simd.low_bits(last),
        simd.bits_between(first, last),
        simd.first_bit(simd.bits_between(first, last)),
    )


@kernel
def _copy(out, to, data, at):
    simd.copy(out, to, data, at)


@kernel
def _of_english(data, at):
    return find_kinds(data, at)


def _set(mask: int) -> list[int]:
    return [k for k in range(64) if int(mask) >> k & 1]


@given(texts, st.data())
def test_kinds(text, data) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    found = _kinds(np.array(text, np.uint8), at)
    for mask, bytes_of in zip(found, SETS, strict=True):
        assert _set(mask) == [k for k, byte in enumerate(text[at : at + 64]) if byte in bytes_of]


@given(st.integers(0, 200), st.integers(0, 200))
def test_bits(first, last) -> None:
    lowest, between, place = _bits(first, last)
    assert _set(lowest) == [*range(min(last, 64))]
    assert _set(between) == [*range(first, min(last, 64))]
    assert place == (first if first < min(last, 64) else 64)


@pytest.mark.parametrize("to", [0, 3])
def test_a_copy_is_64_bytes(to: int) -> None:
    out = np.zeros(70, np.uint8)
    _copy(out, to, np.arange(1, 70, dtype=np.uint8), 2)
    assert out.tolist() == [0] * to + [*range(3, 67)] + [0] * (6 - to)


def test_the_kinds_of_ascii_are_those_of_the_tables() -> None:
    flags = spacy_english.tables().flags[:128]
    found = [
        np.array([mask >> k & 1 for half in (0, 64) for k, mask in _both(half, place)], bool)
        for place in range(len(_of_english(np.zeros(64, np.uint8), 0)))
    ]
    cut_off, only_in_front = found[2], found[3]
    assert (
        found[0] == ((flags & spacy_english.UPPER > 0) & (flags & spacy_english.LOWER == 0))
    ).all()
    assert (found[1] == (flags & spacy_english.DIGIT > 0)).all()
    assert (cut_off == (flags & spacy_english.PREFIX > 0)).all()
    assert ((cut_off & ~only_in_front) == (flags & spacy_english.SUFFIX > 0)).all()
    assert (found[14] == (flags & spacy_english.QUOTE > 0)).all()
    words = flags & (spacy_english.LETTER | spacy_english.DIGIT) > 0
    assert ((flags & (spacy_english.NO_WORD | spacy_english.SPACE) > 0) == ~words).all()


def _both(half: int, place: int):
    mask = _of_english(np.arange(half, half + 64, dtype=np.uint8), 0)[place]
    return ((k, mask) for k in range(64))
