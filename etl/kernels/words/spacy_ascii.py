"""Cut text in ASCII and letters like ä into words by spaCy's rules, 64 bytes at a time, with masks.

The rules of ``spacy_affixes`` are applied to all bytes of a chunk at once. A chunk is the bits from
``first`` up to but not including ``last`` of a mask (``etl.kernels.bytes.simd``). Segments are returned as
a mask of their first bytes. Both bytes of a letter from À to ÿ are letters in a mask. Chunks with rare
contents (units after a digit, runs of full stops or dashes) are left to ``spacy_affixes``, as are all chunks
of French with anything but letters.
"""

from string import ascii_uppercase, digits
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.hash64 import SEED, fnv_step
from etl.kernels.bytes.simd import NOT_ASCII, bits_between, clear_first_bit, leading_zeros, low_bits
from etl.kernels.jit import inner, rare
from etl.kernels.words.spacy_specials import SPECIAL_BYTES
from etl.kernels.words.spacy_tables import (
    ANY_LANGUAGE,
    CUTS,
    FRENCH,
    GERMAN,
    KEY,
    MARKED,
    SpacyTables,
)

UNCUT: Final = np.int64(0)
"""The result of ``cut_chunk`` for a chunk that needs the rules of ``etl.kernels.words.spacy_affixes``."""

BYTES: Final = {
    "capitals": ascii_uppercase.encode(),
    "digits": digits.encode(),
    "prefixes": b"!\"#$%&'()*,:;<=>?[]_`{}",
    "only_prefixes": b"$%=",
    "dots": b".",
    "pluses": b"+",
    "dashes": b"-",
    "money": b"$%",
    "before_dot": b"+-%|",  # besides digits, small letters and suffixes
    "operators": b"+-*^",
    "relations": b"-~:<>=/",
    "commas": b",",
    "apostrophes": b"'",
    "endings": b"sS",
    "quotes": b"\"'`,",
    "others": NOT_ASCII,
    "leads": b"\xc3",  # the first byte of a letter from À to ÿ
    "small_tails": bytes({*range(0x9F, 0xC0)} - {0xB7}),  # the second one: ß to ÿ without ÷
    "capital_tails": bytes({*range(0x80, 0x9F)} - {0x97}),  # À to Þ without ×
}
"""The sets of bytes that ``find_kinds`` looks for, in order."""

find_kinds = simd.make_byte_finder(*BYTES.values())
_find_address = simd.make_byte_finder(b"@", b"/", b"_")
_find_german = simd.make_byte_finder(b"/", b'!"(),:<=>?[]`', b"`")


class Kinds(NamedTuple):
    """Masks of 64 bytes, one for each kind of character."""

    letters: int
    capitals: int
    digits: int
    prefixes: int  # cut off at the start
    suffixes: int  # cut off at the end
    dots: int
    pluses: int
    dashes: int
    money: int  # a unit may begin with it
    before_dot: int  # a full stop after it is cut off
    operators: int  # cut out between digits
    relations: int  # cut out after a letter or a digit
    after_relation: int  # what may follow a relation
    commas: int  # cut out between letters
    possessive: int  # the s of 's
    quotes: int
    others: int  # left to spacy_affixes
    wide: int  # the second bytes of letters
    wide_capitals: int
    base: int  # the offset of the first byte


class _Trimmed(NamedTuple):
    """A chunk without its prefixes and suffixes."""

    starts: int  # mask of where segments begin in the chunk
    first: int
    last: int
    cuts: int  # its parts if it is a special, else 0


@inner
def classify_bytes(data: NDArray[np.uint8], at: int, letters: int, rules: int) -> Kinds:
    """Return the kinds of the bytes from ``at`` on, given a mask of the ASCII letters among them.

    By rules other than ENGLISH, ``others`` also has the bytes that need ``spacy_affixes``.
    """
    (
        capitals, digits, prefixes, only_prefixes, dots, pluses, dashes, money, before_dot,
        operators, relations, commas, apostrophes, endings, quotes, others,
        leads, small_tails, capital_tails,
    ) = find_kinds(data, at)  # fmt: skip
    # A letter from À to ÿ is two bytes: bit n of a mask moved left by one is set where the byte before
    # has it.
    wide_capitals = leads << 1 & capital_tails
    wide = leads << 1 & small_tails | wide_capitals
    letters |= wide | wide >> 1
    capitals |= wide_capitals | wide_capitals >> 1
    suffixes = prefixes & ~only_prefixes
    before_dot |= letters & ~capitals | suffixes
    possessive = apostrophes << 1 & endings
    after_relation, others = letters, others & ~letters
    if rules == GERMAN:
        # German has other infixes: dashes between digits, slashes, and more marks between letters.
        slashes, commas, backticks = _find_german(data, at)
        operators, relations, after_relation = dashes, slashes, letters | digits
        others |= backticks << 1 & backticks | apostrophes << 1 & apostrophes
        suffixes |= slashes
        quotes = possessive = np.int64(0)
    else:
        before_dot |= digits
        if rules == FRENCH:
            others = ~letters
        elif rules == ANY_LANGUAGE:
            others |= digits << 1 & relations
    return Kinds(
        letters, capitals, digits, prefixes, suffixes, dots, pluses, dashes, money, before_dot,
        operators, relations, after_relation, commas, possessive, quotes, others, wide,
        wide_capitals, at,
    )  # fmt: skip


@inner
def find_unusual(kinds: Kinds, starts: int, ends: int) -> tuple[int, int]:
    """Return the bytes that need ``cut_chunk``, and white space, given where chunks start and end.

    All others are letters and digits, single characters, and *tails*: the punctuation marks of chunks of
    letters and digits that end in one. The second mask has the tails.
    """
    plain, lasts = kinds.letters | kinds.digits, ends >> 1
    # ``word,`` and ``word.`` end in a tail: the mark is the last byte, and a letter or digit is before
    # it. Whether a full stop is cut off depends on that letter: not in ``U.``.
    tails = lasts & plain << 1 & (kinds.suffixes | kinds.dots & kinds.before_dot << 1)
    # A chunk of one character is usual, whatever it is: it is both a start and a last byte.
    unusual = ~(plain | tails | starts & lasts)
    return unusual | kinds.letters & kinds.digits << 1 | kinds.others, tails


@inner
def cut_chunk(
    data: NDArray[np.uint8], first: int, last: int, kinds: Kinds, tables: SpacyTables
) -> int:
    """Return where the segments of a chunk begin, or UNCUT."""
    whole = bits_between(first, last)
    if _is_rare(kinds, whole):
        return UNCUT
    trimmed = _cut_ends(data, first, last, kinds, tables)
    starts = trimmed.starts
    if trimmed.cuts:
        if kinds.wide & whole:
            return UNCUT  # the parts of a special are counted in characters
        starts |= mark_parts(trimmed.first, trimmed.cuts)
    else:
        core = bits_between(trimmed.first, trimmed.last)
        before_dot = kinds.letters | kinds.digits
        # An address has a dot between a letter or digit and a letter, as in ``nltk.org``.
        has_dot = before_dot << 1 & kinds.dots & (kinds.letters & core) >> 1 != 0
        if has_dot and _may_be_host(data, trimmed.first, trimmed.last, kinds):
            return UNCUT
        # An infix is one character: a segment begins at it and after it. In ``well-known``, at bits 4
        # and 5.
        infixes = _infixes(kinds, core)
        starts |= infixes | infixes << 1
    # An infix or suffix at the end would begin a segment behind the chunk.
    starts &= whole
    return UNCUT if _is_joined(data, starts, last, kinds.base, tables) else starts


@inner
def mark_parts(first: int, cuts: int) -> int:
    """Return where the parts of a special begin; only ``first`` if ``cuts`` is 0."""
    starts = np.int64(1) << first
    while cuts:
        starts |= np.int64(1) << first
        first, cuts = first + (cuts & 0xFF), cuts >> 8
    return starts


@inner
def _is_rare(kinds: Kinds, whole: int) -> bool:
    """Return whether a chunk needs rules that are missing here."""
    rare = kinds.others
    # ``5km``, ``5+``, ``5$``: units after a number.
    rare |= kinds.digits << 1 & (kinds.letters | kinds.pluses | kinds.money)
    rare |= kinds.letters << 1 & kinds.money
    # ``...`` and the dashes of ``a--b`` are cut as runs.
    rare |= kinds.dots << 1 & kinds.dots
    rare |= (kinds.letters | kinds.digits) << 2 & kinds.dashes << 1 & kinds.dashes
    dotted = kinds.dots & whole != 0  # where the number of capitals matters, which are bytes here
    return (rare & whole != 0) | (dotted & (kinds.wide_capitals & whole != 0))


@inner
def _cut_ends(
    data: NDArray[np.uint8], first: int, last: int, kinds: Kinds, tables: SpacyTables
) -> _Trimmed:
    """Cut off prefixes and suffixes."""
    base, starts, size_before, cuts = kinds.base, np.int64(1) << first, 0, 0
    while first < last and last - first != size_before:
        size_before = last - first
        cuts = find_special(data, tables, base + first, base + last)
        if cuts:
            break
        prefix_size = _prefix(kinds, first)
        if prefix_size:
            cuts = find_special(data, tables, base + first + prefix_size, base + last)
        suffix_size = 0
        if not cuts and first + prefix_size < last:
            suffix_size = _suffix(kinds, first + prefix_size, last)
        if suffix_size:
            last -= suffix_size
            starts |= np.int64(1) << last
            cuts = find_special(data, tables, base + first, base + last)
            if cuts:  # the special includes the prefix
                break
        if prefix_size:
            first += prefix_size
            starts |= np.int64(1) << first
        if cuts:
            break
    return _Trimmed(starts, first, last, cuts)


@rare
def _may_be_host(data: NDArray[np.uint8], first: int, last: int, kinds: Kinds) -> bool:
    """Return whether a chunk with a full stop may be an address (``spacy_hosts``).

    An address without a scheme or a user begins with labels. The last one has two or more small letters.
    """
    ats, slashes, underscores = _find_address(data, kinds.base)
    if (ats | slashes & slashes >> 1) & bits_between(first, last):
        return True
    labels = kinds.letters | kinds.digits | kinds.dashes | kinds.dots | underscores
    end = min(simd.first_bit(~labels & ~low_bits(first)), last)
    label = simd.SIZE - leading_zeros(kinds.dots & bits_between(first, end))
    others = ~kinds.letters | kinds.capitals
    return label >= 2 and end - label >= 2 and others & bits_between(label, end) == 0


@inner
def _prefix(kinds: Kinds, first: int) -> int:
    """Return the length of the prefix, 0 or 1."""
    if kinds.prefixes >> first & 1:
        return 1
    return kinds.pluses >> first & ~(kinds.digits >> first >> 1) & 1


@inner
def _suffix(kinds: Kinds, first: int, last: int) -> int:
    """Return the length of the suffix, 0 to 2."""
    end = last - 1
    if kinds.suffixes >> end & 1:
        return 1
    if end == first:
        return 0
    if kinds.dots >> end & 1:
        if kinds.before_dot >> (end - 1) & 1:
            return 1
        # A full stop after two capitals is cut off (``USA.``), but not after one (``U.``).
        return 1 if end - 1 > first and kinds.capitals >> (end - 2) & 3 == 3 else 0
    return 2 * (kinds.possessive >> end & 1)


@inner
def _infixes(kinds: Kinds, core: int) -> int:
    """Return a mask of the infixes, each of one character."""
    letters, digits, quotes = kinds.letters & core, kinds.digits & core, kinds.quotes & core
    capitals = kinds.capitals & core
    small = letters & ~capitals
    # Each line: a mark, after one kind (moved left by one) and before another (moved right by one). The
    # first cuts ``end.Next``, the next ones ``a,b``, ``3*4`` and ``well-known``.
    infixes = kinds.dots & (small | quotes) << 1 & (capitals | quotes) >> 1
    infixes |= kinds.commas & letters << 1 & letters >> 1
    infixes |= kinds.operators & digits << 1 & (digits | kinds.dashes & core) >> 1
    infixes |= kinds.relations & (letters | digits) << 1 & (kinds.after_relation & core) >> 1
    return infixes & core


@inner
def _is_joined(
    data: NDArray[np.uint8], starts: int, last: int, base: int, tables: SpacyTables
) -> bool:
    """Return whether some neighbours together are a special."""
    ends = clear_first_bit(starts) | np.int64(1) << last
    while clear_first_bit(starts):
        start = simd.first_bit(starts)
        starts, ends = clear_first_bit(starts), clear_first_bit(ends)
        # Of the lengths of specials that begin with this byte, only those that end where a later segment
        # ends: bit n of both masks.
        sizes = tables.joined[data[base + start]] & ends >> start
        while sizes:
            if find_special(data, tables, base + start, base + start + simd.first_bit(sizes)):
                return True
            sizes = clear_first_bit(sizes)
    return False


@inner
def find_special(data: NDArray[np.uint8], tables: SpacyTables, start: int, end: int) -> int:
    """Return the parts of a special (CUTS of ``spacy_tables``), or 0 if the bytes are not one."""
    if end - start > SPECIAL_BYTES or start == end:
        return 0
    # Most bytes are not a special: the first byte, the last byte and the length exclude nearly all of
    # them.
    ends = (np.int64(data[start]) & 127) << 7 | np.int64(data[end - 1]) & 127
    if not tables.lengths[ends] >> (end - start) & 1:
        return 0
    return _cuts(data, start, end, tables.specials)


@rare
def _cuts(data: NDArray[np.uint8], start: int, end: int, specials: NDArray[np.int64]) -> int:
    """Look up bytes in the table of specials; 0 if they are not in it."""
    key = SEED
    for at in range(start, end):
        key = fnv_step(key, np.int64(data[at]))
    last = len(specials) - 1
    slot = (key >> 32) & last
    while specials[slot, KEY] != 0 and specials[slot, KEY] != key:
        slot = (slot + 1) & last
    cuts: int = specials[slot, CUTS]
    return cuts


@inner
def may_be_special(
    data: NDArray[np.uint8], tables: SpacyTables, start: int, end: int, tail: int
) -> bool:
    """Return whether letters and digits may be a special, alone or with a punctuation mark after them.

    ``tail`` is 0 if no mark ends the bytes. Most other chunks do not begin, end and have the length of one.
    """
    stop = end - (tail != 0)
    first, last = np.int64(data[start]), np.int64(data[stop - 1])
    sizes = tables.plain[(first & 31) << 5 | last & 31] >> min(stop - start, SPECIAL_BYTES + 1)
    return bool((sizes | sizes >> MARKED & (tail != 0)) & 1)
