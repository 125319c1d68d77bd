r"""Line ends made one, and characters that control a terminal or a page but say nothing taken out.

A line ends where ``str.splitlines`` ends it (CR, LF, both together, VT, FF, FS, GS, RS, NEL, and the line
and paragraph separators): so the lines of a text stay the same ones when all are ended by LF, which is what
Unicode 16.0, section 5.8, recommends. Controls are

* category Cc (C0, delete, C1) without tab and what ends a line;
* U+FEFF, the byte order mark, whose use as a space Unicode gave up in version 3.2;
* U+206A to U+206F, the deprecated format characters, and U+FFF9 to U+FFFB, interlinear annotation.

All other invisible characters stay, since languages are written with them: the zero-width joiner and
non-joiner (Persian, Indic scripts, emoji), the zero-width space (Khmer, Thai), marks of direction, the soft
hyphen. One pass over the bytes.
"""

from typing import Final

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
"""First and last code point of each range that ``clean`` takes out."""

LINE_ENDS, REMOVED = range(2)


def clean(
    texts: Texts, *, line_ends: bool, controls: bool
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """The texts with their line ends as LF, without controls, or both.

    Offsets int64 (n + 1,) from 0; the bytes; and how many line ends and controls were replaced or taken
    out of each document: int64 (2, n), rows LINE_ENDS and REMOVED.
    """
    offsets = np.zeros_like(texts.offsets)
    out = np.empty(texts.offsets[-1] - texts.offsets[0], np.uint8)
    counts = np.zeros((2, len(offsets) - 1), np.int64)
    _clean(texts.offsets, texts.data, np.array([line_ends, controls]), offsets, out, counts)
    return offsets, out[: offsets[-1]], counts


@kernel
def _clean(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    wanted: NDArray[np.bool_],
    out_offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
    counts: NDArray[np.int64],
) -> None:
    line_ends, controls = wanted[0], wanted[1]
    size = 0
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        while at < end:
            byte = data[at]
            if byte >= 0x20 and byte not in (0x7F, 0xC2, 0xE2, 0xEF):
                out[size] = byte
                size += 1
                at += 1
                continue
            line_end, after = next_line(data, at, min(at + 3, end))
            if line_end == at:
                if line_ends:
                    counts[LINE_ENDS, k] += byte != 0x0A
                    out[size] = 0x0A
                    size += 1
                    at = after
                    continue
            else:
                after = at + _control(data, at, end)
                if controls and after > at:
                    counts[REMOVED, k] += 1
                    at = after
                    continue
                after = at + 1
            while at < after:
                out[size] = data[at]
                size += 1
                at += 1
        out_offsets[k + 1] = size


@kernel
def _control(data: NDArray[np.uint8], at: int, end: int) -> int:
    """The width in bytes of the control that stands at a byte; 0 if it is something else."""
    point, width = point_at(data, at, end)
    for k in range(0, len(CONTROLS), 2):
        if CONTROLS[k] <= point <= CONTROLS[k + 1]:
            return width
    return 0
