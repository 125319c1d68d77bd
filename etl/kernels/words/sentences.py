"""Count sentences as spaCy's ``sentencizer`` does.

A sentence begins with the first word, and with the first word after a segment that is a single character
of ``etl.kernels.words.spacy_tables.SENTENCE_ENDS``. Only chunks with such a character, and those after
them, are cut into segments.

The rule is a fact of spaCy 3.8 (MIT licence; ``spacy.pipeline.sentencizer``).
"""

from string import ascii_lowercase, digits
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.simd import NOT_ASCII, SIZE, low_bits, make_byte_finder
from etl.kernels.bytes.utf8 import point_at
from etl.kernels.jit import inner
from etl.kernels.words.spacy import ChunkBuffers, next_words
from etl.kernels.words.spacy_tables import PUNCTUATION, SENTENCE_END, SPACE, SpacyTables
from etl.kernels.words.uax29 import END, START

_DOT: Final = ord(".")
_find_ends = make_byte_finder(b".?!" + NOT_ASCII)
# Kinds of bytes: white space, may end a sentence, not ASCII, small letter, digit.
_BLANK, _END, _OTHER, _SMALL, _DIGIT = range(1, 6)


def _kinds() -> NDArray[np.uint8]:
    """Return the kind of each byte: uint8 (256,)."""
    table = np.zeros(256, np.uint8)
    table[0x80:] = _OTHER
    table[[byte for byte in range(0x80) if chr(byte).isspace()]] = _BLANK
    table[[ord(char) for char in ".?!"]] = _END
    table[[ord(char) for char in ascii_lowercase]] = _SMALL
    table[[ord(char) for char in digits]] = _DIGIT
    return table


_KINDS: Final = _kinds()


@inner
def count_sentences(
    data: NDArray[np.uint8], at: int, end: int, tables: SpacyTables, buffers: ChunkBuffers
) -> int:
    """Count the sentences of a text between two bytes."""
    sentences, ended, chunk = 0, True, at  # the first word begins a sentence
    while at < end:
        if not ended:
            at, chunk = _next_end(data, at, end, tables, chunk)
        first = at if ended else chunk
        seen, common = np.uint32(0), np.uint32(PUNCTUATION)
        while at < end:
            point, width = np.int64(data[at]), 1
            if point >= 0x80:
                point, width = point_at(data, at, end)
            if tables.flags[point] & SPACE:
                break
            seen |= tables.flags[point]
            common &= tables.flags[point]
            at += width
        if at == first:
            at += width
            continue
        if sentences == 0:
            sentences, ended = 1, False
        if seen & SENTENCE_END:
            more, ended = _chunk_sentences(data, first, at, tables, buffers, ended)
            sentences += more
        elif ended and not common:
            sentences, ended = sentences + 1, False
        chunk = at
    return sentences


@inner
def _next_end(
    data: NDArray[np.uint8], at: int, end: int, tables: SpacyTables, chunk: int
) -> tuple[int, int]:
    """Return the next character that may end a sentence, and where its chunk begins, not before ``chunk``."""
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
            return at, _chunk_start(data, at, tables, chunk)
        at += width
    return end, end


@inner
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


@inner
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
