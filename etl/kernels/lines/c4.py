"""C4's cleaning of a page: which lines stay, without their citation marks, and how many sentences they have.

The rules are those of Raffel et al. 2020 (section 2.2) as datatrove 0.10.1 applies them, in its order;
letters are compared without regard to case where they are ASCII. The new text is never longer than the old.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.character_classes import DIGIT
from etl.kernels.bytes.line_breaks import next_line, strip
from etl.kernels.bytes.simd import NOT_ASCII, SIZE, copy, kinds, leading_zeros, low_bits, num_set
from etl.kernels.bytes.spans import strings
from etl.kernels.bytes.utf8 import Texts, class_at, point_at
from etl.kernels.jit import inner, kernel
from etl.kernels.words import sentences
from etl.kernels.words.spacy import new_room
from etl.kernels.words.spacy_english import SPACE, Tables, tables

COUNTS: Final = (
    "long_word_lines",  # left out: with a word of more than max_word_chars
    "open_lines",  # left out: without . ? ! " ' at the end, or with ... there
    "short_lines",  # left out: with fewer than min_words words
    "javascript_lines",  # left out: that say so
    "policy_lines",  # left out: with one of POLICIES
    "lorem_ipsum_lines",  # among the others: that say so
    "brace_lines",  # among the others: with a '{'
    "sentences",  # in the lines that stay
)
"""The rows of the counts, in order."""

POLICIES: Final = (
    *("terms of use", "privacy policy", "cookie policy"),
    *("uses cookies", "use of cookies", "use cookies"),
)

_PHRASES: Final = ("lorem ipsum", "javascript", *POLICIES)
_LOREM, _JAVASCRIPT, _POLICY = 1, 2, 0xFC  # bits of phrases
_ANCHORS: Final = ("ps", "ja", "ms", "va", "ki", "ki", "ki", "ki")  # rare pairs of letters in them
_MARKS: Final = ("[edit]", "[citation needed]")
_QUOTE, _APOSTROPHE, _DOT, _QUESTION, _EXCLAMATION = (ord(char) for char in "\"'.?!")
# Bytes of a line: white space, not ASCII, opens a citation.
_BLANK, _OTHER, _MARK = range(1, 4)
_OPENING, _CLOSING, _FEED = (ord(char) for char in "[]\n")
_find_plain = kinds(b" ", bytes(range(0x20)) + NOT_ASCII, b"[")
_find_anchors = kinds(b"pP", b"sS", b"jJ", b"aA", b"mM", b"vV", b"kK", b"iI", b"{")


class Rules(NamedTuple):
    """Which rules hold."""

    terminal: bool
    min_words: int
    max_word_chars: int
    javascript: bool
    policy: bool
    citations: bool


def clean(texts: Texts, rules: Rules) -> tuple[pa.Array, NDArray[np.int64]]:
    """The lines of each document that stay, and its counts: string, int64 (len(COUNTS), n)."""
    num = len(texts.offsets) - 1
    counts = np.zeros((num, len(COUNTS)), np.int64)
    offsets = np.zeros(num + 1, np.int64)
    data = np.empty(texts.offsets[-1] - texts.offsets[0] + num + SIZE, np.uint8)
    _clean(texts.offsets, texts.data, tables(), rules, counts, offsets, data)
    return strings(offsets, data, texts.valid), counts.T


def _phrases(phrases: tuple[str, ...], anchors: tuple[str, ...]) -> NDArray[np.uint8]:
    """uint8 (phrases, longest + 2): the length, where the anchor is, and the bytes."""
    found = np.zeros((len(phrases), 2 + max(map(len, phrases))), np.uint8)
    for row, phrase, anchor in zip(found, phrases, anchors, strict=True):
        row[0], row[1] = len(phrase), phrase.index(anchor)
        row[2 : len(phrase) + 2] = np.frombuffer(phrase.encode(), np.uint8)
    return found


def _pairs() -> NDArray[np.uint8]:
    """uint8 (1024,): the phrases that have two letters for an anchor, a bit each; 5 bits of each letter."""
    found = np.zeros(1024, np.uint8)
    for k, anchor in enumerate(_ANCHORS):
        found[(ord(anchor[0]) & 31) << 5 | ord(anchor[1]) & 31] |= 1 << k
    return found


def _kinds() -> NDArray[np.uint8]:
    """uint8 (256,): what to make of a byte of a line."""
    found = np.zeros(256, np.uint8)
    found[0x80:] = _OTHER
    found[[byte for byte in range(0x80) if chr(byte).isspace()]] = _BLANK
    found[_OPENING] = _MARK
    return found


_PHRASE_TABLE: Final = _phrases(_PHRASES, _ANCHORS)
_MARK_TABLE: Final = _phrases(_MARKS, ("e", "c"))
_PAIRS: Final = _pairs()
_KINDS: Final = _kinds()


@kernel
def _clean(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tables: Tables,
    rules: Rules,
    counts: NDArray[np.int64],
    out_offsets: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    room = new_room()
    for k in range(len(offsets) - 1):
        at, end = offsets[k], offsets[k + 1]
        start = free = out_offsets[k]
        while at < end:
            line_end, after = next_line(data, at, end)
            first, last = strip(data, at, line_end, tables.classes)
            at = after
            line = free + (free > start)  # where it goes: behind a line feed
            stop = _clean_line(data, first, last, tables, rules, counts[k], line, out)
            if stop >= 0:
                counts[k, 7] += sentences.count(out, line, stop, tables, room)
                if free > start:
                    out[free] = _FEED
                free = stop
        first, last = strip(out, start, free, tables.classes)
        for j in range(last - first if first > start else 0):
            out[start + j] = out[first + j]
        out_offsets[k + 1] = start + last - first


@inner
def _clean_line(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    tables: Tables,
    rules: Rules,
    counts: NDArray[np.int64],
    line: int,
    out: NDArray[np.uint8],
) -> int:
    """Write a line to ``out`` from ``line`` on; the byte after it, or -1 if it is left out."""
    stop, words, longest = _copy(data, first, last, tables, rules, line, out)
    if longest > rules.max_word_chars:
        counts[0] += 1
        return -1
    if rules.terminal and not _is_terminated(out, line, stop):
        counts[1] += 1
        return -1
    if words < rules.min_words:
        counts[2] += 1
        return -1
    phrases, braces = _find(out, line, stop)
    lorem, javascript = phrases & _LOREM, phrases & _JAVASCRIPT
    counts[5] += lorem > 0
    if rules.javascript and javascript:
        counts[3] += 1
        return -1
    counts[6] += braces
    if rules.policy and phrases & _POLICY:
        counts[4] += 1
        return -1
    return stop


@inner
def _copy(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    tables: Tables,
    rules: Rules,
    line: int,
    out: NDArray[np.uint8],
) -> tuple[int, int, int]:
    """Copy a line without its citations; the byte after it, its words, the code points of the longest one."""
    words = longest = chars = 0
    stop, kept_from = line, first  # what stands before kept_from is a citation
    at = first
    while at < last:
        if at >= kept_from and at + SIZE <= len(data) and rules.max_word_chars >= SIZE:
            blanks, odd, openings = _find_plain(data, at)
            size = simd.first_bit(odd | (openings if rules.citations else 0))
            size = min(size, last - at)
            if size > 0:
                copy(out, stop, data, at)
                blanks &= low_bits(size)
                words += num_set((blanks << 1 | (chars == 0)) & low_bits(size) & ~blanks)
                longest = max(longest, chars + min(simd.first_bit(blanks), size))
                chars = leading_zeros(blanks) - (SIZE - size) + (0 if blanks else chars)
                at, stop = at + size, stop + size
                continue
        byte, width = data[at], 1
        kind = _KINDS[byte]
        if kind == _OTHER:
            point, width = point_at(data, at, last)
            kind = _BLANK if tables.flags[point] & SPACE else _OTHER
        elif kind == _MARK and rules.citations and at >= kept_from:
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
    """How many bytes of a mark like [12] or [edit] begin at an opening bracket; 0 if it is none."""
    k = at + 1
    while k < end and data[k] != _CLOSING:
        kind, width = class_at(data, k, end, classes)
        if kind != DIGIT:
            break
        k += width
    if k < end and data[k] == _CLOSING:
        return k + 1 - at
    for mark in range(len(_MARK_TABLE)):
        size = np.int64(_MARK_TABLE[mark, 0])
        if at + size <= end:
            same = 0
            while same < size and data[at + same] == _MARK_TABLE[mark, same + 2]:
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
def _find(data: NDArray[np.uint8], first: int, last: int) -> tuple[int, bool]:
    """The phrases that a line has, a bit each, and whether it has a brace."""
    found, has_brace, at = 0, False, first
    while at < last:
        p, s, j, a, m, v, k, i, braces = _find_anchors(data, at)
        begin = p & s >> 1 | j & a >> 1 | m & s >> 1 | v & a >> 1 | k & i >> 1
        begin &= low_bits(min(last - at, SIZE) - 1)
        has_brace |= (braces & low_bits(last - at)) != 0
        while begin:
            found |= _phrases_at(data, at + simd.first_bit(begin), first, last)
            begin &= begin - 1
        at += SIZE - 1
    return found, has_brace


@inner
def _phrases_at(data: NDArray[np.uint8], at: int, first: int, last: int) -> int:
    """The phrases of a line whose anchor begins at a byte, a bit each."""
    found = 0
    some = _PAIRS[(np.int64(data[at]) & 31) << 5 | np.int64(data[at + 1]) & 31]
    for phrase in range(len(_PHRASE_TABLE)):
        if some >> phrase & 1:
            start = at - int(_PHRASE_TABLE[phrase, 1])
            found |= _is_phrase(data, start, first, last, phrase) << phrase
    return found


@inner
def _is_phrase(data: NDArray[np.uint8], start: int, first: int, last: int, phrase: int) -> bool:
    """Whether a phrase begins at a byte, in letters of either case."""
    size = np.int64(_PHRASE_TABLE[phrase, 0])
    if start < first or start + size > last:
        return False
    for k in range(size):
        char = data[start + k]
        if 0x41 <= char <= 0x5A:
            char |= 0x20
        if char != _PHRASE_TABLE[phrase, k + 2]:
            return False
    return True
