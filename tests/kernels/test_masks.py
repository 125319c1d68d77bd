"""64 bytes at once against one after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels import english, machine, masks
from etl.kernels.ascii_chunks import find_kinds
from etl.kernels.jit import kernel

SETS = (
    b"a",
    b"\x00\x01\xff",
    b"",
    bytes(range(0x80, 0x100)),
    b"acegik",
    b"\n\v\f\r\x1c\x1d\x1e\xc2\xe2",
)
EDGES = b"\x00\x01\n\x1e\x1f abckl\x7f\x80\xbf\xc0\xc2\xe2\xff"
_find = machine.kinds(*SETS)
texts = st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 255)), min_size=64, max_size=200)


@kernel
def _kinds(data, at):
    return _find(data, at)


@kernel
def _bits(first, last):
    return masks.lowest(last), masks.between(first, last), masks.first(masks.between(first, last))


@kernel
def _copy(out, to, data, at):
    machine.copy(out, to, data, at)


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
    flags = english.tables().flags[:128]
    found = [
        np.array([mask >> k & 1 for half in (0, 64) for k, mask in _both(half, place)], bool)
        for place in range(len(_of_english(np.zeros(64, np.uint8), 0)))
    ]
    cut_off, only_in_front = found[2], found[3]
    assert (found[0] == ((flags & english.UPPER > 0) & (flags & english.LOWER == 0))).all()
    assert (found[1] == (flags & english.DIGIT > 0)).all()
    assert (cut_off == (flags & english.PREFIX > 0)).all()
    assert ((cut_off & ~only_in_front) == (flags & english.SUFFIX > 0)).all()
    assert (found[14] == (flags & english.QUOTE > 0)).all()
    words = flags & (english.LETTER | english.DIGIT) > 0
    assert ((flags & (english.NO_WORD | english.SPACE) > 0) == ~words).all()


def _both(half: int, place: int):
    mask = _of_english(np.arange(half, half + 64, dtype=np.uint8), 0)[place]
    return ((k, mask) for k in range(64))
