"""The counts behind Gopher's quality rules: one pass over the words of a document, one over its lines."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels import masks
from etl.kernels.jit import inner
from etl.kernels.lines import next_line, strip
from etl.kernels.machine import kinds, num_set
from etl.kernels.masks import CONTINUED, SIZE, lowest
from etl.kernels.spacy import HAS_LETTER, IS_WORD
from etl.kernels.swar import head
from etl.kernels.words import CHARS, END, FLAGS, START

COUNTS: Final = (
    "segments",  # words, numbers, punctuation marks
    "words",  # segments with a character that is no punctuation
    "alpha_words",  # segments with a letter
    "word_chars",  # code points in words
    "stop_words",  # distinct ones of STOP_WORDS
    "hashes",  # '#'
    "ellipses",  # '...' (without overlap) and '…'
    "chars",  # code points
    "newlines",  # line feeds
    "lines",  # as str.splitlines, blank ones included
    "bullet_lines",  # begin, after white space, with '-' or '•'
    "ellipsis_lines",  # end, before white space, in '...' or '…'
)
"""What is counted of a document, in order."""

STOP_WORDS: Final = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Rae et al. 2021, appendix A.1.1; compared as they stand, in lower case."""

_STOP_CODES: Final = tuple(int.from_bytes(word.encode(), "little") for word in STOP_WORDS)
_LONGEST_STOP: Final = max(map(len, STOP_WORDS))  # at most 7 bytes fit a code
_DASH, _DOT = (ord(char) for char in "-.")
_find_symbols = kinds(b"#", b".", b"\xe2")
_find_feeds = kinds(b"\n", CONTINUED)
_BULLET, _ELLIPSIS = 0xA2, 0xA6  # the last byte of '•' and '…', after E2 80


@inner
def add_words(
    data: NDArray[np.uint8], block: NDArray[np.int64], num: int, out: NDArray[np.int64]
) -> None:
    """Add a block of segments to the counts of a document; ``stop_words`` holds a bit for each."""
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
    out[0] += num
    out[1] += words
    out[2] += alpha_words
    out[3] += word_chars
    out[4] |= stops


@inner
def finish(
    data: NDArray[np.uint8],
    first: int,
    end: int,
    out: NDArray[np.int64],
) -> None:
    """Complete the counts of a document whose words have been added, but for symbols and lines."""
    out[4] = num_bits(out[4])
    chars = end - first
    while first < end:
        feeds, continued = _find_feeds(data, first)
        out[8] += num_set(feeds & lowest(end - first))
        chars -= num_set(continued & lowest(end - first))
        first += SIZE
    out[7] = chars


@inner
def finish_marks(
    data: NDArray[np.uint8],
    first: int,
    end: int,
    classes: NDArray[np.uint8],
    out: NDArray[np.int64],
) -> None:
    """Count the hashes, the ellipses, and the lines."""
    out[5], out[6] = _symbols(data, first, end)
    out[9], out[10], out[11] = _lines(data, first, end, classes)


@inner
def _symbols(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """The hashes and the ellipses."""
    hashes = ellipses = 0
    while at < end:
        signs, dots, leads = _find_symbols(data, at)
        dots &= lowest(end - at)
        seen = min(end - at, SIZE - 2)  # of which it can be told whether two dots follow
        some = (dots & dots >> 1 & dots >> 2 | leads) & lowest(seen)
        if some:
            seen = masks.first(some)
        hashes += num_set(signs & lowest(seen))
        at += seen
        if some and data[at] == _DOT:
            ellipses += 1
            at += 3
        elif some:
            ellipses += _is_general(data, at, end, _ELLIPSIS)
            at += 1
    return hashes, ellipses


@inner
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


@inner
def _is_general(data: NDArray[np.uint8], at: int, end: int, last: int) -> bool:
    """Whether the character at a byte is that of General Punctuation whose UTF-8 ends in ``last``."""
    return at + 3 <= end and data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == last


@inner
def _stop_bit(code: int) -> int:
    """The bit of the stop word with these bytes, or 0."""
    bits = 0
    for k in range(len(_STOP_CODES)):
        bits |= (code == _STOP_CODES[k]) << k
    return bits


@inner
def num_bits(bits: int) -> int:
    """How many bits are set: one for each stop word."""
    count = 0
    while bits:
        bits &= bits - 1
        count += 1
    return count
