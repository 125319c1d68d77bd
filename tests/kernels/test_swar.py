"""Eight bytes at once against one after the other."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels import machine, swar
from etl.kernels.jit import kernel

EDGES = b"\x00\t\n\x1f !.?[{@AZ`az\x7f\x80\xbf\xc2\xe2\xff"
texts = st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 255)), min_size=1, max_size=40)


@kernel
def _masks(data, at, byte):
    eight = machine.load(data, at)
    found = np.empty(4, np.int64)
    found[0] = swar.equal(eight, byte)
    found[1] = swar.below(eight, min(byte, 0x80))
    found[2] = swar.letters(eight)
    found[3] = swar.continued(eight)
    return found, swar.first(found[0]), swar.behind(found[0]), machine.num_set(found[0])


@kernel
def _ranges(data, at, end, byte):
    return (
        swar.head(data, at, end),
        swar.num_equal(data, at, end, byte),
        swar.find(data, at, end, byte),
        swar.hashed(data, at, end),
    )


@kernel
def _pair(data, at, one, other):
    return swar.has_pair(machine.load(data, at), machine.load(data, at + 1), one, other)


@kernel
def _copy(data, out, at, to):
    machine.store(out, to, machine.load(data, at))


def _of(mask: int) -> list[int]:
    """The bytes of a mask; all bits but the highest of each byte are 0."""
    mask = int(mask) & 2**64 - 1
    assert mask & 0x7F7F7F7F7F7F7F7F == 0
    return [k for k in range(8) if mask >> 8 * k & 0x80]


@given(texts.map(lambda text: text + [0] * 8), st.data())
def test_masks(text, data) -> None:
    at = data.draw(st.integers(0, len(text) - 8))
    byte = data.draw(st.one_of(st.sampled_from(text), st.integers(0, 255)))
    some = text[at : at + 8]
    (equal, below, letters, continued), first, behind, num = _masks(bytes_of(text), at, byte)
    places = [k for k in range(8) if some[k] == byte]
    assert _of(equal) == places
    assert (first, behind, num) == (
        min(places, default=8),
        7 - max(places) if places else 8,
        len(places),
    )
    assert _of(below) == [k for k in range(8) if some[k] < min(byte, 0x80)]
    assert _of(letters) == [k for k in range(8) if some[k] < 0x80 and chr(some[k]).isalpha()]
    assert _of(continued) == [k for k in range(8) if some[k] & 0xC0 == 0x80]


@given(texts, st.data())
def test_ranges(text, data) -> None:
    at, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    byte = data.draw(st.sampled_from(text))
    some = text[at:end]
    head, num, place, _ = _ranges(bytes_of(text), at, end, byte)
    assert int(head) & 2**64 - 1 == int.from_bytes(bytes(some[:8]), "little")
    assert num == some.count(byte)
    assert place == (at + some.index(byte) if byte in some else end)


@given(texts.map(lambda text: text + [0] * 9), st.data())
def test_pairs(text, data) -> None:
    at = data.draw(st.integers(0, len(text) - 9))
    one, other = data.draw(st.tuples(st.sampled_from(text), st.sampled_from(text)))
    has = any(text[k] == one and text[k + 1] == other for k in range(at, at + 8))
    assert _pair(bytes_of(text), at, one, other) == has


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8))
@example([([1] * 9, [1] * 10), ([0], [0, 0]), ([1] * 16, [1] * 15)])
def test_a_hash_tells_strings_apart_wherever_they_stand(pairs) -> None:
    for one, other in pairs:
        hashes = [
            _ranges(bytes_of([7, *text, *rest]), 1, 1 + len(text), 0)[3]
            for text, rest in ((one, []), (other, [9] * 11), (one, [1, 2, 3]))
        ]
        assert hashes[0] == hashes[2]
        assert (hashes[0] == hashes[1]) == (one == other)


@pytest.mark.parametrize("to", [0, 1, 3])
def test_a_copy_is_eight_bytes(to: int) -> None:
    out = np.full(12, 255, np.uint8)
    _copy(bytes_of(range(9)), out, 1, to)
    assert out.tolist() == [255] * to + [1, 2, 3, 4, 5, 6, 7, 8] + [255] * (4 - to)


def bytes_of(text) -> np.ndarray:
    """The numbers as an array of bytes."""
    return np.array(list(text), np.uint8)
