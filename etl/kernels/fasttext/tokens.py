"""Divide a text into tokens, as fastText does, 64 bytes at once.

Space, tab, line feed, vertical tab, form feed, carriage return and NUL separate tokens. With ``lines``, so
does every character that ends a line, such as U+2028.
"""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.simd import (
    CONTINUED,
    SIZE,
    bits_between,
    clear_first_bit,
    count_ones,
    first_bit,
    low_bits,
    make_byte_finder,
)
from etl.kernels.jit import inner

_find_spaces = make_byte_finder(b"\0\t\n\v\f\r ", b"\x1c\x1d\x1e", b"\xc2\xe2")
_find_continued = make_byte_finder(CONTINUED)


@inner
def cut(data: NDArray[np.uint8], at: int, end: int, max_chars: int) -> int:
    """Return the byte after the first ``max_chars`` characters."""
    if end - at <= max_chars:
        return end
    while at < end:
        starts = ~_find_continued(data, at)[0] & low_bits(end - at)
        num_starts = count_ones(starts)
        if num_starts > max_chars:
            for _ in range(max_chars):
                starts = clear_first_bit(starts)
            return at + first_bit(starts)
        max_chars -= num_starts
        at += SIZE
    return end


@inner
def next_token(
    data: NDArray[np.uint8], begin: int, end: int, lines: bool, block: int, inside: int
) -> tuple[int, int, int, int]:
    """Return where the next token of a text begins and ends, both ``end`` if there is none, and a new state.

    The state: where a block of 64 bytes begins, and a mask of those that belong to tokens not yet returned.
    The first one is ``(begin - 64, 0)``.
    """
    while inside == 0:
        block += SIZE
        if block >= end:
            return end, end, block, inside
        inside = _inside_tokens(data, begin, end, lines, block)
    first = first_bit(inside)
    start = block + first
    outside = ~inside & np.int64(-1) << first
    while outside == 0:
        block += SIZE
        inside = _inside_tokens(data, begin, end, lines, block) if block < end else 0
        outside = ~inside
    last = first_bit(outside)
    return start, block + last, block, inside & np.int64(-1) << last


@inner
def _inside_tokens(data: NDArray[np.uint8], begin: int, end: int, lines: bool, block: int) -> int:
    """Return a mask of the bytes of a block that belong to tokens."""
    spaces, breaks, leads = _find_spaces(data, block)
    if lines:
        spaces |= breaks
        at = max(begin, block - 2)  # a line break of three bytes may begin in the last block
        while at < min(end, block + SIZE):
            after = at + _break_width(data, at, end) - block
            spaces |= bits_between(max(at - block, 0), max(after, 0))
            at += 1
            if at > block:
                at = block + first_bit(leads)
                leads = clear_first_bit(leads)
    return ~spaces & low_bits(end - block)


@inner
def _break_width(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the bytes of the line break of two or three bytes at an offset, or 0."""
    if data[at] == 0xC2:
        return 2 if at + 1 < end and data[at + 1] == 0x85 else 0
    if at + 2 < end and data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] & 0xFE == 0xA8:
        return 3
    return 0
