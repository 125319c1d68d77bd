r"""Normalize line ends to LF and remove control characters.

A line ends where ``str.splitlines`` ends it: at CR, LF, CRLF, VT, FF, FS, GS, RS, NEL, and the line and
paragraph separators. A text therefore has the same lines after all of them end in LF, as Unicode 16.0,
section 5.8, recommends. Control characters are

* category Cc (C0, delete, C1), except tab and the characters that end a line;
* U+FEFF, the byte order mark, whose use as a space was deprecated in Unicode 3.2;
* U+206A to U+206F, the deprecated format characters, and U+FFF9 to U+FFFB, interlinear annotation.

All other invisible characters are kept because languages are written with them: the zero-width joiner and
non-joiner (Persian, Indic scripts, emoji), the zero-width space (Khmer, Thai), directional marks, and the
soft hyphen. One pass over the bytes.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.line_breaks import next_line
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.jit import kernel

CONTROLS: Final = (
    *(0x00, 0x08),
    *(0x0E, 0x1B),
    *(0x1F, 0x1F),
    *(0x7F, 0x84),
    *(0x86, 0x9F),
    *(0x206A, 0x206F),
    *(0xFEFF, 0xFEFF),
    *(0xFFF9, 0xFFFB),
)
"""First and last code point of each range that ``clean_controls`` removes."""


class CleanedTexts(NamedTuple):
    """The bytes of the documents after cleaning, and what changed."""

    offsets: NDArray[np.int64]  # (n + 1,), from 0
    data: NDArray[np.uint8]
    line_ends: NDArray[np.int64]  # (n,) line ends replaced
    controls: NDArray[np.int64]  # (n,) control characters removed


def clean_controls(texts: Texts, *, line_ends: bool, controls: bool) -> CleanedTexts:
    """Return the texts with LF line ends, without control characters, or both."""
    num = len(texts.offsets) - 1
    cleaned = CleanedTexts(
        np.zeros_like(texts.offsets),
        np.empty(texts.offsets[-1] - texts.offsets[0], np.uint8),
        np.zeros(num, np.int64),
        np.zeros(num, np.int64),
    )
    _clean(texts.offsets, texts.data, np.array([line_ends, controls]), cleaned)
    return cleaned._replace(data=cleaned.data[: cleaned.offsets[-1]])


@kernel
def _clean(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    wanted: NDArray[np.bool_],
    cleaned: CleanedTexts,
) -> None:
    line_ends, controls = wanted[0], wanted[1]
    out = cleaned.data
    size = 0
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        while at < end:
            byte = data[at]
            # Only these bytes begin a line end or a control character: all others are copied at once.
            if byte >= 0x20 and byte not in (0x7F, 0xC2, 0xE2, 0xEF):
                out[size] = byte
                size += 1
                at += 1
                continue
            # A line end has up to three bytes (U+2028), and is not removed as a control character.
            line_end, after = next_line(data, at, min(at + 3, end))
            if line_end == at:
                if line_ends:
                    cleaned.line_ends[k] += byte != 0x0A
                    out[size] = 0x0A
                    size += 1
                    at = after
                    continue
            else:
                after = at + _control(data, at, end)
                if controls and after > at:
                    cleaned.controls[k] += 1
                    at = after
                    continue
                after = at + 1
            while at < after:
                out[size] = data[at]
                size += 1
                at += 1
        cleaned.offsets[k + 1] = size


@kernel
def _control(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the width in bytes of the control character at a byte; 0 for any other character."""
    point, width = point_at(data, at, end)
    for k in range(0, len(CONTROLS), 2):
        if CONTROLS[k] <= point <= CONTROLS[k + 1]:
            return width
    return 0
