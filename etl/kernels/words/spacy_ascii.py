"""Where spaCy's rules for English cut a chunk of ASCII: as in ``affixes``, for all of its bytes at once.

A chunk are the bits from ``first`` to ``last`` of the 64 of ``etl.kernels.bytes.simd``; so is what is found, a bit
where a segment begins. Rare ones (units behind a digit, runs of full stops or dashes) are left to
``affixes``.
"""

from string import ascii_uppercase, digits
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import simd
from etl.kernels.bytes.simd import NOT_ASCII, bits_between
from etl.kernels.jit import inner, rare
from etl.kernels.words.spacy_english import CUTS, KEY, SPECIAL_BYTES, Tables

LEFT: Final = np.int64(0)
"""What ``cut`` returns of a chunk that is left to others."""

_SEED, _PRIME = -3750763034362895579, 1099511628211  # FNV-1a, 64 bits
find_kinds = simd.kinds(
    ascii_uppercase.encode(),
    digits.encode(),
    b"!\"#$%&'()*,:;<=>?[]_`{}",
    b"$%=",
    b".",
    b"+",
    b"-",
    b"$%",
    b"+-%|",
    b"+-*^",
    b"-~:<>=/",
    b",",
    b"'",
    b"sS",
    b"\"'`,",
    NOT_ASCII,
)


class Kinds(NamedTuple):
    """Which of 64 bytes are of a kind of ``english``."""

    letters: int
    capitals: int
    digits: int
    prefixes: int  # cut off in front
    suffixes: int  # cut off behind
    dots: int
    pluses: int
    dashes: int
    money: int  # a unit may begin with it
    before_dot: int  # after which a full stop is cut off
    operators: int  # cut out between digits
    relations: int  # cut out before a letter
    commas: int
    possessive: int  # the s of 's
    quotes: int
    others: int  # not ASCII
    base: int  # the byte of the first bit


@inner
def kinds(data: NDArray[np.uint8], at: int, letters: int) -> Kinds:
    """Of the bytes from ``at`` on, given the letters among them."""
    (
        capitals, digits, prefixes, only_prefixes, dots, pluses, dashes, money, signs,
        operators, relations, commas, apostrophes, endings, quotes, others,
    ) = find_kinds(data, at)  # fmt: skip
    suffixes = prefixes & ~only_prefixes
    return Kinds(
        letters,
        capitals,
        digits,
        prefixes,
        suffixes,
        dots,
        pluses,
        dashes,
        money,
        digits | letters & ~capitals | suffixes | signs,
        operators,
        relations,
        commas,
        apostrophes << 1 & endings,
        quotes,
        others,
        at,
    )


@inner
def cut(data: NDArray[np.uint8], first: int, last: int, of: Kinds, tables: Tables) -> int:
    """Where the segments of a chunk begin, or LEFT."""
    whole = bits_between(first, last)
    if _is_rare(of, whole):
        return LEFT
    starts, front_end, tail, cuts = _cut_ends(data, first, last, of, tables)
    if cuts:
        starts |= parts(front_end, cuts)
    else:
        core = bits_between(front_end, tail)
        known = of.letters | of.digits
        if known << 1 & of.dots & of.letters >> 1 & core:
            return LEFT  # it may be the address of a host
        found = _infixes(of, core)
        starts |= found | found << 1
    starts &= whole
    return LEFT if _is_joined(data, starts, last, of.base, tables) else starts


@inner
def parts(first: int, cuts: int) -> int:
    """Where the parts of a special begin, or what is none."""
    starts = np.int64(1) << first
    while cuts:
        starts |= np.int64(1) << first
        first, cuts = first + (cuts & 0xFF), cuts >> 8
    return starts


@inner
def _is_rare(of: Kinds, whole: int) -> bool:
    """Whether a chunk has what no other function here knows."""
    rare = of.others
    rare |= of.digits << 1 & (of.letters | of.pluses | of.money)
    rare |= of.letters << 1 & of.money
    rare |= of.dots << 1 & of.dots
    rare |= (of.letters | of.digits) << 2 & of.dashes << 1 & of.dashes
    return (rare & whole) != 0


@inner
def _cut_ends(
    data: NDArray[np.uint8], first: int, last: int, of: Kinds, tables: Tables
) -> tuple[int, int, int, int]:
    """Cut off at both ends; where segments begin, first and last of what is left, its cuts as a special."""
    base, starts, before, cuts = of.base, np.int64(1) << first, 0, 0
    while first < last and last - first != before:
        before = last - first
        cuts = special(data, tables, base + first, base + last)
        if cuts:
            break
        front = _prefix(of, first)
        if front:
            cuts = special(data, tables, base + first + front, base + last)
        behind = 0
        if not cuts and first + front < last:
            behind = _suffix(of, first + front, last)
        if behind:
            last -= behind
            starts |= np.int64(1) << last
            cuts = special(data, tables, base + first, base + last)
            if cuts:  # the special begins with what would be cut off in front
                break
        if front:
            first += front
            starts |= np.int64(1) << first
        if cuts:
            break
    return starts, first, last, cuts


@inner
def _prefix(of: Kinds, first: int) -> int:
    if of.prefixes >> first & 1:
        return 1
    return of.pluses >> first & ~(of.digits >> first >> 1) & 1


@inner
def _suffix(of: Kinds, first: int, last: int) -> int:
    end = last - 1
    if of.suffixes >> end & 1:
        return 1
    if end == first:
        return 0
    if of.dots >> end & 1:
        if of.before_dot >> (end - 1) & 1:
            return 1
        return 1 if end - 1 > first and of.capitals >> (end - 2) & 3 == 3 else 0
    return 2 * (of.possessive >> end & 1)


@inner
def _infixes(of: Kinds, core: int) -> int:
    """The characters to cut out."""
    letters, digits, quotes = of.letters & core, of.digits & core, of.quotes & core
    capitals = of.capitals & core
    small = letters & ~capitals
    found = of.dots & (small | quotes) << 1 & (capitals | quotes) >> 1
    found |= of.commas & letters << 1 & letters >> 1
    found |= of.operators & digits << 1 & (digits | of.dashes & core) >> 1
    found |= of.relations & (letters | digits) << 1 & letters >> 1
    return found & core


@inner
def _is_joined(data: NDArray[np.uint8], starts: int, last: int, base: int, tables: Tables) -> bool:
    """Whether some neighbours together are a special."""
    ends = starts & starts - 1 | np.int64(1) << last
    while starts & starts - 1:
        start = simd.first_bit(starts)
        starts, ends = starts & starts - 1, ends & ends - 1
        sizes = tables.joined[data[base + start]] & ends >> start
        while sizes:
            if special(data, tables, base + start, base + start + simd.first_bit(sizes)):
                return True
            sizes &= sizes - 1
    return False


@inner
def special(data: NDArray[np.uint8], tables: Tables, start: int, end: int) -> int:
    """The cuts of bytes that are a special, or 0."""
    if end - start > SPECIAL_BYTES or start == end:
        return 0
    ends = (np.int64(data[start]) & 127) << 7 | np.int64(data[end - 1]) & 127
    if not tables.lengths[ends] >> (end - start) & 1:
        return 0
    return _cuts(data, start, end, tables.specials)


@rare
def _cuts(data: NDArray[np.uint8], start: int, end: int, specials: NDArray[np.int64]) -> int:
    """What the table of specials says of bytes."""
    key = _SEED
    for at in range(start, end):
        key = (key ^ np.int64(data[at])) * _PRIME
    last = len(specials) - 1
    place = (key >> 32) & last
    while specials[place, KEY] != 0 and specials[place, KEY] != key:
        place = (place + 1) & last
    cuts: int = specials[place, CUTS]
    return cuts


@inner
def contraction(data: NDArray[np.uint8], tables: Tables, start: int, end: int) -> int:
    """The cuts of ASCII letters that are a special (``cannot``), or 0."""
    ends = (np.int64(data[start]) & 31) << 5 | np.int64(data[end - 1]) & 31
    if end - start > SPECIAL_BYTES or not tables.of_letters[ends] >> (end - start) & 1:
        return 0
    return special(data, tables, start, end)
