"""Find lines or paragraphs that a document repeats, and the spans that remain without them.

A line is one of ``str.splitlines``, without white space at its ends; a paragraph is a run of lines without a
blank one. Two are equal if their 64-bit hashes are, after normalization of the differences to ignore. Line
breaks within a paragraph are white space, whose amount can be ignored. The first of equal units is kept. Cuts
leave no larger gaps: of the blank lines before and after a cut, only one run is kept, and none at the
beginning or the end of the text.

One pass over the bytes (two over paragraphs of several lines, if the amount of white space is ignored), two
look-ups per line, then the remaining spans; about 84 bytes of memory per line of the longest document.

``etl.kernels.lines.text_units`` and ``remove_units`` also use the functions that read lines and keep some.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.character_classes import DIGIT, LINE
from etl.kernels.bytes.hash64 import SEED, fnv_step, fold_hash
from etl.kernels.bytes.line_breaks import next_line, strip
from etl.kernels.bytes.simd import copy_items
from etl.kernels.bytes.spans import Spans
from etl.kernels.bytes.utf8 import Texts, point_at
from etl.kernels.hashing.equal_keys import SLOTS_PER_KEY, number_keys
from etl.kernels.jit import allocator, inner, kernel

CASE, SPACE, DIGITS = 1, 2, 4
"""Differences to ignore, as bits: case, the amount of white space, the value of numbers."""


class LineBuffers(NamedTuple):
    """Arrays for a document of n lines, reused for the next document.

    The units are the lines or paragraphs that are compared.
    """

    starts: NDArray[np.int64]  # (n,) the first byte
    stops: NDArray[np.int64]  # (n,) the byte where the line end begins
    chars: NDArray[np.int32]  # (n,) code points without white space at the ends; 0 for a blank line
    compared: NDArray[np.int32]  # (n,) code points without the differences to ignore
    hashes: NDArray[np.int64]  # (n,) equal for equal lines
    cut: NDArray[np.bool_]  # (n,) whether to remove the line
    keys: NDArray[np.int64]  # (n + 1,) equal for equal units
    first_lines: NDArray[np.int32]  # (n,) the first line of each unit
    firsts: NDArray[np.uint32]  # (n,) the first equal unit
    counts: NDArray[np.int32]  # (n,) how many units are equal to this one, if it is the first
    table: NDArray[np.uint32]  # (SLOTS_PER_KEY * n,) for ``number_keys``


class Search(NamedTuple):
    """Which units to compare, and how."""

    paragraphs: bool  # paragraphs rather than lines
    min_chars: int
    ignore: int  # bits
    classes: NDArray[np.uint8]
    folds: NDArray[np.int32]


def remove_repeats(
    texts: Texts, *, paragraphs: bool, min_chars: int, ignore: int
) -> tuple[Spans, NDArray[np.int64]]:
    """Return the spans of each document that remain without repeats, and the number of repeats, int64 (n,).

    Lines or paragraphs of fewer than ``min_chars`` code points, without white space at the ends of lines and
    the differences to ignore, are never removed. ``ignore``: bits. Line ends are not changed; the last line
    has one if it had one before.
    """
    folds = character_classes.folds() if ignore & CASE else np.zeros(0, np.int32)
    search = Search(paragraphs, min_chars, ignore, character_classes.classes(), folds)
    repeats = np.zeros(len(texts.offsets) - 1, np.int64)
    first_span = np.zeros(len(texts.offsets), np.int64)
    starts, ends = _without_repeats(texts.offsets, texts.data, search, repeats, first_span)
    return Spans(starts, ends, first_span), repeats


@allocator
def _without_repeats(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    search: Search,
    repeats: NDArray[np.int64],
    first_span: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    buffers = new_line_buffers(1024)
    starts, ends = np.empty(1024, np.int64), np.empty(1024, np.int64)
    num = 0
    for k in range(len(offsets) - 1):
        buffers, lines = read_lines(data, offsets[k], offsets[k + 1], search, buffers)
        repeats[k] = _cut_repeats(data, buffers, lines, search)
        if num + lines + 1 > len(starts):
            starts, ends = (
                extend_array(starts, num + lines + 1),
                extend_array(ends, num + lines + 1),
            )
        if repeats[k] > 0:
            num += keep_lines(buffers, lines, offsets[k + 1], starts[num:], ends[num:])
        else:
            starts[num], ends[num] = offsets[k], offsets[k + 1]
            num += 1
        first_span[k + 1] = num
    return starts[:num], ends[:num]


@allocator
def new_line_buffers(lines: int) -> LineBuffers:
    """Return buffers for a document of ``lines`` lines."""
    return LineBuffers(
        np.empty(lines, np.int64),
        np.empty(lines, np.int64),
        np.empty(lines, np.int32),
        np.empty(lines, np.int32),
        np.empty(lines, np.int64),
        np.empty(lines, np.bool_),
        np.empty(lines + 1, np.int64),
        np.empty(lines, np.int32),
        np.empty(lines, np.uint32),
        np.empty(lines, np.int32),
        np.empty(SLOTS_PER_KEY * lines, np.uint32),
    )


@allocator
def _double_buffers(buffers: LineBuffers) -> LineBuffers:
    """Return buffers of twice the size that hold all lines so far."""
    lines = len(buffers.starts)
    larger = new_line_buffers(2 * lines)
    copy_items(larger.starts, 0, buffers.starts, 0, lines)
    copy_items(larger.stops, 0, buffers.stops, 0, lines)
    copy_items(larger.chars, 0, buffers.chars, 0, lines)
    copy_items(larger.compared, 0, buffers.compared, 0, lines)
    copy_items(larger.hashes, 0, buffers.hashes, 0, lines)
    return larger


@allocator
def extend_array(array: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the array extended to twice ``size``; new elements are not initialized."""
    extended = np.empty(2 * size, np.int64)
    copy_items(extended, 0, array, 0, len(array))
    return extended


@allocator
def read_lines(
    data: NDArray[np.uint8], at: int, end: int, search: Search, buffers: LineBuffers
) -> tuple[LineBuffers, int]:
    """Read the lines of a document; return the buffers, which may have grown, and the number of lines."""
    lines = 0
    while at < end:
        if lines == len(buffers.starts):
            buffers = _double_buffers(buffers)
        stop, after = next_line(data, at, end)
        first, last = strip(data, at, stop, search.classes)
        buffers.starts[lines], buffers.stops[lines] = at, stop
        value, chars, compared = hash_line(data, first, last, search)
        buffers.hashes[lines] = value
        buffers.chars[lines], buffers.compared[lines] = chars, compared
        lines += 1
        at = after
    return buffers, lines


@kernel
def hash_line(
    data: NDArray[np.uint8], first: int, last: int, search: Search
) -> tuple[int, int, int]:
    """Return the hash of bytes without the differences to ignore, the code points read, and those hashed."""
    if search.ignore == 0:
        value, chars = _hash(data, first, last)
        return value, chars, chars
    return _loose_hash(data, first, last, search)


@kernel
def hash_lines(
    data: NDArray[np.uint8], buffers: LineBuffers, line: int, stop: int, search: Search
) -> tuple[int, int]:
    """Return the hash of the lines from ``line`` up to ``stop``, and their code points, as compared.

    A line break between two lines counts as one code point. If the amount of white space is ignored, it is
    white space like any other.
    """
    # Line breaks are white space, so the lines are hashed as one text: their own hashes say nothing of
    # it.
    if stop - line > 1 and search.ignore & SPACE:
        first, _ = strip(data, buffers.starts[line], buffers.stops[line], search.classes)
        _, last = strip(data, buffers.starts[stop - 1], buffers.stops[stop - 1], search.classes)
        value, _, compared = hash_line(data, first, last, search)
        return fold_hash(np.int64(SEED), value), compared
    key, compared = np.int64(SEED), stop - line - 1
    for k in range(line, stop):
        key = fold_hash(key, buffers.hashes[k])
        compared += buffers.compared[k]
    return key, compared


@kernel
def _hash(data: NDArray[np.uint8], first: int, last: int) -> tuple[int, int]:
    value, chars = np.int64(SEED), 0
    for at in range(first, last):
        value = fnv_step(value, np.int64(data[at]))
        chars += data[at] & 0xC0 != 0x80
    return value, chars


@kernel
def _loose_hash(
    data: NDArray[np.uint8], first: int, last: int, search: Search
) -> tuple[int, int, int]:
    """Hash a run of white space as one blank, a run of digits as one zero, and letters as lower case."""
    classes, folds, ignore = search.classes, search.folds, search.ignore
    value, chars, compared, before = np.int64(SEED), 0, 0, np.int64(-1)
    at = first
    while at < last:
        point, width = np.int64(data[at]), 1
        if point >= 0x80:
            point, width = point_at(data, at, last)
        at += width
        chars += 1
        kind = classes[point]
        if kind <= LINE and ignore & SPACE:
            point = np.int64(0x20)
        elif kind == DIGIT and ignore & DIGITS:
            point = np.int64(0x30)
        else:
            if ignore & CASE and point < len(folds):
                point = np.int64(folds[point])
            value = fnv_step(value, point)
            compared += 1
            before = np.int64(-1)
            continue
        # A run counts once: ``1,250`` and ``9,7`` are both ``0,0``.
        if point != before:
            value = fnv_step(value, point)
            compared += 1
        before = point
    return value, chars, compared


@kernel
def _cut_repeats(data: NDArray[np.uint8], buffers: LineBuffers, lines: int, search: Search) -> int:
    """Mark the lines of repeated units as cut; return the number of repeated units."""
    units = _join_units(data, buffers, lines, search)
    number_keys(buffers.keys, units, buffers.firsts, buffers.counts, buffers.table)
    for line in range(lines):
        buffers.cut[line] = False
    repeats = 0
    for unit in range(units):
        if buffers.firsts[unit] != unit:
            repeats += 1
            cut_unit(buffers, np.int64(buffers.first_lines[unit]), lines, search.paragraphs)
    return repeats


@kernel
def _join_units(data: NDArray[np.uint8], buffers: LineBuffers, lines: int, search: Search) -> int:
    """Write the key and the first line of each unit that is long enough; return their number."""
    chars = buffers.chars
    units = line = 0
    while line < lines:
        if chars[line] == 0:
            line += 1
            continue
        first = line
        # A paragraph ends at a blank line; without ``paragraphs``, each line is one unit.
        while line < lines and chars[line] > 0 and (line == first or search.paragraphs):
            line += 1
        key, compared = hash_lines(data, buffers, first, line, search)
        if compared >= search.min_chars:
            buffers.keys[units], buffers.first_lines[units] = key, first
            units += 1
    return units


@inner
def cut_unit(buffers: LineBuffers, line: int, lines: int, is_paragraph: bool) -> None:
    """Mark a line as cut or, of a paragraph, all lines from its first one to the next blank one."""
    buffers.cut[line] = True
    while is_paragraph and line + 1 < lines and buffers.chars[line + 1] > 0:
        line += 1
        buffers.cut[line] = True


@kernel
def keep_lines(
    buffers: LineBuffers, lines: int, end: int, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> int:
    """Write the spans of a document without its cut lines; return the number of spans.

    Every line that is neither blank nor cut is kept. The blank and cut lines between two of these are a
    gap; so are blank and cut lines at the beginning and at the end of the document. Of the lines ``a``,
    blank, cut, blank, ``b``, the cut and the second blank line go: one remains between ``a`` and ``b``.
    """
    num = gap = 0  # gap: the first line of the current gap
    for line in range(lines):
        if buffers.cut[line] or buffers.chars[line] == 0:
            continue
        first, last = _blank_lines(buffers, gap, line)
        if first < last:
            num = _append(buffers.starts[first], buffers.starts[last], num, starts, ends)
        after = buffers.starts[line + 1] if line + 1 < lines else end
        num = _append(buffers.starts[line], after, num, starts, ends)
        gap = line + 1
    if gap == lines:
        return num
    if not _has_cut(buffers, gap, lines):
        return _append(buffers.starts[gap], end, num, starts, ends)
    # Else the new last line would get the line end that separated it from the cut ones.
    if gap > 0 and buffers.stops[lines - 1] == end:  # the last line of the document has no line end
        ends[num - 1] = buffers.stops[gap - 1]
    return num


@inner
def _blank_lines(buffers: LineBuffers, gap: int, line: int) -> tuple[int, int]:
    """Return the first and the end of the lines to keep from the gap before a line.

    All lines if none is cut; otherwise, the first run of blank lines, or no lines at the beginning of the
    document.
    """
    first = gap
    while first < line and buffers.cut[first]:
        first += 1
    last = first
    while last < line and not buffers.cut[last]:
        last += 1
    is_cut = last - first < line - gap
    return (line, line) if is_cut and gap == 0 else (first, last)


@inner
def _has_cut(buffers: LineBuffers, line: int, lines: int) -> bool:
    """Return whether any line from ``line`` on is cut."""
    while line < lines and not buffers.cut[line]:
        line += 1
    return line < lines


@inner
def _append(
    start: int, end: int, num: int, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> int:
    """Append a span, or extend the last one if they touch; return the number of spans."""
    if num > 0 and ends[num - 1] == start:
        ends[num - 1] = end
        return num
    starts[num], ends[num] = start, end
    return num + 1
