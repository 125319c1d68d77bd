"""Count the segments of texts, and of each of their lines.

White space separates segments, and all line breaks are white space. So the counts of a text are the sums of
the counts of its lines, and of a text without some lines they are known without splitting it again.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl.kernels.bytes.hash64 import wrapping_multiply
from etl.kernels.bytes.line_breaks import count_breaks, find_breaks, next_line
from etl.kernels.bytes.simd import SIZE, clear_first_bit, first_bit, load_up_to_eight, low_bits
from etl.kernels.bytes.utf8 import Texts, frozen
from etl.kernels.jit import allocator, inner, rare
from etl.kernels.words.spacy import HAS_LETTER, IS_WORD, ChunkBuffers, next_words
from etl.kernels.words.spacy_tables import SpacyTables
from etl.kernels.words.uax29 import CHARS, END, FLAGS, START, Segments

STOP_WORDS: Final = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Rae et al. 2021, appendix A.1.1. The comparison is case-sensitive."""

SEGMENTS, WORDS, ALPHA_WORDS, WORD_CHARS, STOP_BITS = range(5)
"""Columns of counts. STOP_BITS is not a count but has a bit for each of STOP_WORDS that occurs."""

NUM_COUNTS: Final = 5

_STOP_FACTOR: Final = 3925808435061233135  # spreads the codes of stop words


def _stop_codes() -> NDArray[np.int64]:
    """Return the codes of stop words, by the highest bits of their products: length and bytes of each."""
    codes = [len(word) << 56 | int.from_bytes(word.encode(), "little") for word in STOP_WORDS]
    table = np.zeros(8, np.int64)
    for code in codes:
        table[code * _STOP_FACTOR >> 61 & 7] = code
    assert np.all(table)
    return table


_STOP_CODES: Final = _stop_codes()
_OF_LINE: Final = pa.list_(pa.int64(), NUM_COUNTS)


class Lines(NamedTuple):
    """The lines of documents: document k has the lines ``first[k]`` to ``first[k + 1]``."""

    first: NDArray[np.int64]  # (documents + 1,)
    ends: NDArray[np.int64]  # (lines,) the byte after the line break


class CountsByLine(NamedTuple):
    """The counts of the lines of documents; document k begins at row ``first[k]``."""

    first: NDArray[np.int64]  # (documents + 1,); of length 0 if the counts are unknown
    counts: NDArray[np.int64]  # (lines, NUM_COUNTS), read-only

    @classmethod
    def unknown(cls) -> "CountsByLine":
        """Return the counts of documents whose lines have not been counted."""
        return cls(np.zeros(0, np.int64), frozen(np.zeros((0, NUM_COUNTS), np.int64)))

    @classmethod
    def from_arrow(cls, lists: pa.Array) -> "CountsByLine":
        """Return the counts in lists of ``to_arrow``, none of which is null."""
        offsets = lists.offsets.to_numpy().astype(np.int64)
        counts = lists.flatten().flatten().to_numpy().reshape(-1, NUM_COUNTS)
        return cls(offsets - offsets[0], frozen(counts))


def find_lines(texts: Texts) -> Lines:
    """Return the lines of each document, as ``str.splitlines`` splits them."""
    first = np.zeros(len(texts.offsets), np.int64)
    ends = _find_ends(texts.offsets, texts.data, first)
    return Lines(first, ends[: first[-1]])


def to_arrow(first: NDArray[np.int64], counts: NDArray[np.int64]) -> pa.Array:
    """Return the counts of lines as one list per document, which can be filtered like other columns."""
    of_lines = pa.FixedSizeListArray.from_arrays(counts.ravel(), type=_OF_LINE)
    return pa.ListArray.from_arrays(pa.array(first, pa.int32()), of_lines)


@allocator
def _find_ends(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], first: NDArray[np.int64]
) -> NDArray[np.int64]:
    most = count_breaks(data, offsets[0], offsets[-1]) + len(offsets)
    ends = np.empty(most, np.int64)
    _write_ends(offsets, data, first, ends)
    return ends


@rare
def _write_ends(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    first: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    num = 0
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        while at < end:
            feeds, others = find_breaks(data, at)
            inside = low_bits(end - at)
            # Line breaks other than line feeds are rare: 64 bytes without them need no look at single
            # characters.
            if others & inside:
                _, at = next_line(data, at, end)
                ends[num] = at
                num += 1
                continue
            feeds &= inside
            while feeds:
                ends[num] = at + first_bit(feeds) + 1
                num += 1
                feeds = clear_first_bit(feeds)
            at += SIZE
        # Text after the last line break is a line, too.
        if offsets[k] < end and (num == first[k] or ends[num - 1] < end):
            ends[num] = end
            num += 1
        first[k + 1] = num


@inner
def add_segments(
    data: NDArray[np.uint8],
    block: Segments,
    k: int,
    num: int,
    end: int,
    counts: NDArray[np.int64],
    line: int,
) -> int:
    """Add the segments from row ``k`` of a block on that begin before a byte to the counts of a line.

    Returns the row after them; the block has ``num`` rows.
    """
    first = k
    words = alpha_words = word_chars = stops = 0
    while k < num and block[k, START] < end:
        flags, start, stop = block[k, FLAGS], block[k, START], block[k, END]
        is_word = flags // IS_WORD & 1  # no branches, since they would be mispredicted often
        alpha_words += flags & HAS_LETTER
        words += is_word
        word_chars += block[k, CHARS] * is_word
        # A stop word has up to seven bytes, so a word and its length fit into one number. Each has a
        # bit: a stop word that occurs twice counts once.
        stops |= _stop_bit(stop - start << 56 | load_up_to_eight(data, start, stop))
        k += 1
    counts[line, SEGMENTS] += k - first
    counts[line, WORDS] += words
    counts[line, ALPHA_WORDS] += alpha_words
    counts[line, WORD_CHARS] += word_chars
    counts[line, STOP_BITS] |= stops
    return k


@inner
def add_block(
    data: NDArray[np.uint8],
    block: Segments,
    num: int,
    ends: NDArray[np.int64],
    counts: NDArray[np.int64],
    line: int,
) -> int:
    """Add the segments of a block to the counts of their lines; no segment precedes the given line.

    Returns the line of the last segment.
    """
    k = 0
    while k < num:
        while ends[line] <= block[k, START]:
            line += 1
        k = add_segments(data, block, k, num, ends[line], counts, line)
    return line


@inner
def add_lines(
    counts: NDArray[np.int64], first: int, last: int, sums: NDArray[np.int64], document: int
) -> None:
    """Add the counts of the lines from ``first`` up to but not including ``last`` to a document's."""
    for line in range(first, last):
        for column in range(STOP_BITS):
            sums[document, column] += counts[line, column]
        sums[document, STOP_BITS] |= counts[line, STOP_BITS]


@rare
def count_line(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    tables: SpacyTables,
    buffers: ChunkBuffers,
    sums: NDArray[np.int64],
    document: int,
) -> None:
    """Add the counts of a text between two bytes to the counts of a document."""
    while at < end:
        at, num = next_words(data, at, end, tables, buffers, True)
        add_segments(data, buffers.block, 0, num, end, sums, document)


@inner
def _stop_bit(code: int) -> int:
    """Return the bit of the stop word with a code, or 0."""
    slot = wrapping_multiply(code, _STOP_FACTOR) >> 61 & 7
    bit: int = (code == _STOP_CODES[slot]) << slot
    return bit
