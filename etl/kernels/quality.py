"""The counts behind Gopher's quality rules: one pass over the words of a document, one over its lines."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels import unicode
from etl.kernels.jit import kernel
from etl.kernels.lines import next_line, strip
from etl.kernels.utf8 import Texts, num_chars
from etl.kernels.words import CHARS, END, FLAGS, HAS_LETTER, START, next_segments

COUNTS: Final = (
    "segments",  # between word boundaries, without white space and controls
    "words",  # segments with a letter or a digit
    "alpha_words",  # segments with a letter
    "word_chars",  # code points in words
    "hashes",  # '#'
    "ellipses",  # '...' (without overlap) and '…'
    "stop_words",  # distinct ones of STOP_WORDS
    "lines",  # as str.splitlines, blank ones included
    "bullet_lines",  # begin, after white space, with '-' or '•'
    "ellipsis_lines",  # end, before white space, in '...' or '…'
    "chars",  # code points
)
"""The rows of ``count``, in order."""

STOP_WORDS: Final = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Rae et al. 2021, appendix A.1.1; compared as they stand, in lower case."""

_STOP_CODES: Final = tuple(int.from_bytes(word.encode(), "little") for word in STOP_WORDS)
_LONGEST_STOP: Final = max(map(len, STOP_WORDS))  # at most 7 bytes fit a code
_HASH, _DASH, _DOT = (ord(char) for char in "#-.")
_BULLET, _ELLIPSIS = 0xA2, 0xA6  # the last byte of '•' and '…', after E2 80


def count(texts: Texts) -> NDArray[np.int64]:
    """The counts of each document: int64 (len(COUNTS), n); whatever a null holds is counted too."""
    out = np.zeros((len(COUNTS), len(texts.offsets) - 1), np.int64)
    _count(texts.offsets, texts.data, unicode.classes(), out)
    return out


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    classes: NDArray[np.uint8],
    out: NDArray[np.int64],
) -> None:
    block = np.empty((1024, 4), np.int64)  # 32 KB: stays in the processor's cache
    for k in range(len(offsets) - 1):
        first, end = offsets[k], offsets[k + 1]
        out[0:7, k] = _words(data, first, end, classes, block)
        out[7:10, k] = _lines(data, first, end, classes)
        out[10, k] = num_chars(data, first, end)


@kernel
def _words(
    data: NDArray[np.uint8], at: int, end: int, classes: NDArray[np.uint8], block: NDArray[np.int64]
) -> tuple[int, int, int, int, int, int, int]:
    segments = words = alpha_words = word_chars = hashes = ellipses = stops = 0
    dots, dots_end = 0, -1  # a run of full stops, and the byte after it
    while at < end:
        at, num = next_segments(data, at, end, classes, block)
        segments += num
        for k in range(num):
            first, last, chars = block[k, START], block[k, END], block[k, CHARS]
            if block[k, FLAGS]:
                words += 1
                alpha_words += block[k, FLAGS] & HAS_LETTER
                word_chars += chars
                if last - first <= _LONGEST_STOP:
                    code = 0
                    for j in range(_LONGEST_STOP):  # without a branch; the last byte is repeated
                        code |= np.int64(data[min(first + j, last - 1)]) << 8 * j
                    stops |= _stop_bit(code & (1 << 8 * (last - first)) - 1)
            elif data[first] == _HASH:
                hashes += 1
            elif data[first] == _DOT:
                dots = dots % 3 + 1 if dots_end == first else 1
                dots_end = first + 1
                ellipses += dots == 3
            elif data[first] == 0xE2 and last - first >= 3:
                ellipses += data[first + 1] == 0x80 and data[first + 2] == _ELLIPSIS
    return segments, words, alpha_words, word_chars, hashes, ellipses, _num_bits(stops)


@kernel
def _lines(
    data: NDArray[np.uint8], at: int, end: int, classes: NDArray[np.uint8]
) -> tuple[int, int, int]:
    lines = bullet_lines = ellipsis_lines = 0
    while at < end:
        line_end, after = next_line(data, at, end)
        first, last = strip(data, at, line_end, classes)
        lines += 1
        bullet_lines += first < last and (
            data[first] == _DASH or _is_general(data, first, last, _BULLET)
        )
        ellipsis_lines += last - first >= 3 and (
            (data[last - 1] == _DOT and data[last - 2] == _DOT and data[last - 3] == _DOT)
            or _is_general(data, last - 3, last, _ELLIPSIS)
        )
        at = after
    return lines, bullet_lines, ellipsis_lines


@kernel
def _is_general(data: NDArray[np.uint8], at: int, end: int, last: int) -> bool:
    """Whether the character at a byte is that of General Punctuation whose UTF-8 ends in ``last``."""
    return at + 3 <= end and data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == last


@kernel
def _stop_bit(code: int) -> int:
    """The bit of the stop word with these bytes, or 0."""
    bits = 0
    for k in range(len(_STOP_CODES)):
        bits |= (code == _STOP_CODES[k]) << k
    return bits


@kernel
def _num_bits(bits: int) -> int:
    count = 0
    while bits:
        bits &= bits - 1
        count += 1
    return count
