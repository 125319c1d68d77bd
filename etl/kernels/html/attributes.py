"""Read the names and attributes of tags.

Of most attributes only the end matters. The few others are recognized by their length and some letters,
which costs less than a hash of each name.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.simd import first_bit, load_eight
from etl.kernels.html.key_words import find_key_words
from etl.kernels.html.letters import APOSTROPHE, EQUALS, GREATER, QUOTE, SLASH
from etl.kernels.html.tags import LOWER, end_key, extend_key
from etl.kernels.jit import inner, rare

# What the attributes of a tag say.
IS_HIDDEN: Final = 1
IS_LICENSE: Final = 2
CLOSES_ITSELF: Final = 4

_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)
_ENDS_NAME: Final = np.zeros(256, np.bool_)
_ENDS_NAME[[9, 10, 12, 13, 32, SLASH, GREATER, EQUALS]] = True
_NONE: Final = np.frombuffer(b"display:none", np.uint8)
_INVISIBLE: Final = np.frombuffer(b"visibility:hidden", np.uint8)
_LICENSE: Final = np.frombuffer(b"license", np.uint8)


@inner
def find_byte(data: NDArray[np.uint8], at: int, stop: int, byte: int) -> int:
    """Return the offset of the first of some bytes that has a value, or ``stop``; eight are read at once."""
    pattern = np.uint64(byte) * _ONES
    while at + 8 <= stop:
        # A byte that is equal is 0 after the exclusive or. Subtraction borrows into the high bit of the
        # first such byte, and before it only into bytes that had that bit.
        differ = np.uint64(load_eight(data, at)) ^ pattern
        equal = (differ - _ONES) & ~differ & _HIGHS
        if equal != np.uint64(0):
            return at + (first_bit(np.int64(equal)) >> 3)
        at += 8
    while at < stop and data[at] != byte:
        at += 1
    return at


@inner
def read_name(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int]:
    """Return the key of the name at an offset, and the offset after it."""
    key, first = np.uint64(0), at
    while at < stop and not (data[at] <= 32 or data[at] == GREATER or data[at] == SLASH):
        key = extend_key(key, data[at])
        at += 1
    return end_key(key, at - first), at


@inner
def next_attribute(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, int, int, int]:
    """Read an attribute: where its name begins and ends, and its value; the offset after it.

    At the end of the tag, the name is empty and the last offset that of ``>``, or ``stop``. A slash before
    that has its offset as the value.
    """
    slash = at
    while at < stop and (data[at] <= 32 or data[at] == SLASH):
        if data[at] == SLASH:
            slash = at + 1
        at += 1
    name = at
    if at >= stop or data[at] == GREATER:
        return name, name, slash, at, at
    at += 1  # even an equals sign begins a name
    while at < stop and not _ENDS_NAME[data[at]]:
        at += 1
    end = at
    while at < stop and data[at] <= 32:
        at += 1
    if at >= stop or data[at] != EQUALS:
        return name, end, at, at, at
    at += 1
    while at < stop and data[at] <= 32:
        at += 1
    value = at
    if at < stop and (data[at] == QUOTE or data[at] == APOSTROPHE):
        at = find_byte(data, value + 1, stop, data[value])
        return name, end, value + 1, at, min(at + 1, stop)
    while at < stop and data[at] > 32 and data[at] != GREATER:
        at += 1
    return name, end, value, at, at


@inner
def skip_attributes(data: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return the offset of the ``>`` that ends a tag, or ``stop``."""
    while True:
        name, end, _, _, at = next_attribute(data, at, stop)
        if name == end:
            return at


@inner
def read_attributes(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, int]:
    """Read the attributes of a start tag: the offset of its ``>`` or ``stop``, key words, what they say."""
    classes, says = np.uint64(0), 0
    while True:
        name, end, value, value_end, after = next_attribute(data, at, stop)
        length = end - name
        if length == 0:
            # The slash is the last character before the bracket.
            if value == value_end and value > at and data[value - 1] == SLASH:
                says |= CLOSES_ITSELF
            return after, classes, says
        at = after
        if length < 2 or length > 11:
            continue
        first, second = LOWER[data[name]], LOWER[data[name + 1]]
        if _may_have_key_words(length, first, second):
            classes |= find_key_words(data, value, value_end)
        else:
            says |= _says(data, name, length, second, value, value_end)


@inner
def _may_have_key_words(length: int, first: int, second: int) -> bool:
    """Return whether an attribute is a class, id, role or itemprop, by its length and first letters."""
    if first == 99:
        return length == 5 and second == 108
    if first == 105:
        return (length == 2 and second == 100) or (length == 8 and second == 116)
    return length == 4 and first == 114 and second == 111


@inner
def _says(
    data: NDArray[np.uint8], name: int, length: int, second: int, value: int, stop: int
) -> int:
    """Return what a ``hidden``, ``style``, ``aria-hidden`` or ``rel`` says."""
    first = LOWER[data[name]]
    if length == 6 and first == 104 and second == 105:
        return IS_HIDDEN
    if length == 5 and first == 115 and second == 116:
        return IS_HIDDEN if _hides(data, value, stop) else 0
    if length == 11 and first == 97 and second == 114 and data[name + 5] == 104:
        return IS_HIDDEN if stop - value == 4 and LOWER[data[value]] == 116 else 0  # true
    if length == 3 and first == 114 and second == 101 and stop - value >= 7:
        return IS_LICENSE if starts_with(data, value, stop, _LICENSE) else 0
    return 0


@rare
def _hides(data: NDArray[np.uint8], at: int, stop: int) -> bool:
    """Return whether a style has ``display:none`` or ``visibility:hidden``, with white space anywhere."""
    in_none = in_invisible = 0
    for k in range(at, stop):
        byte = LOWER[data[k]]
        if byte <= 32:
            continue
        # The first letter of both words occurs only once before the place where they could differ.
        in_none = in_none + 1 if byte == _NONE[in_none] else np.int64(byte == _NONE[0])
        in_invisible = (
            in_invisible + 1
            if byte == _INVISIBLE[in_invisible]
            else np.int64(byte == _INVISIBLE[0])
        )
        if in_none == len(_NONE) or in_invisible == len(_INVISIBLE):
            return True
    return False


@rare
def starts_with(data: NDArray[np.uint8], at: int, stop: int, word: NDArray[np.uint8]) -> bool:
    """Return whether a value begins with a word, given in lower case."""
    if stop - at < len(word):
        return False
    for k in range(len(word)):
        if LOWER[data[at + k]] != word[k]:
            return False
    return True
