"""Count sentences as spaCy's ``sentencizer`` does.

A sentence begins with the first word, and with the first word after a segment that is a single character
of ``etl.kernels.words.spacy_tables.SENTENCE_ENDS``. Only chunks with such a character are cut into
segments, and of these not the words of ASCII letters before a mark.

The rule is a fact of spaCy 3.8 (MIT licence; ``spacy.pipeline.sentencizer``).
"""

from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.simd import NOT_ASCII, SIZE, leading_zeros, low_bits, make_byte_finder
from etl.kernels.bytes.utf8 import point_at
from etl.kernels.jit import inner, rare
from etl.kernels.words.spacy import ChunkBuffers, next_words
from etl.kernels.words.spacy_ascii import may_be_special
from etl.kernels.words.spacy_tables import PUNCTUATION, SENTENCE_END, SPACE, SpacyTables
from etl.kernels.words.uax29 import END, START

_DOT: Final = ord(".")
_find_ends = make_byte_finder(b".?!" + NOT_ASCII)
_find_letters = make_byte_finder(ascii_letters.encode())
# Kinds of bytes: white space, may end a sentence, not ASCII, small letter, digit, capital letter.
_BLANK, _END, _OTHER, _SMALL, _DIGIT, _CAPITAL = range(1, 7)


def _kinds() -> NDArray[np.uint8]:
    """Return the kind of each byte: uint8 (256,)."""
    table = np.zeros(256, np.uint8)
    table[0x80:] = _OTHER
    table[[byte for byte in range(0x80) if chr(byte).isspace()]] = _BLANK
    table[[ord(char) for char in ".?!"]] = _END
    table[[ord(char) for char in ascii_lowercase]] = _SMALL
    table[[ord(char) for char in digits]] = _DIGIT
    table[[ord(char) for char in ascii_uppercase]] = _CAPITAL
    return table


_KINDS: Final = _kinds()


@inner
def count_sentences(
    data: NDArray[np.uint8], at: int, end: int, tables: SpacyTables, buffers: ChunkBuffers
) -> int:
    """Count the sentences of a text between two bytes."""
    sentences, ended, chunk = 0, True, at  # the first word begins a sentence
    while at < end:
        if ended and _KINDS[data[at]] >= _SMALL:
            sentences, ended, chunk = sentences + 1, False, at
        if not ended:
            at = _next_end(data, at, end, tables, chunk)
            if at == end:
                return sentences
            if _ends_word(data, at, tables, chunk):
                ended, at = True, at + 1
                continue
            chunk = _chunk_start(data, at, tables, chunk)
        first = at if ended else chunk
        at, any_of, all_of, blank = _read_flags(data, at, end, tables.flags)
        if at == first:
            at += blank
            continue
        if sentences == 0:
            sentences, ended = 1, False
        if any_of & SENTENCE_END:
            more, ended = _chunk_sentences(data, first, at, tables, buffers, ended)
            sentences += more
        elif ended and not all_of & PUNCTUATION:
            sentences, ended = sentences + 1, False
        chunk = at
    return sentences


@inner
def _read_flags(
    data: NDArray[np.uint8], at: int, end: int, flags: NDArray[np.uint32]
) -> tuple[int, int, int, int]:
    """Return the end of a chunk, the flags of any and of all its characters from a byte on, and more.

    The last number is the width of the white space after it.
    """
    any_of, all_of, width = np.uint32(0), np.uint32(PUNCTUATION), 0
    while at < end:
        point, width = np.int64(data[at]), 1
        if point >= 0x80:
            point, width = point_at(data, at, end)
        if flags[point] & SPACE:
            break
        any_of |= flags[point]
        all_of &= flags[point]
        at += width
    return at, any_of, all_of, width


@inner
def _next_end(data: NDArray[np.uint8], at: int, end: int, tables: SpacyTables, chunk: int) -> int:
    """Return the next character that may end a sentence before another one, or ``end``.

    Its chunk begins at ``chunk`` or later. A sentence that ends with the text has none after it.
    """
    while at < end:
        candidates = _find_ends(data, at)[0] & low_bits(end - at)
        if candidates == 0:
            at += SIZE
            continue
        at += simd.first_bit(candidates)
        kind, width = _KINDS[data[at]], 1
        if kind == _OTHER:
            point, width = point_at(data, at, end)
            kind = _END if tables.flags[point] & SENTENCE_END else _OTHER
        if kind == _END and not (data[at] == _DOT and _is_inside_word(data, at, chunk, end)):
            return at if at + width < end else end
        at += width
    return end


@inner
def _ends_word(data: NDArray[np.uint8], at: int, tables: SpacyTables, first: int) -> bool:
    """Return whether a chunk is ASCII letters and then the mark at a byte, where a rule cuts.

    The chunk begins at ``first`` or later; a byte follows the mark.
    """
    if _KINDS[data[at]] != _END or _KINDS[data[at + 1]] != _BLANK:
        return False
    base = max(at - SIZE + 1, 0)
    # Most sentences end with a word and a full stop: look back up to 63 bytes, for the last byte that is
    # not a letter. A longer word takes the slow path.
    others = ~_find_letters(data, base)[0] & low_bits(at - base)
    start = max(base + SIZE - leading_zeros(others), first)
    if start == at or not (start == first or _KINDS[data[start - 1]] == _BLANK):
        return False
    is_cut = data[at] != _DOT or _KINDS[data[at - 1]] == _SMALL
    return is_cut and not may_be_special(data, tables, start, at + 1, 1)


@rare
def _chunk_start(data: NDArray[np.uint8], at: int, tables: SpacyTables, first: int) -> int:
    """Return where the chunk of a character begins, not before ``first``."""
    while at > first:
        before = at - 1
        while before > first and data[before] & 0xC0 == 0x80:
            before -= 1
        point, _ = point_at(data, before, at)
        if tables.flags[point] & SPACE:
            break
        at = before
    return at


@inner
def _is_inside_word(data: NDArray[np.uint8], at: int, first: int, end: int) -> bool:
    """Return whether a full stop is between two small letters or two digits, where no rule cuts."""
    if at == first or at + 1 >= end:
        return False
    before, after = _KINDS[data[at - 1]], _KINDS[data[at + 1]]
    return bool(before == after and (before == _SMALL or before == _DIGIT))


@rare
def _chunk_sentences(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    tables: SpacyTables,
    buffers: ChunkBuffers,
    ended: bool,
) -> tuple[int, bool]:
    """Count the sentences that begin in a chunk; also return whether the last one has ended."""
    sentences = 0
    while at < end:
        at, num = next_words(data, at, end, tables, buffers, True)
        for k in range(num):
            start, stop = buffers.block[k, START], buffers.block[k, END]
            point, width = point_at(data, start, stop)
            if width == stop - start and tables.flags[point] & SENTENCE_END:
                ended = True
            elif ended:
                common = np.uint32(PUNCTUATION)
                while start < stop:
                    point, width = point_at(data, start, stop)
                    common &= tables.flags[point]
                    start += width
                if not common:
                    sentences, ended = sentences + 1, False
    return sentences, ended
