"""C4's cleaning rules: remove lines and citation marks from pages, and count sentences.

The rules are from Raffel et al. 2020 (section 2.2), in the order of datatrove 0.10.1. ASCII letters are
compared without regard to case. The new text is never longer than the old one.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.character_classes import DIGIT
from etl.kernels.bytes.line_breaks import next_line, strip
from etl.kernels.bytes.simd import (
    NOT_ASCII,
    SIZE,
    clear_first_bit,
    copy_64,
    count_ones,
    leading_zeros,
    low_bits,
    make_byte_finder,
)
from etl.kernels.bytes.spans import build_strings
from etl.kernels.bytes.utf8 import Texts, class_at, frozen, point_at
from etl.kernels.jit import inner, kernel
from etl.kernels.words import sentences
from etl.kernels.words.segment_counts import NUM_COUNTS, CountsByLine, add_lines, count_line
from etl.kernels.words.spacy import ChunkBuffers, new_chunk_buffers
from etl.kernels.words.spacy_tables import SPACE, UNKNOWN, SpacyTables, tables

POLICIES: Final = (
    *("terms of use", "privacy policy", "cookie policy"),
    *("uses cookies", "use of cookies", "use cookies"),
)

_PHRASES: Final = ("lorem ipsum", "javascript", *POLICIES)
_LOREM, _JAVASCRIPT, _POLICY = 1, 2, 0xFC  # bits of the phrases in a line
_ANCHORS: Final = ("ps", "ja", "ms", "va", "ki", "ki", "ki", "ki")  # rare pairs of letters in them
_MARKS: Final = ("[edit]", "[citation needed]")
_QUOTE, _APOSTROPHE, _DOT, _QUESTION, _EXCLAMATION = (ord(char) for char in "\"'.?!")
# Classes of bytes in a line: white space, not ASCII, the start of a citation mark.
_BLANK, _OTHER, _MARK = range(1, 4)
_OPENING, _CLOSING, _FEED = (ord(char) for char in "[]\n")
_LENGTH, _ANCHOR, _BYTES = range(3)  # columns of a table of phrases; the bytes are the last ones
_find_plain = make_byte_finder(b" ", bytes(range(0x20)) + NOT_ASCII, b"[")
_find_anchors = make_byte_finder(b"pP", b"sS", b"jJ", b"aA", b"mM", b"vV", b"kK", b"iI", b"{")


class Rules(NamedTuple):
    """The rules to apply."""

    terminal: bool
    min_words: int
    max_word_chars: int
    javascript: bool
    policy: bool
    citations: bool


class C4Counts(NamedTuple):
    """The counts of each document: int64 (n,)."""

    long_word_lines: NDArray[np.int64]  # removed: a word has more than max_word_chars
    open_lines: NDArray[np.int64]  # removed: no . ? ! " ' at the end, or an ellipsis (...)
    short_lines: NDArray[np.int64]  # removed: fewer than min_words words
    javascript_lines: NDArray[np.int64]  # removed: the line contains "javascript"
    policy_lines: NDArray[np.int64]  # removed: the line contains one of POLICIES
    lorem_ipsum_lines: NDArray[np.int64]  # lines that reach this rule and contain "lorem ipsum"
    brace_lines: NDArray[np.int64]  # lines that reach this rule and contain '{'
    sentences: NDArray[np.int64]  # in the lines that are kept


_LONG_WORD, _OPEN, _SHORT, _HAS_JAVASCRIPT, _HAS_POLICY, _HAS_LOREM, _HAS_BRACE, _SENTENCES = range(
    len(C4Counts._fields)
)  # columns of the kernel's counts: one row per document, which is 6 % faster than an array per count


class CleanedPages(NamedTuple):
    """The documents after cleaning."""

    texts: pa.Array  # string, null for null
    counts: C4Counts
    words: NDArray[np.int64]  # (n, NUM_COUNTS), as in ``CountsByLine``; 0 if ``lines`` are unknown


def clean_pages(
    texts: Texts, rules: Rules, words: str = UNKNOWN, lines: CountsByLine | None = None
) -> CleanedPages:
    """Remove lines and citation marks from each document, and count them.

    ``words`` is the language whose rules split words (``rules_of``), and thereby sentences. If the words of
    ``lines`` are known, the words of the result are counted; only lines that had citation marks are split
    again.
    """
    num = len(texts.offsets) - 1
    known = CountsByLine.unknown() if lines is None else lines
    word_counts = np.zeros((num, NUM_COUNTS), np.int64)
    counts = np.zeros((num, len(C4Counts._fields)), np.int64)
    offsets = np.zeros(num + 1, np.int64)
    data = np.empty(texts.offsets[-1] - texts.offsets[0] + num + SIZE, np.uint8)
    _clean(
        texts.offsets,
        texts.data,
        tables(words),
        new_chunk_buffers(),
        rules,
        known,
        counts,
        word_counts,
        offsets,
        data,
        frozen(data),
    )
    cleaned = build_strings(offsets, data, texts.valid)
    return CleanedPages(cleaned, C4Counts(*counts.T), word_counts)


def _phrases(phrases: tuple[str, ...], anchors: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return the length, anchor index and bytes of each phrase: uint8 (phrases, longest + 2)."""
    table = np.zeros((len(phrases), 2 + max(map(len, phrases))), np.uint8)
    for row, phrase, anchor in zip(table, phrases, anchors, strict=True):
        row[_LENGTH], row[_ANCHOR] = len(phrase), phrase.index(anchor)
        row[_BYTES : _BYTES + len(phrase)] = np.frombuffer(phrase.encode(), np.uint8)
    return table


def _pairs() -> NDArray[np.uint8]:
    """Return the phrases of each anchor as bits: uint8 (1024,), indexed by 5 bits of each letter."""
    table = np.zeros(1024, np.uint8)
    for k, anchor in enumerate(_ANCHORS):
        table[(ord(anchor[0]) & 31) << 5 | ord(anchor[1]) & 31] |= 1 << k
    return table


def _kinds() -> NDArray[np.uint8]:
    """Return the class of each byte: uint8 (256,)."""
    table = np.zeros(256, np.uint8)
    table[0x80:] = _OTHER
    table[[byte for byte in range(0x80) if chr(byte).isspace()]] = _BLANK
    table[_OPENING] = _MARK
    return table


_PHRASE_TABLE: Final = _phrases(_PHRASES, _ANCHORS)
_MARK_TABLE: Final = _phrases(_MARKS, ("e", "c"))
_PAIRS: Final = _pairs()
_KINDS: Final = _kinds()


@kernel
def _clean(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tables: SpacyTables,
    buffers: ChunkBuffers,
    rules: Rules,
    lines: CountsByLine,
    counts: NDArray[np.int64],
    word_counts: NDArray[np.int64],
    out_offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
    written: NDArray[np.uint8],
) -> None:
    """Write the texts to ``out``; ``written`` is a read-only view of it.

    Words and sentences are counted in the view, since other kernels count them in read-only arrays.
    """
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        start = free = out_offsets[k]
        number = lines.first[k] if len(lines.first) else -1  # line; -1 if the words are unknown
        while at < end:
            line_end, after = next_line(data, at, end)
            first, last = strip(data, at, line_end, tables.classes)
            at = after
            # Lines are written one after another; the next one overwrites a removed line.
            line = free + (free > start)  # leave a byte for the line feed
            stop = _clean_line(data, first, last, tables, rules, counts[k], line, out)
            if stop >= 0:
                counts[k, _SENTENCES] += sentences.count_sentences(
                    written, line, stop, tables, buffers
                )
                if free > start:
                    out[free] = _FEED
                free = stop
                if number >= 0 and stop - line == last - first:
                    add_lines(lines.counts, number, number + 1, word_counts, k)
                elif number >= 0:
                    count_line(written, line, stop, tables, buffers, word_counts, k)
            number += number >= 0
        # Empty lines and removed citation marks may leave white space at the ends of the page.
        first, last = strip(out, start, free, tables.classes)
        for j in range(last - first if first > start else 0):
            out[start + j] = out[first + j]
        out_offsets[k + 1] = start + last - first


@inner
def _clean_line(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    tables: SpacyTables,
    rules: Rules,
    counts: NDArray[np.int64],
    line: int,
    out: NDArray[np.uint8],
) -> int:
    """Write a line at ``out[line]`` and count it; return its end, or -1 if the line is removed."""
    # The order is datatrove's: each rule sees only the lines that the ones before have left.
    stop, words, longest = _copy(data, first, last, tables, rules, line, out)
    if longest > rules.max_word_chars:
        counts[_LONG_WORD] += 1
        return -1
    if rules.terminal and not _is_terminated(out, line, stop):
        counts[_OPEN] += 1
        return -1
    if words < rules.min_words:
        counts[_SHORT] += 1
        return -1
    phrases, has_brace = _find_phrases(out, line, stop)
    counts[_HAS_LOREM] += phrases & _LOREM > 0
    if rules.javascript and phrases & _JAVASCRIPT:
        counts[_HAS_JAVASCRIPT] += 1
        return -1
    counts[_HAS_BRACE] += has_brace
    if rules.policy and phrases & _POLICY:
        counts[_HAS_POLICY] += 1
        return -1
    return stop


@inner
def _copy(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    tables: SpacyTables,
    rules: Rules,
    line: int,
    out: NDArray[np.uint8],
) -> tuple[int, int, int]:
    """Copy a line without its citation marks.

    Returns the end of the copy, the number of words, and the code points of the longest word.
    """
    words = longest = chars = 0
    stop, kept_from = line, first  # bytes before kept_from belong to a citation mark
    at = first
    while at < last:
        # Copy up to 64 bytes at once where nothing needs a look: ASCII, no bracket that may begin a
        # mark, not inside of one. Words are counted by their first letters: a byte that is not blank,
        # after a blank. Only the word that the 64 bytes begin with can be longer than 64, so the lengths
        # of others are not needed, if the limit is at least 64.
        if at >= kept_from and at + SIZE <= len(data) and rules.max_word_chars >= SIZE:
            blanks, odd, openings = _find_plain(data, at)
            size = simd.first_bit(odd | (openings if rules.citations else 0))
            size = min(size, last - at)
            if size > 0:
                copy_64(out, stop, data, at)
                blanks &= low_bits(size)
                words += count_ones((blanks << 1 | (chars == 0)) & low_bits(size) & ~blanks)
                longest = max(longest, chars + min(simd.first_bit(blanks), size))
                # The word at the end goes on: its length is what follows the last blank, and all of it
                # if there is none.
                chars = leading_zeros(blanks) - (SIZE - size) + (0 if blanks else chars)
                at, stop = at + size, stop + size
                continue
        byte, width = data[at], 1
        kind = _KINDS[byte]
        if kind == _OTHER:
            point, width = point_at(data, at, last)
            kind = _BLANK if tables.flags[point] & SPACE else _OTHER
        elif kind == _MARK and rules.citations and at >= kept_from:
            # ``_citation`` returns 0 for any other bracket, which is then copied.
            kept_from = at + _citation(data, at, last, tables.classes)
        if at >= kept_from:
            for k in range(at, at + width):
                out[stop] = data[k]
                stop += 1
        if kind == _BLANK:
            chars = 0
        else:
            words += chars == 0
            chars += 1
            longest = max(longest, chars)
        at += width
    return stop, words, longest


@inner
def _citation(data: NDArray[np.uint8], at: int, end: int, classes: NDArray[np.uint8]) -> int:
    """Return the length in bytes of the citation mark at a bracket, like [12] or [edit]; 0 for none."""
    k = at + 1
    while k < end and data[k] != _CLOSING:
        kind, width = class_at(data, k, end, classes)
        if kind != DIGIT:
            break
        k += width
    if k < end and data[k] == _CLOSING:
        return k + 1 - at
    for mark in range(len(_MARK_TABLE)):
        size = np.int64(_MARK_TABLE[mark, _LENGTH])
        if at + size <= end:
            same = 0
            while same < size and data[at + same] == _MARK_TABLE[mark, _BYTES + same]:
                same += 1
            if same == size:
                return size
    return 0


@inner
def _is_terminated(data: NDArray[np.uint8], first: int, last: int) -> bool:
    if first == last:
        return False
    byte = data[last - 1]
    if byte == _DOT:
        return last - first < 3 or data[last - 2] != _DOT or data[last - 3] != _DOT
    return bool(byte == _QUESTION or byte == _EXCLAMATION or byte == _QUOTE or byte == _APOSTROPHE)


@inner
def _find_phrases(data: NDArray[np.uint8], first: int, last: int) -> tuple[int, bool]:
    """Return the phrases in a line, as bits, and whether it contains an opening brace."""
    phrases, has_brace, at = 0, False, first
    while at < last:
        # Phrases are rare, so look for a pair of letters that is rare elsewhere: ``ps`` of ``lorem
        # ipsum``, ``ki`` of ``cookie``. Masks find a pair in 64 bytes at once.
        p, s, j, a, m, v, k, i, braces = _find_anchors(data, at)
        begin = p & s >> 1 | j & a >> 1 | m & s >> 1 | v & a >> 1 | k & i >> 1
        begin &= low_bits(min(last - at, SIZE) - 1)
        has_brace |= (braces & low_bits(last - at)) != 0
        while begin:
            phrases |= _phrases_at(data, at + simd.first_bit(begin), first, last)
            begin = clear_first_bit(begin)
        # A pair may begin with the last of these bytes: read it again as the first of the next ones.
        at += SIZE - 1
    return phrases, has_brace


@inner
def _phrases_at(data: NDArray[np.uint8], at: int, first: int, last: int) -> int:
    """Return the phrases of a line whose anchor begins at a byte, as bits."""
    phrases = 0
    candidates = _PAIRS[(np.int64(data[at]) & 31) << 5 | np.int64(data[at + 1]) & 31]
    for phrase in range(len(_PHRASE_TABLE)):
        if candidates >> phrase & 1:
            start = at - int(_PHRASE_TABLE[phrase, _ANCHOR])
            phrases |= _is_phrase(data, start, first, last, phrase) << phrase
    return phrases


@inner
def _is_phrase(data: NDArray[np.uint8], start: int, first: int, last: int, phrase: int) -> bool:
    """Return whether a phrase begins at a byte, in letters of either case."""
    size = np.int64(_PHRASE_TABLE[phrase, _LENGTH])
    if start < first or start + size > last:
        return False
    for k in range(size):
        char = data[start + k]
        if 0x41 <= char <= 0x5A:
            char |= 0x20
        if char != _PHRASE_TABLE[phrase, _BYTES + k]:
            return False
    return True
