"""Words as spaCy's rules for English cut them, which are those that FineWeb's filters count.

White space makes chunks. Of a chunk, punctuation is cut off at both ends as long as there is any; what is
left is taken apart where a rule says so (``can't``), is left alone if it is the address of a host, and is
cut at infixes (``well-known``, ``and/or`` is special). A *segment* is what results: a word, a number, a
punctuation mark. A chunk in a script that writes no spaces has the segments of ``etl.kernels.words`` (UAX
#29); so has one of MAX_CHARS or more, which comes in pieces of so many. Left out are numeric addresses of
hosts. Linear in the bytes.

The rules are facts of spaCy 3.8 (MIT licence; ``spacy.tokenizer``, ``spacy.lang.punctuation``).
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.english import (
    ALPHA,
    CUTS,
    DIGIT,
    DOT,
    HOST,
    ICON,
    KEY,
    LETTER,
    LOWER,
    MONEY,
    NO_WORD,
    PREFIX,
    PUNCT,
    QUOTE,
    SPACE,
    SPECIAL_BYTES,
    SUFFIX,
    UNSPACED,
    UPPER,
    Tables,
)
from etl.kernels.jit import inner, kernel
from etl.kernels.utf8 import point_at
from etl.kernels.words import CHARS, END, FLAGS, START, next_segments

HAS_LETTER: Final = 1
IS_WORD: Final = 2  # has a character that is no punctuation
MAX_CHARS: Final = 4096
_BLOCK: Final = 1024  # segments at a time, and what one more chunk may give

_SEED, _PRIME = -3750763034362895579, 1099511628211  # FNV-1a, 64 bits
_DOT, _COMMA, _DASH, _PLUS, _APOSTROPHE, _BAR, _DOLLAR = (ord(char) for char in ".,-+'|$")
_ELLIPSIS, _TYPOGRAPHIC, _DEGREE, _SQUARED = ord("…"), ord("’"), ord("°"), ord("²")
_DASHES: Final = (ord("-"), ord("–"), ord("—"), ord("~"))
_JOINED: Final = 5  # segments that are joined, at most: those of ":-)))"
_SEEN, _JOIN = 1 << 2, 1 << 3  # flags inside _join; from _JOIN on, the segments to join
_LABEL_CHARS, _MIN_TLD, _MAX_TLD = 64, 2, 63

_UNITS: Final = tuple(  # at most four characters: 16 bits of a code each, the last one lowest
    sum(ord(char) << 16 * k for k, char in enumerate(reversed(unit)))
    for unit in (
        "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s "
        "km/h kmh mph hPa Pa mbar mb MB kb KB gb GB tb TB T G M K %"
    ).split()
)


# Columns of the characters of a chunk.
_POINT, _FLAG, _BYTE = range(3)


class Room(NamedTuple):
    """Arrays that are used again from call to call."""

    block: NDArray[np.int64]  # (n, [START, END, CHARS, FLAGS]) segments
    chunk: NDArray[np.int64]  # (MAX_CHARS + 1, [_POINT, _FLAG, _BYTE]) characters, 0, 0 at the end
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
    block, chunk, tails = room.block, room.chunk, room.tails
    specials, lengths, flags_of = tables.specials, tables.lengths, tables.flags
    num = 0
    while at < end and num < _BLOCK:
        if _is_blank(data[at]):
            at += 1
            continue
        # Most of English: ASCII letters, and perhaps one punctuation mark, before white space.
        first = at
        while at < end and 97 <= (data[at] | 32) <= 122:
            at += 1
        if 0 < at - first < MAX_CHARS - 1:
            if at == end or _is_blank(data[at]):
                cuts = _special(data, specials, lengths, first, at)
                num = _put_letters(block, num, first, at, cuts)
                continue
            mark = data[at]
            if at + 1 == end or _is_blank(data[at + 1]):
                cuts = _special(data, specials, lengths, first, at)
                is_cut = _is_closing(mark)
                if mark == _DOT and data[at - 1] >= 97 and cuts == 0:
                    is_cut = _special(data, specials, lengths, first, at + 1) == 0
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
        chars, at, seen = _read_chunk(data, first, end, flags_of, chunk)
        if seen & UNSPACED or chars == MAX_CHARS:
            _, more = next_segments(data, first, at, tables.classes, block[num:])
            for k in range(num, num + more):
                letters = block[k, FLAGS] & HAS_LETTER
                block[k, FLAGS] = letters | IS_WORD if block[k, FLAGS] else 0
            num += more
        elif chars > 0:
            after = _cut_chunk(data, specials, lengths, block, chunk, tails, chars, seen, num)
            num = after if after < num + 2 else _join(data, specials, lengths, block, num, after)
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
def _is_blank(byte: int) -> bool:
    return byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31


@inner
def _is_closing(byte: int) -> bool:
    """Whether an ASCII byte is always cut off behind letters."""
    return (
        byte == 44
        or byte == 58
        or byte == 59
        or byte == 33
        or byte == 63
        or byte == 41
        or byte == 34
    )


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
        chunk[chars, _POINT], chunk[chars, _FLAG], chunk[chars, _BYTE] = point, flags, at
        seen |= flags
        chars += 1
        at += width
    chunk[chars, _POINT], chunk[chars, _FLAG], chunk[chars, _BYTE] = 0, 0, at
    return chars, at, seen


@inner
def _cut_chunk(
    data: NDArray[np.uint8],
    specials: NDArray[np.int64],
    lengths: NDArray[np.int32],
    block: NDArray[np.int64],
    chunk: NDArray[np.int64],
    tails: NDArray[np.int64],
    chars: int,
    seen: int,
    num: int,
) -> int:
    first, last, behind_it, before = 0, chars, 0, 0
    cuts = 0
    while first < last and last - first != before:
        before = last - first
        cuts = _special(data, specials, lengths, chunk[first, _BYTE], chunk[last, _BYTE])
        if cuts:
            break
        front = _prefix(chunk, first, last)
        if front:
            cuts = _special(
                data, specials, lengths, chunk[first + front, _BYTE], chunk[last, _BYTE]
            )
        behind = 0
        if not cuts and first + front < last:
            behind = _suffix(chunk, first + front, last)
        if behind:
            tails[behind_it, 0], tails[behind_it, 1] = last - behind, last
            behind_it += 1
            last -= behind
            cuts = _special(data, specials, lengths, chunk[first, _BYTE], chunk[last, _BYTE])
            if cuts:  # the special begins with what would be cut off in front
                break
        if front:
            num = _emit(block, num, chunk, first, first + front)
            first += front
        if cuts:
            break
    if cuts:
        while cuts:
            part = cuts & 0xFF
            num = _emit(block, num, chunk, first, first + part)
            first, cuts = first + part, cuts >> 8
    elif first < last:
        if seen & DOT and _is_host(chunk, first, last):
            num = _emit(block, num, chunk, first, last)
        else:
            num = _infixes(block, num, chunk, first, last)
    for k in range(behind_it - 1, -1, -1):
        num = _emit(block, num, chunk, tails[k, 0], tails[k, 1])
    return num


@inner
def _join(
    data: NDArray[np.uint8],
    specials: NDArray[np.int64],
    lengths: NDArray[np.int32],
    block: NDArray[np.int64],
    first: int,
    end: int,
) -> int:
    """Join neighbours in a chunk that together are a special: the ``:*`` of ``Note:*``.

    Of those that overlap the longest one is joined, the first one of several. One that is not joined
    stands in the way of others all the same: of ``:):)`` the first is joined.
    """
    found = 0
    for count in range(min(_JOINED, end - first), 1, -1):
        for k in range(first, end - count + 1):
            start, stop = block[k, START], block[k + count - 1, END]
            cuts = _special(data, specials, lengths, start, stop)
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
def _special(
    data: NDArray[np.uint8],
    specials: NDArray[np.int64],
    lengths: NDArray[np.int32],
    start: int,
    end: int,
) -> int:
    """The cuts of bytes that are a special, or 0."""
    if end - start > SPECIAL_BYTES or start == end:
        return np.int64(0)
    ends = (np.int64(data[start]) & 127) << 7 | np.int64(data[end - 1]) & 127
    if not lengths[ends] >> (end - start) & 1:
        return np.int64(0)
    key = np.int64(_SEED)
    for at in range(start, end):
        key = (key ^ np.int64(data[at])) * _PRIME
    last = len(specials) - 1
    place = (key >> 32) & last
    while specials[place, KEY] != 0 and specials[place, KEY] != key:
        place = (place + 1) & last
    cuts: int = specials[place, CUTS]
    return cuts


@inner
def _emit(
    block: NDArray[np.int64], num: int, chunk: NDArray[np.int64], first: int, last: int
) -> int:
    letters, marks = np.int64(0), np.int64(NO_WORD)
    for k in range(first, last):
        letters |= chunk[k, _FLAG]
        marks &= chunk[k, _FLAG]
    flags = (HAS_LETTER if letters & LETTER else 0) | (0 if marks else IS_WORD)
    return _put(block, num, chunk[first, _BYTE], chunk[last, _BYTE], last - first, flags)


@inner
def _dots(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """How many full stops stand from a character on."""
    k = first
    while k < last and chunk[k, _POINT] == _DOT:
        k += 1
    return k - first


@inner
def _prefix(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """How many characters to cut off in front."""
    point = chunk[first, _POINT]
    if chunk[first, _FLAG] & PREFIX:
        return 1
    if point == _DOT:
        dots = _dots(chunk, first, last)
        return dots if dots > 1 else 0
    if point == _PLUS:
        return 0 if chunk[first + 1, _FLAG] & DIGIT and first + 1 < last else 1
    if last - first > 1 and chunk[first + 1, _POINT] == _DOLLAR and (point == 65 or point == 67):
        return 2  # A$, C$
    if (
        last - first > 2
        and point == 85
        and chunk[first + 1, _POINT] == 83
        and chunk[first + 2, _POINT] == _DOLLAR
    ):
        return 3  # US$
    return 0


@inner
def _suffix(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """How many characters to cut off behind."""
    end = last - 1
    point, before = chunk[end, _POINT], chunk[end - 1, _FLAG] if end > first else np.int64(0)
    if point == _DOT:
        return _suffix_dots(chunk, first, last)
    if point == _ELLIPSIS:
        return 2 if end > first and chunk[end - 1, _POINT] == _ELLIPSIS else 1
    if chunk[end, _FLAG] & SUFFIX:
        return 1
    if end > first and (point == 115 or point == 83) and _is_apostrophe(chunk[end - 1, _POINT]):
        return 2  # 's, 'S
    if before & DIGIT and (point == _PLUS or chunk[end, _FLAG] & MONEY):
        return 1
    dollars = _dollars(chunk, first, last)
    if dollars:
        return dollars
    if chunk[end, _FLAG] & DIGIT:
        return 0
    code = np.int64(0)
    for length in range(1, 5):
        if end - length < first:
            return 0
        code |= np.int64(chunk[last - length, _POINT]) << 16 * (length - 1)
        if chunk[end - length, _FLAG] & DIGIT:
            for k in range(len(_UNITS)):
                if _UNITS[k] == code:
                    return length
            return 0
    return 0


@inner
def _dollars(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """The length of ``A$``, ``C$`` or ``US$`` at the end, behind a digit."""
    k = last - 2
    if k < first or chunk[last - 1, _POINT] != _DOLLAR:
        return 0
    if chunk[k, _POINT] == 83:  # S
        k -= 1
        if k < first or chunk[k, _POINT] != 85:  # U
            return 0
    elif not (chunk[k, _POINT] == 65 or chunk[k, _POINT] == 67):
        return 0
    return last - k if k > first and chunk[k - 1, _FLAG] & DIGIT else 0


@inner
def _is_apostrophe(point: int) -> bool:
    return point == _APOSTROPHE or point == _TYPOGRAPHIC


@inner
def _suffix_dots(chunk: NDArray[np.int64], first: int, last: int) -> int:
    """How many full stops at the end to cut off: several together, one where a sentence may end."""
    k = last - 1
    while k > first and chunk[k - 1, _POINT] == _DOT:
        k -= 1
    if k < last - 1:
        return last - k
    if k == first:
        return 0
    point, flag = chunk[k - 1, _POINT], chunk[k - 1, _FLAG]
    if flag & (DIGIT | LOWER | PUNCT | QUOTE) or point == _PLUS or point == _DASH:
        return 1
    if point == 37 or point == _SQUARED or point == _BAR:
        return 1
    if k - 2 >= first and flag & UPPER:
        if chunk[k - 2, _FLAG] & UPPER:
            return 1
        if chunk[k - 2, _POINT] == _DEGREE and (point == 67 or point == 70 or point == 75):
            return 1  # °C. °F. °K.
    return 0


@inner
def _infixes(
    block: NDArray[np.int64], num: int, chunk: NDArray[np.int64], first: int, last: int
) -> int:
    """Emit characters cut at their infixes."""
    start, k = first, first
    while k < last:
        width = 0
        if not chunk[k, _FLAG] & (ALPHA | DIGIT):
            width = _infix(chunk, first, k, last)
        if width and k > first:
            if k > start:
                num = _emit(block, num, chunk, start, k)
            num = _emit(block, num, chunk, k, k + width)
            start = k + width
        k += max(width, 1)
    if start < last:
        num = _emit(block, num, chunk, start, last)
    return num


@inner
def _infix(chunk: NDArray[np.int64], first: int, k: int, last: int) -> int:
    """How many characters from one on make an infix."""
    point = chunk[k, _POINT]
    if point == _DOT:
        dots = _dots(chunk, k, last)
        if dots > 1:
            return dots
    if point == _ELLIPSIS or chunk[k, _FLAG] & ICON:
        return 1
    if k == first or k + 1 == last:
        return 0
    before, after = chunk[k - 1, _FLAG], chunk[k + 1, _FLAG]
    if point == _DOT:
        return 1 if before & (LOWER | QUOTE) and after & (UPPER | QUOTE) else 0
    if point == _COMMA:
        return 1 if before & ALPHA and after & ALPHA else 0
    is_operator = point == _PLUS or point == _DASH or point == 42 or point == 94  # * ^
    if is_operator and before & DIGIT and (after & DIGIT or chunk[k + 1, _POINT] == _DASH):
        return 1
    if not before & (ALPHA | DIGIT):
        return 0
    for dash in _DASHES:
        if point == dash and after & ALPHA:
            return 1
    if point == _DASH or point == _DASHES[2]:  # -- --- ——
        most = 3 if point == _DASH else 2
        width = 1
        while width < most and k + width < last and chunk[k + width, _POINT] == point:
            width += 1
        if width > 1 and k + width < last and chunk[k + width, _FLAG] & ALPHA:
            return width
    if point == 58 or 60 <= point <= 62 or point == 47:  # : < = > /
        return 1 if after & ALPHA else 0
    return 0


@inner
def _is_host(chunk: NDArray[np.int64], first: int, last: int) -> bool:
    """Whether characters are the address of a host: of a web page, of a mailbox."""
    start = first
    for k in range(first, last - 3):
        if (
            chunk[k, _POINT] == 58
            and chunk[k + 1, _POINT] == 47
            and chunk[k + 2, _POINT] == 47
            and k >= first + 2
        ):  # ://
            start = k + 3
            break
        if not (chunk[k, _FLAG] & (LETTER | DIGIT) or chunk[k, _POINT] in (95, _PLUS, _DASH, _DOT)):
            break
    if _is_name(chunk, start, last):
        return True
    for k in range(first + 1, last):
        if chunk[k, _POINT] == 64 and _is_name(chunk, k + 1, last):  # @
            return True
    return False


@inner
def _is_name(chunk: NDArray[np.int64], first: int, last: int) -> bool:
    """Whether characters are the name of a host, and perhaps a port and a path."""
    labels, start, k = 0, first, first
    while k < last:
        point = chunk[k, _POINT]
        if point == _DOT:
            if k == start or k - start > _LABEL_CHARS:
                return False
            if not (chunk[start, _FLAG] & HOST and chunk[k - 1, _FLAG] & HOST):
                return False
            labels, start = labels + 1, k + 1
        elif not (chunk[k, _FLAG] & HOST or point == _DASH or point == 95):
            break
        k += 1
    if labels == 0 or not _MIN_TLD <= k - start <= _MAX_TLD:
        return False
    for j in range(start, k):
        if not chunk[j, _FLAG] & LOWER or not chunk[j, _FLAG] & ALPHA:
            return False
    if k < last and chunk[k, _POINT] == 58:  # a port
        port = k + 1
        while port < last and chunk[port, _FLAG] & DIGIT:
            port += 1
        if not 2 <= port - k - 1 <= 5:
            return False
        k = port
    return (
        k == last or chunk[k, _POINT] == 47 or chunk[k, _POINT] == 63 or chunk[k, _POINT] == 35
    )  # / ? #
