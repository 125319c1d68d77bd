"""Hash the n-grams of characters of tokens, as fastText does: FNV-1a of their bytes.

The n-grams that begin in 16 bytes of ``<token>`` are hashed together, one more byte in each step: a lane for
each byte has the hash of the bytes from there on. Then those that begin and end with characters are selected.

A bracket alone is not an n-gram. Continuation bytes belong to the character before them, whatever it is.
N-grams of more than four bytes a character, which are not UTF-8, end before.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.lanes import FNV_BASIS, LANES, copy_replacing, fnv_steps
from etl.kernels.bytes.simd import (
    CONTINUED,
    NOT_ASCII,
    SIZE,
    clear_first_bit,
    copy_64,
    copy_items,
    first_bit,
    low_bits,
    make_byte_finder,
)
from etl.kernels.fasttext.model import aligned_zeros
from etl.kernels.jit import inner

_MAX_WIDTH: Final = 4  # of a character, in bytes
_OPENING, _CLOSING = 60, 62

_find_not_ascii = make_byte_finder(NOT_ASCII)
_find_continued = make_byte_finder(CONTINUED)


class NgramLanes(NamedTuple):
    """Buffers for 64 bytes of a token, and those after them that its n-grams need."""

    codes: NDArray[np.uint8]  # of ``<token>``
    starts: NDArray[np.int64]  # of characters, then the end
    hashes: NDArray[np.uint32]  # (4 max_chars + 1, LANES) of as many bytes as the row's number


def make_lanes(max_chars: int) -> NgramLanes:
    """Return buffers for n-grams of up to ``max_chars`` characters."""
    reach = _MAX_WIDTH * max_chars
    hashes = aligned_zeros((reach + 1) * LANES, np.uint32)
    hashes[:LANES] = FNV_BASIS
    starts = np.zeros(SIZE + reach + max_chars, np.int64)
    return NgramLanes(np.zeros(3 * SIZE + reach, np.uint8), starts, hashes)


@inner
def hash_ngrams(
    data: NDArray[np.uint8],
    at: int,
    stop: int,
    part: int,
    chars: tuple[int, int],
    lanes: NgramLanes,
    hashes: NDArray[np.uint32],
    size: int,
) -> int:
    """Store the hashes of n-grams of a token from ``size`` on, and return where the next one is to be stored.

    The n-grams are those that begin in the 64 bytes of ``<token>`` from ``part`` on, and have at least
    ``chars[0]`` and at most ``chars[1]`` characters.
    """
    rest = stop - at + 2 - part
    if rest <= SIZE and part == 0 and at > 0 and at - 1 + SIZE <= len(data):
        copy_replacing(lanes.codes, data, at - 1, rest - 1, _OPENING, _CLOSING)
    else:
        _load_part(data, at, stop, part, SIZE + _MAX_WIDTH * chars[1], lanes.codes)
    # With n = 1, ``<`` and ``>`` alone would have to be left out, which only the slower path does.
    if chars[0] > 1 and _is_ascii(lanes.codes, min(rest, SIZE + chars[1])):
        return _hash_ascii(rest, chars, lanes, hashes, size)
    return _hash_wide(rest, part == 0, chars, lanes, hashes, size)


@inner
def _load_part(
    data: NDArray[np.uint8], at: int, stop: int, part: int, size: int, codes: NDArray[np.uint8]
) -> None:
    """Store up to ``size`` bytes of ``<token>`` from ``part`` on."""
    to = 1 if part == 0 else 0
    first = at + part - 1 + to
    codes[0] = _OPENING
    num = min(stop - first, size - to)
    copy_items(codes, to, data, first, num)
    codes[to + num] = _CLOSING  # unless this is after ``size`` bytes, the end


@inner
def _is_ascii(codes: NDArray[np.uint8], size: int) -> bool:
    """Return whether the first bytes are ASCII."""
    for block in range(0, size, SIZE):
        if _find_not_ascii(codes, block)[0] & low_bits(size - block):
            return False
    return True


@inner
def _hash_ascii(
    rest: int, chars: tuple[int, int], lanes: NgramLanes, hashes: NDArray[np.uint32], size: int
) -> int:
    """Store the hashes of the n-grams of ``rest`` characters of one byte; only for n > 1."""
    # Row n has the hashes of n bytes from each of LANES bytes on. A step extends all of them by a byte,
    # so that the n-grams of a token are hashed side by side.
    least, most = chars
    for first in range(0, min(rest, SIZE), LANES):
        for n in range(1, most + 1):
            row = n * LANES
            fnv_steps(lanes.hashes, row, lanes.hashes, row - LANES, lanes.codes, first + n - 1)
            copy_64(hashes, size, lanes.hashes, row)
            if n >= least:
                # Lanes that would run past the end are overwritten by the next hashes.
                size += min(max(rest - n + 1 - first, 0), LANES)
    return size


@inner
def _hash_wide(
    rest: int,
    opened: bool,
    chars: tuple[int, int],
    lanes: NgramLanes,
    hashes: NDArray[np.uint32],
    size: int,
) -> int:
    """Store the hashes of the n-grams that begin in 64 of ``rest`` bytes."""
    least, most = max(chars[0], 1), chars[1]
    reach = _MAX_WIDTH * most
    num_chars, longest = _find_starts(min(rest, SIZE + reach), most, lanes)
    starts, k = lanes.starts, 0
    for first in range(0, min(rest, SIZE), LANES):
        for length in range(1, min(longest, reach) + 1):
            row = length * LANES
            fnv_steps(lanes.hashes, row, lanes.hashes, row - LANES, lanes.codes, first + length - 1)
        while k < num_chars and starts[k] < first + LANES:
            start = starts[k]
            # Characters may have several bytes: an n-gram is in the lane of its first byte, in the row
            # of its length in bytes.
            lane = np.uint64(start - first)
            is_bracket = (k == 0 and opened) or start == rest - 1
            for n in range(2 if least == 1 and is_bracket else least, most + 1):
                length = np.uint64(min(starts[np.uint64(k + n)] - start, reach))
                hashes[np.uint64(size)] = lanes.hashes[length * np.uint64(LANES) + lane]
                size += k + n <= num_chars
            k += 1
    return size


@inner
def _find_starts(size: int, most: int, lanes: NgramLanes) -> tuple[int, int]:
    """Store where characters begin in some bytes, then ``most`` times where the bytes end.

    Return the number of characters, and the number of bytes of ``most`` characters, at most.
    """
    starts, num, longest = lanes.starts, 0, 0
    for block in range(0, size, SIZE):
        begun = ~_find_continued(lanes.codes, block)[0] & low_bits(size - block)
        while begun:
            start = block + first_bit(begun)
            starts[num] = start
            longest = max(longest, start - starts[max(num - most, 0)])
            num += 1
            begun = clear_first_bit(begun)
    for k in range(num, num + most):
        starts[k] = size
    return num, max(longest, size - starts[max(num - most, 0)])
