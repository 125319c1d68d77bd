"""Skip what is in a page and never its text: comments, declarations, scripts and styles."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.html.attributes import find_byte
from etl.kernels.html.letters import BANG, CLOSING, GREATER, HYPHEN, LESS, OPENING, SLASH
from etl.kernels.html.tags import IS_LETTER, end_key, extend_key
from etl.kernels.jit import rare


@rare
def skip_declaration(data: NDArray[np.uint8], at: int, stop: int, is_foreign: bool) -> int:
    """Return the offset after the comment, declaration, or CDATA section (in SVG) at ``<!`` or ``<?``."""
    if data[at + 1] == BANG and at + 3 < stop and data[at + 2] == HYPHEN and data[at + 3] == HYPHEN:
        return _skip_comment(data, at + 4, stop)
    if is_foreign and at + 8 < stop and data[at + 2] == OPENING and data[at + 8] == OPENING:
        at = find_byte(data, at + 9, stop, GREATER)
        while at < stop and not (data[at - 1] == CLOSING and data[at - 2] == CLOSING):
            at = find_byte(data, at + 1, stop, GREATER)
        return min(at + 1, stop)
    return min(find_byte(data, at + 2, stop, GREATER) + 1, stop)


@rare
def _skip_comment(data: NDArray[np.uint8], first: int, stop: int) -> int:
    """Return the offset after a comment, which ends at ``-->`` or ``--!>``, or early at ``>`` or ``->``."""
    if first < stop and data[first] == GREATER:
        return first + 1
    if first + 1 < stop and data[first] == HYPHEN and data[first + 1] == GREATER:
        return first + 2
    at = find_byte(data, first, stop, GREATER)
    while at < stop:
        last = at - 1 - (data[at - 1] == BANG)
        if last - 1 >= first and data[last] == HYPHEN and data[last - 1] == HYPHEN:
            break
        at = find_byte(data, at + 1, stop, GREATER)
    return min(at + 1, stop)


@rare
def find_raw_end(data: NDArray[np.uint8], at: int, stop: int, key: int) -> tuple[int, int]:
    """Return where the raw text of an element ends: at its own end tag; and the offset after that."""
    while True:
        at = find_byte(data, at, stop, LESS)
        if at >= stop:
            return stop, stop
        if at + 2 < stop and data[at + 1] == SLASH:
            after, found = at + 2, np.uint64(0)
            while after < stop and IS_LETTER[data[after]]:
                found = extend_key(found, data[after])
                after += 1
            is_whole = (
                after >= stop or data[after] <= 32 or data[after] == GREATER or data[after] == SLASH
            )
            if is_whole and end_key(found, after - at - 2) == key:
                return at, min(find_byte(data, after, stop, GREATER) + 1, stop)
        at += 1
