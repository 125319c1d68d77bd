"""Remember where the segments of short chunks begin.

Most chunks with punctuation (``</td>``, ``[**Note**``, ``1.2``) occur again soon, and looking one up takes a
fraction of the time of the rules. A chunk replaces the one in its slot, and is compared byte by byte.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.hash64 import wrapping_multiply
from etl.kernels.bytes.simd import load_up_to_eight
from etl.kernels.jit import allocator, inner, rare
from etl.kernels.words.uax29 import END, START, Segments

MAX_BYTES: Final = 16
"""The size of the longest chunk that is remembered."""

_SLOT_BITS: Final = 12  # 4,096 chunks, 128 KB: in 16 times as many, 8 % more were found
_LOW, _HIGH, _SIZE, _STARTS = range(4)  # columns; a size of 0 is an empty slot
_HIGH_BITS: Final = -0x7F7F7F7F7F7F7F80  # of eight bytes
_MIX, _MIX_MORE = -49064778989728563, -4265267296055464877  # MurmurHash3's finalizer


class ChunkKey(NamedTuple):
    """The bytes of a chunk as numbers."""

    low: int  # the first eight
    high: int  # the next eight
    size: int  # of the chunk, which may be longer
    slot: int


@allocator
def new_known_chunks() -> NDArray[np.int64]:
    """Return a table without chunks. The same rules must cut all chunks of a table."""
    return np.zeros((1 << _SLOT_BITS, 4), np.int64)


@inner
def chunk_key(data: NDArray[np.uint8], start: int, end: int) -> ChunkKey:
    """Return the key of a chunk."""
    low = load_up_to_eight(data, start, end)
    high = load_up_to_eight(data, start + 8, max(end, start + 8))
    # Chunks of up to 16 bytes are compared by these two numbers and the size. A slot has one chunk, the
    # latest, so nothing is searched.
    mixed = wrapping_multiply(low ^ wrapping_multiply(high, _MIX), _MIX_MORE)
    return ChunkKey(low, high, end - start, mixed >> 64 - _SLOT_BITS & (1 << _SLOT_BITS) - 1)


@inner
def recall(known: NDArray[np.int64], key: ChunkKey) -> int:
    """Return a mask of where the segments of a chunk begin, or 0 if that is unknown."""
    slot = key.slot
    differs = known[slot, _LOW] ^ key.low | known[slot, _HIGH] ^ key.high
    differs |= known[slot, _SIZE] ^ key.size
    starts: int = known[slot, _STARTS] if differs == 0 else np.int64(0)
    return starts


@inner
def remember(known: NDArray[np.int64], key: ChunkKey, starts: int) -> None:
    """Store where the segments of a chunk begin, unless it is too long."""
    if key.size <= MAX_BYTES:
        slot = key.slot
        known[slot, _LOW], known[slot, _HIGH] = key.low, key.high
        known[slot, _SIZE], known[slot, _STARTS] = key.size, starts


@rare
def remember_segments(
    data: NDArray[np.uint8], known: NDArray[np.int64], block: Segments, first: int, end: int
) -> None:
    """Store where the segments of a chunk begin, given their rows of a block, if the chunk is in ASCII."""
    if first == end or block[end - 1, END] - block[first, START] > MAX_BYTES:
        return
    key, starts = chunk_key(data, block[first, START], block[end - 1, END]), np.int64(0)
    for k in range(first, end):
        starts |= np.int64(1) << block[k, START] - block[first, START]
    if (key.low | key.high) & _HIGH_BITS == 0:
        remember(known, key, starts)
