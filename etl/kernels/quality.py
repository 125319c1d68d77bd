"""Counts of words, symbols and lines for Gopher's quality rules (Rae et al. 2021)."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels import masks
from etl.kernels.jit import inner
from etl.kernels.lines import next_line, strip
from etl.kernels.machine import kinds, num_set
from etl.kernels.masks import CONTINUED, SIZE, lowest
from etl.kernels.spacy import HAS_LETTER, IS_WORD
from etl.kernels.swar import head
from etl.kernels.words import CHARS, END, FLAGS, START, Segments


class Counts(NamedTuple):
    """The counts of documents: arrays of int64 (n,)."""

    segments: NDArray[np.int64]  # words, numbers, punctuation marks
    words: NDArray[np.int64]  # segments with a character that is not punctuation
    alpha_words: NDArray[np.int64]  # segments with a letter
    word_chars: NDArray[np.int64]  # code points in words
    stop_words: NDArray[np.int64]  # distinct ones of STOP_WORDS
    hashes: NDArray[np.int64]  # '#'
    ellipses: NDArray[np.int64]  # '...' (without overlap) and '…'
    chars: NDArray[np.int64]  # code points
    newlines: NDArray[np.int64]  # line feeds
    lines: NDArray[np.int64]  # as str.splitlines, blank ones included
    bullet_lines: NDArray[np.int64]  # begin, after white space, with '-' or '•'
    ellipsis_lines: NDArray[np.int64]  # end, before white space, in '...' or '…'


COUNTS: Final = Counts._fields
"""The names of the counts, in order."""

# Columns of the counts of a document.
(
    SEGMENTS, WORDS, ALPHA_WORDS, WORD_CHARS, STOP_WORD_COUNT, HASHES, ELLIPSES, NUM_CHARS, NEWLINES,
    LINES, BULLET_LINES, ELLIPSIS_LINES,
) = range(len(COUNTS))  # fmt: skip

STOP_WORDS: Final = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Rae et al. 2021, appendix A.1.1. The comparison is case-sensitive."""

_STOP_CODES: Final = tuple(int.from_bytes(word.encode(), "little") for word in STOP_WORDS)
_LONGEST_STOP: Final = max(map(len, STOP_WORDS))  # a code holds at most 7 bytes
_DASH, _DOT = (ord(char) for char in "-.")
_find_symbols = kinds(b"#", b".", b"\xe2")
_find_feeds = kinds(b"\n", CONTINUED)
_BULLET, _ELLIPSIS = 0xA2, 0xA6  # the last byte of '•' and '…', after E2 80


@inner
def add_words(data: NDArray[np.uint8], block: Segments, num: int, out: NDArray[np.int64]) -> None:
    """Add a block of segments to the counts of a document.

    Until ``finish``, ``STOP_WORD_COUNT`` is a mask of the stop words seen.
    """
    words = alpha_words = word_chars = stops = 0
    for k in range(num):
        flags = block[k, FLAGS]
        alpha_words += flags & HAS_LETTER
        if flags & IS_WORD:
            first, last = block[k, START], block[k, END]
            words += 1
            word_chars += block[k, CHARS]
            if last - first <= _LONGEST_STOP:
                stops |= _stop_bit(head(data, first, last))
    out[SEGMENTS] += num
    out[WORDS] += words
    out[ALPHA_WORDS] += alpha_words
    out[WORD_CHARS] += word_chars
    out[STOP_WORD_COUNT] |= stops


@inner
def finish(
    data: NDArray[np.uint8],
    first: int,
    end: int,
    out: NDArray[np.int64],
) -> None:
    """Complete the counts of a document after its last block, except symbols and lines."""
    out[STOP_WORD_COUNT] = num_set(out[STOP_WORD_COUNT])
    chars = end - first
    while first < end:
        feeds, continued = _find_feeds(data, first)
        out[NEWLINES] += num_set(feeds & lowest(end - first))
        chars -= num_set(continued & lowest(end - first))
        first += SIZE
    out[NUM_CHARS] = chars


@inner
def finish_marks(
    data: NDArray[np.uint8],
    first: int,
    end: int,
    classes: NDArray[np.uint8],
    out: NDArray[np.int64],
) -> None:
    """Count the symbols and lines of a document."""
    out[HASHES], out[ELLIPSES] = _symbols(data, first, end)
    out[LINES], out[BULLET_LINES], out[ELLIPSIS_LINES] = _lines(data, first, end, classes)


@inner
def _symbols(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Count the hashes and the ellipses."""
    hashes = ellipses = 0
    while at < end:
        signs, dots, leads = _find_symbols(data, at)
        dots &= lowest(end - at)
        size = min(end - at, SIZE - 2)  # the mask shows whether two dots follow these bytes
        candidates = (dots & dots >> 1 & dots >> 2 | leads) & lowest(size)
        if candidates:
            size = masks.first(candidates)
        hashes += num_set(signs & lowest(size))
        at += size
        if candidates and data[at] == _DOT:
            ellipses += 1
            at += 3
        elif candidates:
            ellipses += _is_general(data, at, end, _ELLIPSIS)
            at += 1
    return hashes, ellipses


@inner
def _lines(
    data: NDArray[np.uint8], at: int, end: int, classes: NDArray[np.uint8]
) -> tuple[int, int, int]:
    """Count the lines, those with a bullet and those that end in an ellipsis."""
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


@inner
def _is_general(data: NDArray[np.uint8], at: int, end: int, last: int) -> bool:
    """Return whether the character at a byte is the one of U+2000 to U+203F whose UTF-8 ends in ``last``."""
    return at + 3 <= end and data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == last


@inner
def _stop_bit(code: int) -> int:
    """Return the bit of the stop word with these bytes, or 0."""
    bits = 0
    for k in range(len(_STOP_CODES)):
        bits |= (code == _STOP_CODES[k]) << k
    return bits
