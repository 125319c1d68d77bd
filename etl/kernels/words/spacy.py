"""Split texts into words by spaCy's rules for a language, as the filters of FineWeb and FineWeb-2 do.

White space separates chunks. Punctuation is cut off at both ends of a chunk as long as there is any. The
rest is split where a rule says so (``can't``), is kept whole if it is a host name or an address with one,
and otherwise is cut at infixes (``well-known``; ``and/or`` is special). A *segment* is a resulting word,
number or punctuation mark. A chunk of MAX_CHARS or more has the segments of ``etl.kernels.words.uax29`` (UAX
#29) and is read in pieces of that size. Linear in the bytes.

The rules for English, German, French and Russian keep a run of characters of a script without spaces as one
word. In documents of another or an unknown language, a chunk with any has the segments of UAX #29, about one
for each character.

The rules are facts of spaCy 3.8 (MIT licence; ``spacy.tokenizer``). Of 4.3 million words of German text,
15 differ from spaCy's, of 577,000 Russian ones 48 (specials with white space), and of 590,000 French ones
0.5 %: spaCy keeps compounds with some 200 first parts whole (``sous-titre``). Numeric host addresses are
cut.
"""

from string import ascii_letters
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.simd import bits_between, clear_first_bit, count_ones, low_bits
from etl.kernels.bytes.utf8 import point_at
from etl.kernels.jit import allocator, inner, kernel
from etl.kernels.words import spacy_ascii
from etl.kernels.words.known_chunks import (
    chunk_key,
    new_known_chunks,
    recall,
    remember,
    remember_segments,
)
from etl.kernels.words.spacy_affixes import (
    BYTE,
    FLAG,
    POINT,
    ends_elision,
    infix,
    prefix,
    suffix,
)
from etl.kernels.words.spacy_ascii import Kinds, find_special, may_be_special
from etl.kernels.words.spacy_hosts import is_host
from etl.kernels.words.spacy_tables import (
    ALPHA,
    DIGIT,
    DOT,
    FRENCH,
    ICON,
    LETTER,
    NO_WORD,
    QUOTE,
    SPACE,
    UNSPACED,
    SpacyTables,
)
from etl.kernels.words.uax29 import (
    CHARS,
    END,
    FLAGS,
    START,
    Batch,
    Segments,
    append_segment,
    next_segments,
)

HAS_LETTER: Final = 1
IS_WORD: Final = 2  # has a character that is not punctuation
MAX_CHARS: Final = 4096
_BLOCK: Final = 256  # segments at a time; the block has rows for one more chunk

_find_letters = simd.make_byte_finder(
    ascii_letters.encode(), bytes(byte for byte in range(0x80) if chr(byte).isspace())
)
_JOINED: Final = 5  # the most segments that are joined, as in ":-)))"
_SEEN, _JOIN = 1 << 2, 1 << 3  # flags in _join; from _JOIN on: the number of segments to join


class ChunkBuffers(NamedTuple):
    """Buffers that are reused from call to call."""

    block: Segments
    chunk: NDArray[np.int64]  # (MAX_CHARS + 1, [POINT, FLAG, BYTE]); the last row is 0, 0, the end
    tails: NDArray[np.int64]  # (MAX_CHARS, 2) suffixes cut off: first and last character
    known: NDArray[np.int64]  # chunks with punctuation (``known_chunks``), cut by the same rules


class _AsciiChunks(NamedTuple):
    """Chunks among 64 bytes, as masks."""

    starts: int  # the first byte of each chunk
    ends: int  # the byte after each chunk; a chunk that runs past the 64 bytes has none
    unusual: int  # bytes that need rules
    tails: int  # punctuation at the ends of other chunks


class _Rest(NamedTuple):
    """The segments appended so far, and the chunks that follow, as masks."""

    num: int
    starts: int
    ends: int


@allocator
def new_chunk_buffers() -> ChunkBuffers:
    """Allocate buffers for texts of any length and one set of rules, about 430 KB."""
    return ChunkBuffers(
        np.empty((_BLOCK + MAX_CHARS + 2, 4), np.int64),
        np.empty((MAX_CHARS + 1, 3), np.int64),
        np.empty((MAX_CHARS, 2), np.int64),
        new_known_chunks(),
    )


@kernel
def next_words(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    tables: SpacyTables,
    buffers: ChunkBuffers,
    with_segments: bool,
) -> Batch:
    """Write the segments from byte ``at`` on to ``buffers.block``, at least one if there is one.

    With ``with_segments`` False all segments are only counted, and the content of the block is undefined.
    """
    num = 0
    while at < end and (num < _BLOCK or not with_segments):
        at, num = _cut_64(data, at, end, tables, buffers, num, with_segments)
    return Batch(at, num)


@inner
def _cut_64(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    tables: SpacyTables,
    buffers: ChunkBuffers,
    num: int,
    with_segments: bool,
) -> Batch:
    """Append the segments of the next 64 bytes, but at most of one chunk that is cut slowly.

    With ``with_segments`` False the segments are only counted.
    """
    # Bytes after the end of the text are read as blanks, so that a chunk ends there.
    inside = low_bits(end - at)
    letters, blanks = _find_letters(data, at)
    letters, blanks = letters & inside, blanks | ~inside
    kinds = spacy_ascii.classify_bytes(data, at, letters, tables.rules)
    # In ``ab c``, bit 2 and all from bit 4 on are blanks: chunks start at bits 0 and 3, and end before
    # bits 2 and 4. The first byte counts as after a blank, since a call begins where a chunk may.
    after_blank = blanks << 1 | 1
    starts, ends = ~blanks & after_blank, blanks & ~after_blank
    unusual, tails = spacy_ascii.find_unusual(kinds, starts, ends)
    chunks = _AsciiChunks(starts, ends, unusual & ~blanks, tails)
    num, starts, ends = _append_chunks(data, chunks, kinds, tables, buffers, num, with_segments)
    # If chunks are left, the first one runs past these bytes, is longer than 64, or needs rules that
    # only ``_cut_slowly`` has.
    if starts == 0:
        return Batch(min(at + simd.SIZE, end), num)
    first = simd.first_bit(starts)
    if ends == 0 and first > 0:  # it runs past these bytes: the next 64 begin with it
        return Batch(at + first, num)
    # The slow path needs rows to write to even if segments are only counted.
    row = num if with_segments else 0
    at, after = _cut_slowly(data, at + first, end, tables, buffers, row)
    # Rare chunks repeat within a text: next time, this one is recalled.
    remember_segments(data, buffers.known, buffers.block, row, after)
    return Batch(at, after if with_segments else num + after)


@inner
def _append_chunks(
    data: NDArray[np.uint8],
    chunks: _AsciiChunks,
    kinds: Kinds,
    tables: SpacyTables,
    buffers: ChunkBuffers,
    num: int,
    with_segments: bool,
) -> _Rest:
    """Append the segments of chunks, up to a chunk that does not end or that only ``_cut_slowly`` can cut."""
    starts, ends, base = chunks.starts, chunks.ends, kinds.base
    while ends:
        first, last = simd.first_bit(starts), simd.first_bit(ends)
        chunk = bits_between(first, last)
        # Most chunks are letters and digits, with at most one mark after them: one or two segments,
        # without a look-up. The others are looked up among the known ones or cut by masks.
        tail = chunks.tails & chunk
        if chunks.unusual & chunk or may_be_special(data, tables, base + first, base + last, tail):
            # A mask of 64 bits holds any chunk here: ``(don't)`` at bits 0 to 6 begins segments at bits
            # 0, 1, 3 and 6.
            begins = _recall_or_cut(data, first, last, kinds, tables, buffers.known)
            if begins == spacy_ascii.UNCUT:
                break
            if with_segments:
                num = _append_ascii(buffers.block, num, begins, last, kinds)
            else:
                num += count_ones(begins)
        else:
            has_tail = tail != 0
            if with_segments:
                _append_one(buffers.block, num, first, last - has_tail, kinds)
                append_segment(buffers.block, num + 1, base + last - 1, base + last, 1, 0)
            num += 1 + has_tail
        starts, ends = clear_first_bit(starts), clear_first_bit(ends)
    return _Rest(num, starts, ends)


@inner
def _recall_or_cut(
    data: NDArray[np.uint8],
    first: int,
    last: int,
    kinds: Kinds,
    tables: SpacyTables,
    known: NDArray[np.int64],
) -> int:
    """Return where the segments of a chunk begin, or UNCUT."""
    key = chunk_key(data, kinds.base + first, kinds.base + last)
    # Known starts are relative to the chunk, since it may occur at any byte.
    starts = recall(known, key) << first
    if starts == spacy_ascii.UNCUT:
        starts = spacy_ascii.cut_chunk(data, first, last, kinds, tables)
        remember(known, key, starts >> first)
    return starts


@inner
def _append_ascii(block: Segments, num: int, starts: int, end: int, kinds: Kinds) -> int:
    """Append the segments of a chunk, given a mask of their starts."""
    while starts:
        first, starts = simd.first_bit(starts), clear_first_bit(starts)
        num = _append_one(block, num, first, min(simd.first_bit(starts), end), kinds)
    return num


@inner
def _append_one(block: Segments, num: int, first: int, last: int, kinds: Kinds) -> int:
    """Append a segment, given its first bit and the one after it."""
    inside = bits_between(first, last)
    letters, words = kinds.letters & inside, (kinds.letters | kinds.digits) & inside
    flags = (HAS_LETTER if letters else 0) | (IS_WORD if words else 0)
    chars = last - first - count_ones(kinds.wide & inside)
    return append_segment(block, num, kinds.base + first, kinds.base + last, chars, flags)


@inner
def _cut_slowly(
    data: NDArray[np.uint8], at: int, end: int, tables: SpacyTables, buffers: ChunkBuffers, num: int
) -> Batch:
    """Append the segments of the next chunk, or of its first MAX_CHARS characters."""
    first = at
    chars, at, seen = _read_chunk(data, first, end, tables.flags, buffers.chunk)
    # Affix rules do not apply to scripts without spaces, and a run of this length is not a word. UAX #29
    # has other flags for its segments: any flag there makes a word here.
    if seen & UNSPACED or chars == MAX_CHARS:
        block = buffers.block[num:]
        more = next_segments(data, first, at, tables.classes, block).num
        for k in range(more):
            letters = block[k, FLAGS] & HAS_LETTER
            block[k, FLAGS] = letters | IS_WORD if block[k, FLAGS] else 0
        return Batch(at, num + more)
    if chars > 0:
        after = _cut_chunk(data, tables, buffers, chars, seen, num)
        joins = after >= num + 2 and _may_join(data, tables, buffers.block, num, after)
        num = _join(data, tables, buffers.block, num, after) if joins else after
    return Batch(at, num)


@kernel
def next_chunks(
    data: NDArray[np.uint8], at: int, end: int, tables: SpacyTables, buffers: ChunkBuffers
) -> Batch:
    """Write chunks as ``next_words`` writes segments: the text between white space, uncut."""
    block, flags_of = buffers.block, tables.flags
    num = 0
    while at < end and num < _BLOCK:
        first = at
        chars = flags = 0
        while at < end:
            point, width = point_at(data, at, end)
            point_flags = flags_of[point]
            if point_flags & SPACE:
                break
            flags |= HAS_LETTER if point_flags & LETTER else 0
            chars += 1
            at += width
        if chars:
            num = append_segment(block, num, first, at, chars, flags | IS_WORD)
        else:
            at += width
    return Batch(at, num)


@inner
def _read_chunk(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    flags_of: NDArray[np.uint32],
    chunk: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Decode the next chunk: the number of its characters, the byte after it, the flags of any character.

    The chunk is empty if white space is next; the byte after it is then that after the white space.
    """
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
    data: NDArray[np.uint8],
    tables: SpacyTables,
    buffers: ChunkBuffers,
    chars: int,
    seen: int,
    num: int,
) -> int:
    """Append the segments of a chunk to the block, without joining neighbours."""
    block, chunk, tails = buffers.block, buffers.chunk, buffers.tails
    # As spaCy does: cut off a prefix and a suffix in turns, and after each cut look up whether the rest
    # is a special. In ``(don't)``, the prefix ``(`` and the suffix ``)`` are cut off; the special
    # ``don't`` has the parts ``do`` and ``n't``, stored as 0x0302: the lengths, from the lowest byte on.
    first, last, num_tails, size_before = 0, chars, 0, 0
    cuts = 0  # the parts of the rest, once it is a special
    while first < last and last - first != size_before:
        size_before = last - first
        cuts = find_special(data, tables, chunk[first, BYTE], chunk[last, BYTE])
        if cuts:
            break
        prefix_size = prefix(chunk, first, last, seen, tables.rules)
        if prefix_size:
            cuts = find_special(data, tables, chunk[first + prefix_size, BYTE], chunk[last, BYTE])
        suffix_size = 0
        if not cuts and first + prefix_size < last:
            suffix_size = suffix(chunk, first + prefix_size, last, seen, tables.rules)
        if suffix_size:
            # Suffixes are found from the end backward, and written after the rest, in reverse.
            tails[num_tails, 0], tails[num_tails, 1] = last - suffix_size, last
            num_tails += 1
            last -= suffix_size
            cuts = find_special(data, tables, chunk[first, BYTE], chunk[last, BYTE])
            if cuts:  # the special includes the prefix
                break
        if prefix_size:
            num = _append_chars(block, num, chunk, first, first + prefix_size)
            first += prefix_size
        if cuts:
            break
    if cuts:
        # The parts of a special are its own: infixes are not searched.
        while cuts:
            num = _append_chars(block, num, chunk, first, first + (cuts & 0xFF))
            first, cuts = first + (cuts & 0xFF), cuts >> 8
    elif first < last:
        # Dots and slashes of an address would be infixes.
        if seen & DOT and is_host(chunk, first, last):
            num = _append_chars(block, num, chunk, first, last)
        else:
            num = _append_parts(block, num, chunk, first, last, tables.rules)
    for k in range(num_tails - 1, -1, -1):
        num = _append_chars(block, num, chunk, tails[k, 0], tails[k, 1])
    return num


@inner
def _may_join(
    data: NDArray[np.uint8], tables: SpacyTables, block: Segments, first: int, end: int
) -> bool:
    """Return whether some neighbours begin with the byte of a special and have its length."""
    matches = 0
    for k in range(first, end - 1):
        start = block[k, START]
        lengths = tables.joined[data[start]]
        for last in range(k + 1, end):
            size = min(block[last, END] - start, 63)
            matches |= lengths >> size & 1
            # More neighbours are only longer: no special has such a length.
            if lengths >> size == 0:
                break
    return matches > 0


@inner
def _join(
    data: NDArray[np.uint8], tables: SpacyTables, block: Segments, first: int, end: int
) -> int:
    """Join neighbours in a chunk that together are a special: the ``:*`` of ``Note:*``.

    Of specials that overlap, the longest is joined, and of several equally long ones the first. A special
    that is not joined still blocks those that it overlaps: of ``:):)`` only the first ``:)`` is joined.
    """
    joins = 0
    # Longer ones first, and each blocks its neighbours, also where it could not be joined itself.
    for count in range(min(_JOINED, end - first), 1, -1):
        for k in range(first, end - count + 1):
            start, stop = block[k, START], block[k + count - 1, END]
            cuts = find_special(data, tables, start, stop)
            # Specials of several parts are cut, so they are not joined again.
            if cuts == 0 or cuts > 0xFF:
                continue
            if not (block[k, FLAGS] | block[k + count - 1, FLAGS]) & _SEEN:
                block[k, FLAGS] |= count * _JOIN
                joins += 1
            for j in range(k, k + count):
                block[j, FLAGS] |= _SEEN
    return _merge(block, first, end) if joins else end


@inner
def _merge(block: Segments, first: int, end: int) -> int:
    """Merge the segments that ``_join`` has marked."""
    k = num = first
    while k < end:
        # The flags hold the number of segments to join above _JOIN; 0 means a segment alone.
        count = max(block[k, FLAGS] // _JOIN, 1)
        start, chars, flags = block[k, START], 0, 0
        for j in range(k, k + count):
            chars += block[j, CHARS]
            flags |= block[j, FLAGS]
        num = append_segment(block, num, start, block[k + count - 1, END], chars, flags & _SEEN - 1)
        k += count
    return num


@inner
def _kind(letters: int, marks: int) -> int:
    """Return the flags of a segment, given the flags of any and of all of its characters."""
    return (HAS_LETTER if letters & LETTER else 0) | (0 if marks & NO_WORD else IS_WORD)


@inner
def _append_chars(
    block: Segments, num: int, chunk: NDArray[np.int64], first: int, last: int
) -> int:
    """Append some characters of a chunk as one segment."""
    any_of, all_of = np.int64(0), np.int64(NO_WORD)
    for k in range(first, last):
        any_of |= chunk[k, FLAG]
        all_of &= chunk[k, FLAG]
    kind = _kind(any_of, all_of)
    return append_segment(block, num, chunk[first, BYTE], chunk[last, BYTE], last - first, kind)


@inner
def _append_parts(
    block: Segments, num: int, chunk: NDArray[np.int64], first: int, last: int, rules: int
) -> int:
    """Append some characters of a chunk, cut at their infixes."""
    start, k = first, first
    any_of, all_of = np.int64(0), np.int64(NO_WORD)
    while k < last:
        flag = chunk[k, FLAG]
        width = 0
        # No infix begins with another letter or digit: most characters skip the rules.
        if k > first and (flag & (ICON | QUOTE) or not flag & (ALPHA | DIGIT)):
            width = infix(chunk, first, k, last, rules)
        ends_word = rules == FRENCH and k > start and ends_elision(chunk, first, k)
        if width == 0 and not ends_word:
            any_of |= flag
            all_of &= flag
            k += 1
            continue
        if k > start:
            kind = _kind(any_of, all_of)
            num = append_segment(block, num, chunk[start, BYTE], chunk[k, BYTE], k - start, kind)
        if width:
            num = _append_chars(block, num, chunk, k, k + width)
        start = k = k + width
        any_of, all_of = np.int64(0), np.int64(NO_WORD)
    if start < last:
        kind = _kind(any_of, all_of)
        num = append_segment(block, num, chunk[start, BYTE], chunk[last, BYTE], last - start, kind)
    return num
