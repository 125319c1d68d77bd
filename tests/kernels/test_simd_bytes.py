"""Eight bytes in a register against one byte after the other."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import simd
from etl.kernels.bytes.hash64 import hash_bytes
from etl.kernels.jit import kernel

EDGES = b"\x00\t\n\x1f !.?[{@AZ`az\x7f\x80\xbf\xc2\xe2\xff"
texts = st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 255)), min_size=1, max_size=40)


@kernel
def _head_and_hash(data, at, end):
    return simd.load_up_to_eight(data, at, end), hash_bytes(data, at, end)


@given(texts, st.data())
def test_the_head_is_the_first_eight_bytes(text, data) -> None:
    at, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    head, _ = _head_and_hash(bytes_of(text), at, end)
    assert int(head) & 2**64 - 1 == int.from_bytes(bytes(text[at:end][:8]), "little")


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=8))
@example([([1] * 9, [1] * 10), ([0], [0, 0]), ([1] * 16, [1] * 15)])
def test_hashes_are_equal_for_equal_strings_at_any_offset(pairs) -> None:
    for one, other in pairs:
        hashes = [
            _head_and_hash(bytes_of([7, *text, *rest]), 1, 1 + len(text))[1]
            for text, rest in ((one, []), (other, [9] * 11), (one, [1, 2, 3]))
        ]
        assert hashes[0] == hashes[2]
        assert (hashes[0] == hashes[1]) == (one == other)


def bytes_of(numbers) -> np.ndarray:
    return np.array(list(numbers), np.uint8)
