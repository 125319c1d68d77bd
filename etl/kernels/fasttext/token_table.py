"""The table of tokens that occurred, with the vector of each.

A token has one slot, by a hash of its first 32 bytes, and replaces the token that was there. Longer tokens
are not found again. Two more slots belong to ``</s>``, and to the n-grams of tokens of a text.
"""

from functools import reduce
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.lanes import FNV_BASIS, FNV_PRIME, LANES, fill_lanes, load_32
from etl.kernels.bytes.simd import copy_items
from etl.kernels.fasttext.model import KEY_BYTES, Key, aligned_zeros, hash_key
from etl.kernels.jit import inner

EOS: Final = int.from_bytes(b"</s>", "little")
"""The first number of the key of ``</s>``."""

_EOS_HASH: Final = reduce(lambda h, byte: (h ^ byte) * FNV_PRIME % (1 << 32), b"</s>", FNV_BASIS)

LABEL: Final = -1
"""As the number of vectors of a token: it is a label, and not a word."""

SIZE, COUNT, HASH, USED, ROW = 4, 5, 6, 7, 8
"""Columns of the table after the key, and their number.

The bytes of the token, how many vectors were added up, FNV-1a if the model needs it, and the window in which
the token occurred last.
"""

_BYTES: Final = 2 << 20
"""The bytes of the table. Half or twice as many cost 3 to 7 % on some texts, and gain 3 % at most."""

_LEAST_SLOTS: Final = 1 << 12  # of models with large vectors


class TokenTable(NamedTuple):
    """The slots."""

    rows: NDArray[np.int64]  # ((slots + 2) * ROW,)
    vectors: NDArray[np.float32]  # ((slots + 2) * W,)


def make_table(width: int) -> TokenTable:
    """Return an empty table for vectors of ``width`` numbers."""
    slots = max(1 << (_BYTES // (8 * ROW + 4 * width)).bit_length() - 1, _LEAST_SLOTS)
    table = TokenTable(
        aligned_zeros((slots + 2) * ROW, np.int64), aligned_zeros((slots + 2) * width, np.float32)
    )
    table.rows[slots * ROW + HASH] = _EOS_HASH
    return table


def set_end(table: TokenTable, count: int, vector: NDArray[np.float32]) -> None:
    """Store the vector of ``</s>``, and that it is one, or LABEL."""
    slot, width = last_slot(table), vector_width(table)
    table.rows[slot * ROW + COUNT] = count
    table.vectors[slot * width : slot * width + len(vector)] = vector


@inner
def last_slot(table: TokenTable) -> int:
    """Return the slot of ``</s>``; that of the text follows."""
    return len(table.rows) // ROW - 2


@inner
def vector_width(table: TokenTable) -> int:
    """Return ``W``, the width of a vector."""
    return len(table.vectors) // (len(table.rows) // ROW)


@inner
def empty_slot(table: TokenTable, slot: int) -> None:
    """Set the vector of a slot to zeros, the sum of no vectors."""
    width = vector_width(table)
    table.rows[slot * ROW + COUNT] = 0
    for z in range(slot * width, (slot + 1) * width, LANES):
        fill_lanes(table.vectors, z, 0)


@inner
def load_key(data: NDArray[np.uint8], at: int, stop: int, buffer: NDArray[np.uint8]) -> Key:
    """Return the key of a token; ``buffer`` has room for it."""
    size = min(stop - at, KEY_BYTES)
    if at + KEY_BYTES <= len(data):
        return load_32(data, at, size)
    copy_items(buffer, 0, data, at, size)
    return load_32(buffer, 0, size)


@inner
def find_slot(key: Key, last: int) -> int:
    """Return the slot of a token."""
    # hash * slots / 2^32: a slot from a 32-bit hash without a division.
    return last if key[0] == EOS else np.int64(hash_key(key) * np.uint64(last) >> np.uint64(32))


@inner
def has_token(rows: NDArray[np.int64], slot: int, key: Key, size: int) -> bool:
    """Return whether a slot has a token."""
    row = slot * ROW
    # One condition instead of five, which could each be mispredicted.
    differ = key[0] ^ rows[row] | key[1] ^ rows[row + 1]
    differ |= key[2] ^ rows[row + 2] | key[3] ^ rows[row + 3]
    return differ | size ^ rows[row + SIZE] == 0 and size <= KEY_BYTES
