"""Copy the text of a page, with white space as rendered, in runs of up to 64 bytes."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.simd import SIZE, copy_64, first_bit, make_byte_finder
from etl.kernels.html.entities import decode
from etl.kernels.html.letters import A0, AND, C2, CR, LESS, LF, SPACE
from etl.kernels.html.page import (
    AFTER_SPACE,
    BEGUN,
    DEPTH,
    END,
    IN_LINK,
    LINKED,
    PREFORMATTED,
    Page,
    begin_block,
)
from etl.kernels.jit import inner, rare

_CONTROLS: Final = bytes(range(SPACE)) + b"\x7f"
_find_stops = make_byte_finder(_CONTROLS + b"<&\xc2", b" ", _CONTROLS[1:] + b" ")


@inner
def read_text(data: NDArray[np.uint8], at: int, stop: int, page: Page) -> int:
    """Copy text up to the next tag, and return its offset."""
    state = page.state
    before, flags = state[END], page.stack.flags[state[DEPTH] - 1]
    if flags & PREFORMATTED:
        at = _read_preformatted(data, at, stop, page)
    else:
        at = _read_collapsed(data, at, stop, page)
    end = state[END]
    if end > before:
        if not state[BEGUN] and not (end == before + 1 and state[AFTER_SPACE]):
            begin_block(page)
        if flags & IN_LINK:
            state[LINKED] += end - before
    return at


@inner
def _read_collapsed(data: NDArray[np.uint8], at: int, stop: int, page: Page) -> int:
    """Copy text with each run of white space as one space."""
    text, end, after_space = page.text, page.state[END], page.state[AFTER_SPACE]
    while at < stop and data[at] != LESS:
        stops, spaces, blanks = _find_stops(data, at)
        # A run ends before a byte that needs care, and before a space that follows another.
        run = min(first_bit(stops | spaces & (spaces << 1 | after_space)), stop - at)
        if run > 0:
            _copy_run(data, at, run, text, end)
            at += run
            end += run
            after_space = np.int64(text[end - 1] == SPACE)
        if run == SIZE or at == stop:
            continue
        byte = data[at]
        if byte == 0:
            at += 1
        elif byte <= SPACE or byte == 0x7F:
            # Control characters are white space. The shift copies the highest bit.
            blank = min(first_bit(~(blanks >> run)), SIZE - run)
            if not after_space:
                text[end] = SPACE
                end += 1
                after_space = 1
            at = min(at + blank, stop)
        elif byte != LESS:
            at, end, after_space = _read_special(data, at, stop, text, end, after_space)
    page.state[END], page.state[AFTER_SPACE] = end, after_space
    return at


@inner
def _copy_run(
    data: NDArray[np.uint8], at: int, run: int, text: NDArray[np.uint8], end: int
) -> None:
    if at + SIZE <= len(data):
        copy_64(text, end, data, at)
    else:
        for k in range(run):
            text[end + k] = data[at + k]


@rare
def _read_special(
    data: NDArray[np.uint8], at: int, stop: int, text: NDArray[np.uint8], end: int, after_space: int
) -> tuple[int, int, int]:
    """Copy a reference, or a character that begins with C2; a no-break space is white space."""
    if data[at] == AND:
        at, after = decode(data, at, stop, text, end)
        is_space = after == end + 1 and text[end] <= SPACE
        is_space |= after == end + 2 and text[end] == C2 and text[end + 1] == A0
    else:
        text[end], after = data[at], end + 1
        is_space = at + 1 < stop and data[at + 1] == A0
        at += 1 + is_space
    if not is_space:
        return at, after, 0
    text[end] = SPACE
    return at, end + 1 - after_space, 1


@rare
def _read_preformatted(data: NDArray[np.uint8], at: int, stop: int, page: Page) -> int:
    """Copy text with its white space; a carriage return, alone or before a line feed, is a line feed."""
    text, end, after_space = page.text, page.state[END], page.state[AFTER_SPACE]
    while at < stop and data[at] != LESS:
        byte = data[at]
        if byte == AND or byte == C2:
            at, end, after_space = _read_special(data, at, stop, text, end, 0)
            continue
        at += 1
        if byte == 0 or (byte == CR and at < stop and data[at] == LF):
            continue
        after_space = np.int64(byte <= SPACE or byte == 0x7F)
        if after_space and byte != LF and byte != 9:
            byte = LF if byte == CR else SPACE
        text[end] = byte
        end += 1
    page.state[END], page.state[AFTER_SPACE] = end, after_space
    return at
