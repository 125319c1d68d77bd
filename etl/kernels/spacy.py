"""Words as spaCy's rules for English cut them, which are those that FineWeb's filters count.

White space makes chunks. Of a chunk, punctuation is cut off at both ends as long as there is any; what is
left is taken apart where a rule says so (``can't``), is left alone if it is the address of a host, and is
cut at infixes (``well-known``, ``and/or`` is special). A *segment* is what results: a word, a number, a
punctuation mark. A chunk in a script that writes no spaces has the segments of ``etl.kernels.words`` (UAX
#29); so has one of MAX_CHARS or more, which comes in pieces of so many. Linear in the bytes.

The rules are facts of spaCy 3.8 (MIT licence; ``spacy.tokenizer``). Of 480,000 different chunks of real
text in fifty languages 0.07 % come out otherwise: spaCy's alphabets lack Gujarati, Armenian, Malayalam and
the vowel signs of Arabic, so that it leaves a full stop behind them. Numeric addresses of hosts are cut.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.affixes import BYTE, FLAG, POINT, infix, prefix, suffix
from etl.kernels.english import (
    ALPHA,
    CUTS,
    DIGIT,
    DOT,
    KEY,
    LETTER,
    NO_WORD,
    SPACE,
    SPECIAL_BYTES,
    UNSPACED,
    Tables,
)
from etl.kernels.hosts import is_host
from etl.kernels.jit import inner, kernel
from etl.kernels.machine import load
from etl.kernels.swar import HIGH, letters
from etl.kernels.swar import first as first_of
from etl.kernels.utf8 import point_at
from etl.kernels.words import CHARS, END, FLAGS, START, next_segments

HAS_LETTER: Final = 1
IS_WORD: Final = 2  # has a character that is no punctuation
MAX_CHARS: Final = 4096
_BLOCK: Final = 1024  # segments at a time, and what one more chunk may give

_SEED, _PRIME = -3750763034362895579, 1099511628211  # FNV-1a, 64 bits
_DOT: Final = ord(".")
_CLOSING: Final = tuple(ord(char) for char in ',:;!?)"')  # always cut off behind letters
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
    data: NDArray[np.uint8], at: int, end: int, tables: Tables, room: Room
) -> tuple[int, int]:
    """Write the segments from byte ``at`` on to ``room.block``, at least one if there is one.

    Returns the byte to go on from (``end`` when all are done) and the number of segments written.
    """
    block, chunk = room.block, room.chunk
    flags_of = tables.flags
    num = 0
    while at < end and num < _BLOCK:
        if _is_blank(data[at]):
            at += 1
            continue
        # Most of English: ASCII letters, and perhaps one punctuation mark, before white space.
        first = at
        at = _after_letters(data, at, end)
        if 0 < at - first < MAX_CHARS - 1:
            if at == end or _is_blank(data[at]):
                num = _put_letters(block, num, first, at, _contraction(data, tables, first, at))
                continue
            mark = data[at]
            if at + 1 == end or _is_blank(data[at + 1]):
                cuts = _contraction(data, tables, first, at)
                is_cut = mark in _CLOSING
                if mark == _DOT and data[at - 1] >= 97 and cuts == 0:
                    is_cut = _special(data, tables, first, at + 1) == 0
                if is_cut:
                    num = _put_letters(block, num, first, at, cuts)
                    num = _put(block, num, at, at + 1, 1, 0)
                    at += 1
                    continue
        elif at == first:
            while at < end and 48 <= data[at] <= 57:
                at += 1
            if 0 < at - first < MAX_CHARS and (at == end or _is_blank(data[at])):
                num = _put(block, num, first, at, at - first, IS_WORD)
                continue
        if first == at and data[at] < 0x80 and (at + 1 == end or _is_blank(data[at + 1])):
            flag = np.int64(flags_of[data[at]])
            num = _put(block, num, at, at + 1, 1, _kind(flag, flag))
            at += 1
            continue
        chars, at, seen = _read_chunk(data, first, end, flags_of, chunk)
        if seen & UNSPACED or chars == MAX_CHARS:
            _, more = next_segments(data, first, at, tables.classes, block[num:])
            for k in range(num, num + more):
                letters = block[k, FLAGS] & HAS_LETTER
                block[k, FLAGS] = letters | IS_WORD if block[k, FLAGS] else 0
            num += more
        elif chars > 0:
            after = _cut_chunk(data, tables, room, chars, seen, num)
            joins = after >= num + 2 and _may_join(data, tables, block, num, after)
            num = _join(data, tables, block, num, after) if joins else after
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
def _after_letters(data: NDArray[np.uint8], at: int, end: int) -> int:
    """The byte after a run of ASCII letters."""
    while at + 8 <= len(data):
        others = letters(load(data, at)) ^ HIGH
        if others:
            return min(at + first_of(others), end)
        at += 8
        if at >= end:
            return end
    while at < end and 97 <= (data[at] | 32) <= 122:
        at += 1
    return at


@inner
def _is_blank(byte: int) -> bool:
    return byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31


@inner
def _put(block: NDArray[np.int64], num: int, start: int, end: int, chars: int, flags: int) -> int:
    block[num, START], block[num, END] = start, end
    block[num, CHARS], block[num, FLAGS] = chars, flags
    return num + 1


@inner
def _put_letters(block: NDArray[np.int64], num: int, start: int, end: int, cuts: int) -> int:
    """A run of ASCII letters: one segment, or the parts of a special."""
    if cuts == 0:
        return _put(block, num, start, end, end - start, HAS_LETTER | IS_WORD)
    while cuts:
        part = cuts & 0xFF
        num = _put(block, num, start, start + part, part, HAS_LETTER | IS_WORD)
        start, cuts = start + part, cuts >> 8
    return num


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
        cuts = _special(data, tables, chunk[first, BYTE], chunk[last, BYTE])
        if cuts:
            break
        front = prefix(chunk, first, last, seen)
        if front:
            cuts = _special(data, tables, chunk[first + front, BYTE], chunk[last, BYTE])
        behind = 0
        if not cuts and first + front < last:
            behind = suffix(chunk, first + front, last, seen)
        if behind:
            tails[behind_it, 0], tails[behind_it, 1] = last - behind, last
            behind_it += 1
            last -= behind
            cuts = _special(data, tables, chunk[first, BYTE], chunk[last, BYTE])
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
            cuts = _special(data, tables, start, stop)
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
def _contraction(data: NDArray[np.uint8], tables: Tables, start: int, end: int) -> int:
    """The cuts of ASCII letters that are a special (``cannot``), or 0."""
    ends = (np.int64(data[start]) & 31) << 5 | np.int64(data[end - 1]) & 31
    if end - start > SPECIAL_BYTES or not tables.of_letters[ends] >> (end - start) & 1:
        return 0
    return _special(data, tables, start, end)


@inner
def _special(data: NDArray[np.uint8], tables: Tables, start: int, end: int) -> int:
    """The cuts of bytes that are a special, or 0."""
    if end - start > SPECIAL_BYTES or start == end:
        return 0
    ends = (np.int64(data[start]) & 127) << 7 | np.int64(data[end - 1]) & 127
    if not tables.lengths[ends] >> (end - start) & 1:
        return 0
    key = _SEED
    for at in range(start, end):
        key = (key ^ np.int64(data[at])) * _PRIME
    specials = tables.specials
    last = len(specials) - 1
    place = (key >> 32) & last
    while specials[place, KEY] != 0 and specials[place, KEY] != key:
        place = (place + 1) & last
    cuts: int = specials[place, CUTS]
    return cuts


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
