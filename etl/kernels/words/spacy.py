"""Words as spaCy's rules for English cut them, which are those that FineWeb's filters count.

White space makes chunks. Of a chunk, punctuation is cut off at both ends as long as there is any; what is
left is taken apart where a rule says so (``can't``), is left alone if it is the address of a host, and is
cut at infixes (``well-known``, ``and/or`` is special). A *segment* is what results: a word, a number, a
punctuation mark. A chunk in a script that writes no spaces has the segments of ``etl.kernels.words.uax29`` (UAX
#29); so has one of MAX_CHARS or more, which comes in pieces of so many. Linear in the bytes.

The rules are facts of spaCy 3.8 (MIT licence; ``spacy.tokenizer``). Of 480,000 different chunks of real
text in fifty languages 0.07 % come out otherwise: spaCy's alphabets lack Gujarati, Armenian, Malayalam and
the vowel signs of Arabic, so that it leaves a full stop behind them. Numeric addresses of hosts are cut.
"""

from string import ascii_letters
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.simd import bits_between, low_bits, num_set
from etl.kernels.bytes.utf8 import point_at
from etl.kernels.jit import inner, kernel
from etl.kernels.words import spacy_ascii
from etl.kernels.words.spacy_affixes import BYTE, FLAG, POINT, infix, prefix, suffix
from etl.kernels.words.spacy_ascii import Kinds, contraction, special
from etl.kernels.words.spacy_english import (
    ALPHA,
    DIGIT,
    DOT,
    LETTER,
    NO_WORD,
    SPACE,
    UNSPACED,
    Tables,
)
from etl.kernels.words.spacy_hosts import is_host
from etl.kernels.words.uax29 import CHARS, END, FLAGS, START, next_segments

HAS_LETTER: Final = 1
IS_WORD: Final = 2  # has a character that is no punctuation
MAX_CHARS: Final = 4096
_BLOCK: Final = 1024  # segments at a time, and what one more chunk may give

_find_letters = simd.kinds(
    ascii_letters.encode(), bytes(byte for byte in range(0x80) if chr(byte).isspace())
)
_JOINED: Final = 5  # segments that are joined, at most: those of ":-)))"
_SEEN, _JOIN = 1 << 2, 1 << 3  # flags inside _join; from _JOIN on, the segments to join


class Room(NamedTuple):
    """Arrays that are used again from call to call."""

    block: NDArray[np.int64]  # (n, [START, END, CHARS, FLAGS]) segments
    chunk: NDArray[np.int64]  # (MAX_CHARS + 1, [POINT, FLAG, BYTE]) characters, 0, 0 at the end
    tails: NDArray[np.int64]  # (MAX_CHARS, 2) what has been cut off behind: first, last character


@kernel
def new_room() -> Room:
    """Room for any text; about 330 KB."""
    return Room(
        np.empty((_BLOCK + MAX_CHARS + 2, 4), np.int64),
        np.empty((MAX_CHARS + 1, 3), np.int64),
        np.empty((MAX_CHARS, 2), np.int64),
    )


@kernel
def next_words(
    data: NDArray[np.uint8], at: int, end: int, tables: Tables, room: Room, keeps: bool
) -> tuple[int, int]:
    """Write the segments from byte ``at`` on to ``room.block``, at least one if there is one.

    Returns the byte to go on from (``end`` when all are done) and the number of segments written. If they
    are not to be kept all are counted, and what is in the block means nothing.
    """
    num = 0
    while at < end and (num < _BLOCK or not keeps):
        at, num = _cut_64(data, at, end, tables, room, num, keeps)
    return at, num


@inner
def _cut_64(
    data: NDArray[np.uint8], at: int, end: int, tables: Tables, room: Room, num: int, keeps: bool
) -> tuple[int, int]:
    """Append the segments of the next 64 bytes, up to a chunk that takes other rules, or those of that one.

    Returns the byte to go on from, and the number of all segments. If they are not to be kept they are
    only counted.
    """
    there = low_bits(end - at)
    letters, blanks = _find_letters(data, at)
    letters, blanks = letters & there, blanks | ~there
    odd = ~(letters | blanks)
    kinds = spacy_ascii.kinds(data, at, letters)
    chunks, stops = ~blanks & (blanks << 1 | 1), blanks & ~(blanks << 1 | 1)
    starts, ends = np.int64(0), np.int64(0)  # of the segments
    while stops:
        first, last = simd.first_bit(chunks), simd.first_bit(stops)
        if odd & bits_between(first, last):
            begin = spacy_ascii.cut(data, first, last, kinds, tables)
        else:
            begin = spacy_ascii.parts(first, contraction(data, tables, at + first, at + last))
        if begin == spacy_ascii.LEFT:
            break
        starts |= begin
        ends |= begin & begin - 1 | np.int64(1) << last
        chunks, stops = chunks & chunks - 1, stops & stops - 1
    num = _put_all(room.block, num, starts, ends, kinds) if keeps else num + num_set(starts)
    if chunks == 0:
        return min(at + simd.SIZE, end), num
    if stops == 0 and chunks & 1 == 0:
        return at + simd.first_bit(chunks), num
    at, after = _cut_slowly(
        data, at + simd.first_bit(chunks), end, tables, room, num if keeps else 0
    )
    return at, after if keeps else num + after


@inner
def _put_all(block: NDArray[np.int64], num: int, starts: int, ends: int, of: Kinds) -> int:
    """Append segments of ASCII, of which each begins and ends at a bit."""
    words = of.letters | of.digits
    while starts:
        first, last = simd.first_bit(starts), simd.first_bit(ends)
        starts, ends = starts & starts - 1, ends & ends - 1
        inside = bits_between(first, last)
        flags = (HAS_LETTER if of.letters & inside else 0) | (IS_WORD if words & inside else 0)
        num = _put(block, num, of.base + first, of.base + last, last - first, flags)
    return num


@inner
def _cut_slowly(
    data: NDArray[np.uint8], at: int, end: int, tables: Tables, room: Room, num: int
) -> tuple[int, int]:
    """Append the segments of what stands before any white space, up to MAX_CHARS; where it ends."""
    first = at
    chars, at, seen = _read_chunk(data, first, end, tables.flags, room.chunk)
    if seen & UNSPACED or chars == MAX_CHARS:
        block = room.block[num:]
        _, more = next_segments(data, first, at, tables.classes, block)
        for k in range(more):
            letters = block[k, FLAGS] & HAS_LETTER
            block[k, FLAGS] = letters | IS_WORD if block[k, FLAGS] else 0
        return at, num + more
    if chars > 0:
        after = _cut_chunk(data, tables, room, chars, seen, num)
        joins = after >= num + 2 and _may_join(data, tables, room.block, num, after)
        num = _join(data, tables, room.block, num, after) if joins else after
    return at, num


@kernel
def next_chunks(
    data: NDArray[np.uint8], at: int, end: int, tables: Tables, room: Room
) -> tuple[int, int]:
    """As ``next_words``, but a segment is whatever stands between white space."""
    block, flags_of = room.block, tables.flags
    num = 0
    while at < end and num < _BLOCK:
        first = at
        chars = flags = 0
        while at < end:
            point, width = point_at(data, at, end)
            of_point = flags_of[point]
            if of_point & SPACE:
                break
            flags |= HAS_LETTER if of_point & LETTER else 0
            chars += 1
            at += width
        if chars:
            num = _put(block, num, first, at, chars, flags | IS_WORD)
        else:
            at += width
    return at, num


@inner
def _put(block: NDArray[np.int64], num: int, start: int, end: int, chars: int, flags: int) -> int:
    block[num, START], block[num, END] = start, end
    block[num, CHARS], block[num, FLAGS] = chars, flags
    return num + 1


@inner
def _read_chunk(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    flags_of: NDArray[np.uint32],
    chunk: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Decode what stands before the next white space; its characters, its end, all flags."""
    chars, seen = 0, np.int64(0)
    while at < end and chars < MAX_CHARS:
        point, width = np.int64(data[at]), 1
        if point >= 0x80:
            point, width = point_at(data, at, end)
        flags = np.int64(flags_of[point])
        if flags & SPACE:
            at += width if chars == 0 else 0
            break
        chunk[chars, POINT], chunk[chars, FLAG], chunk[chars, BYTE] = point, flags, at
        seen |= flags
        chars += 1
        at += width
    chunk[chars, POINT], chunk[chars, FLAG], chunk[chars, BYTE] = 0, 0, at
    return chars, at, seen


@inner
def _cut_chunk(
    data: NDArray[np.uint8], tables: Tables, room: Room, chars: int, seen: int, num: int
) -> int:
    """Append the segments of a chunk to the block, by rules for what stands alone."""
    block, chunk, tails = room.block, room.chunk, room.tails
    first, last, behind_it, before = 0, chars, 0, 0
    cuts = 0
    while first < last and last - first != before:
        before = last - first
        cuts = special(data, tables, chunk[first, BYTE], chunk[last, BYTE])
        if cuts:
            break
        front = prefix(chunk, first, last, seen)
        if front:
            cuts = special(data, tables, chunk[first + front, BYTE], chunk[last, BYTE])
        behind = 0
        if not cuts and first + front < last:
            behind = suffix(chunk, first + front, last, seen)
        if behind:
            tails[behind_it, 0], tails[behind_it, 1] = last - behind, last
            behind_it += 1
            last -= behind
            cuts = special(data, tables, chunk[first, BYTE], chunk[last, BYTE])
            if cuts:  # the special begins with what would be cut off in front
                break
        if front:
            num = _emit(block, num, chunk, first, first + front)
            first += front
        if cuts:
            break
    if cuts:
        while cuts:
            num = _emit(block, num, chunk, first, first + (cuts & 0xFF))
            first, cuts = first + (cuts & 0xFF), cuts >> 8
    elif first < last:
        if seen & DOT and is_host(chunk, first, last):
            num = _emit(block, num, chunk, first, last)
        else:
            num = _infixes(block, num, chunk, first, last)
    for k in range(behind_it - 1, -1, -1):
        num = _emit(block, num, chunk, tails[k, 0], tails[k, 1])
    return num


@inner
def _may_join(
    data: NDArray[np.uint8], tables: Tables, block: NDArray[np.int64], first: int, end: int
) -> bool:
    """Whether some neighbours begin like a special and are as long as one."""
    found = 0
    for k in range(first, end - 1):
        start = block[k, START]
        lengths = tables.joined[data[start]]
        for last in range(k + 1, end):
            size = min(block[last, END] - start, 63)
            found |= lengths >> size & 1
            if lengths >> size == 0:
                break
    return found > 0


@inner
def _join(
    data: NDArray[np.uint8], tables: Tables, block: NDArray[np.int64], first: int, end: int
) -> int:
    """Join neighbours in a chunk that together are a special: the ``:*`` of ``Note:*``.

    Of those that overlap the longest one is joined, the first one of several. One that is not joined
    stands in the way of others all the same: of ``:):)`` the first is joined.
    """
    found = 0
    for count in range(min(_JOINED, end - first), 1, -1):
        for k in range(first, end - count + 1):
            start, stop = block[k, START], block[k + count - 1, END]
            cuts = special(data, tables, start, stop)
            if cuts == 0 or cuts > 0xFF:
                continue
            if not (block[k, FLAGS] | block[k + count - 1, FLAGS]) & _SEEN:
                block[k, FLAGS] |= count * _JOIN
                found += 1
            for j in range(k, k + count):
                block[j, FLAGS] |= _SEEN
    return _merge(block, first, end) if found else end


@inner
def _merge(block: NDArray[np.int64], first: int, end: int) -> int:
    """Make one of segments that ``_join`` has marked."""
    k = num = first
    while k < end:
        count = max(block[k, FLAGS] // _JOIN, 1)
        start, chars, flags = block[k, START], 0, 0
        for j in range(k, k + count):
            chars += block[j, CHARS]
            flags |= block[j, FLAGS]
        num = _put(block, num, start, block[k + count - 1, END], chars, flags & _SEEN - 1)
        k += count
    return num


@inner
def _kind(letters: int, marks: int) -> int:
    """The flags of a segment, given those that any of its characters has, and those that all have."""
    return (HAS_LETTER if letters & LETTER else 0) | (0 if marks & NO_WORD else IS_WORD)


@inner
def _emit(
    block: NDArray[np.int64], num: int, chunk: NDArray[np.int64], first: int, last: int
) -> int:
    any_of, all_of = np.int64(0), np.int64(NO_WORD)
    for k in range(first, last):
        any_of |= chunk[k, FLAG]
        all_of &= chunk[k, FLAG]
    kind = _kind(any_of, all_of)
    return _put(block, num, chunk[first, BYTE], chunk[last, BYTE], last - first, kind)


@inner
def _infixes(
    block: NDArray[np.int64], num: int, chunk: NDArray[np.int64], first: int, last: int
) -> int:
    """Emit characters cut at their infixes."""
    start, k = first, first
    any_of, all_of = np.int64(0), np.int64(NO_WORD)
    while k < last:
        flag = chunk[k, FLAG]
        width = infix(chunk, first, k, last) if k > first and not flag & (ALPHA | DIGIT) else 0
        if width == 0:
            any_of |= flag
            all_of &= flag
            k += 1
            continue
        if k > start:
            kind = _kind(any_of, all_of)
            num = _put(block, num, chunk[start, BYTE], chunk[k, BYTE], k - start, kind)
        num = _emit(block, num, chunk, k, k + width)
        start = k = k + width
        any_of, all_of = np.int64(0), np.int64(NO_WORD)
    if start < last:
        kind = _kind(any_of, all_of)
        num = _put(block, num, chunk[start, BYTE], chunk[last, BYTE], last - start, kind)
    return num
