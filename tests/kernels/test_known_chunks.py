"""Chunks that are remembered against a dictionary of the last ones."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.jit import kernel
from etl.kernels.words import known_chunks

chunks = st.binary(min_size=1, max_size=24) | st.text("a.\0é", min_size=1, max_size=9).map(
    str.encode
)


@kernel
def _remember(known, data, end, starts):
    known_chunks.remember(known, known_chunks.chunk_key(data, 0, end), starts)


@kernel
def _recall(known, data, end):
    return known_chunks.recall(known, known_chunks.chunk_key(data, 0, end))


@kernel
def _remember_segments(known, data, block, first, end):
    known_chunks.remember_segments(data, known, block, first, end)


def padded(chunk: bytes) -> np.ndarray:
    return np.frombuffer(chunk.ljust(64, b"x"), np.uint8)


@given(st.lists(st.tuples(chunks, st.integers(1, 1 << 16))))
def test_a_chunk_is_recalled_as_it_was_stored_last_or_is_unknown(pairs):
    known = known_chunks.new_known_chunks()
    stored: dict[bytes, int] = {}
    for chunk, starts in pairs:
        assert _recall(known, padded(chunk), len(chunk)) in (0, stored.get(chunk, 0))
        _remember(known, padded(chunk), len(chunk), starts)
        if len(chunk) <= known_chunks.MAX_BYTES:
            stored[chunk] = starts
        assert _recall(known, padded(chunk), len(chunk)) == stored.get(chunk, 0)


@given(chunks, st.data())
def test_segments_of_short_chunks_in_ascii_are_stored(chunk, draw):
    cuts = sorted(
        draw.draw(st.sets(st.integers(1, len(chunk) - 1)) if len(chunk) > 1 else st.none()) or ()
    )
    rows = [(a, b, b - a, 0) for a, b in pairwise([0, *cuts, len(chunk)])]
    block = np.array([(0, 0, 0, 0), *rows], np.int64)
    known, is_stored = known_chunks.new_known_chunks(), chunk.isascii() and len(chunk) <= 16
    _remember_segments(known, padded(chunk), block, 1, len(block))
    starts = sum(1 << start for start, *_ in rows)
    assert _recall(known, padded(chunk), len(chunk)) == (starts if is_stored else 0)
