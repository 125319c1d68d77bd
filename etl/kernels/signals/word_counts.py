"""Count Gopher's words, symbols, bullets and ellipses in one pass over the words of a text."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.line_breaks import next_line, strip
from etl.kernels.bytes.simd import CONTINUED, SIZE, head, kinds, low_bits, num_set
from etl.kernels.bytes.utf8 import Texts
from etl.kernels.jit import inner, kernel
from etl.kernels.signals import repeated_ngrams
from etl.kernels.words.spacy import HAS_LETTER, IS_WORD, new_room, next_chunks, next_words
from etl.kernels.words.spacy_english import Tables, tables
from etl.kernels.words.uax29 import CHARS, END, FLAGS, START


def count(
    texts: Texts,
    *,
    by_space: bool = False,
    words: bool = True,
    marks: bool = True,
    repeated: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The counts of ``COUNTS``, and the code points of ``repeated_ngrams`` if asked for.

    Two arrays int64 (counts, n), (n-grams, n); the second has no rows if not asked for. Words are the
    segments of ``etl.kernels.words.spacy``, or what stands between white space. Whatever a null holds is
    counted too. Without ``words`` segments are not looked into: what is counted of words is left at 0; and
    without ``marks`` the symbols and lines.
    """
    num = len(texts.offsets) - 1
    counts = np.zeros((num, len(COUNTS)), np.int64)
    rows = len(repeated_ngrams.TOP) + len(repeated_ngrams.DUPLICATE) if repeated else 0
    repetitions = np.zeros((num, rows), np.int64)
    looks = words or repeated or by_space
    _count(texts.offsets, texts.data, tables(), counts, repetitions, by_space, looks, marks)
    return counts.T, repetitions.T


@kernel
def _count(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tables: Tables,
    counts: NDArray[np.int64],
    repetitions: NDArray[np.int64],
    by_space: bool,
    looks: bool,
    marks: bool,
) -> None:
    room = new_room()
    repeated = repetitions.shape[1] > 0
    words = repeated_ngrams.new_words(len(room.block) if repeated else 0)
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        num_words = 0
        while at < end:
            if by_space:
                at, num = next_chunks(data, at, end, tables, room)
            else:
                at, num = next_words(data, at, end, tables, room, looks)
            if looks:
                add_words(data, room.block, num, counts[k])
            else:
                counts[k, 0] += num
            if repeated:
                if num_words + num > len(words.keys):
                    words = repeated_ngrams.grown(words, num_words)
                repeated_ngrams.add_words(data, room.block, num, words, num_words)
                num_words += num
        finish(data, offsets[k], end, counts[k])
        if marks:
            finish_marks(data, offsets[k], end, tables.classes, counts[k])
        if repeated:
            repeated_ngrams.repeated_chars(words, num_words, repetitions[k])


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
        out[8] += num_set(feeds & low_bits(end - first))
        chars -= num_set(continued & low_bits(end - first))
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
        dots &= low_bits(end - at)
        seen = min(end - at, SIZE - 2)  # of which it can be told whether two dots follow
        some = (dots & dots >> 1 & dots >> 2 | leads) & low_bits(seen)
        if some:
            seen = simd.first_bit(some)
        hashes += num_set(signs & low_bits(seen))
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
