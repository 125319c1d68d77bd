"""Remove given paragraphs, lines or sentences from documents, without leaving larger gaps.

Units are defined in ``etl.kernels.lines.text_units``. A line of which nothing remains is cut, as in
``etl.kernels.lines.repeated``. In a line of which some sentences remain, each removed one leaves a *hole*.
The result is the spans that remain.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.spans import Spans
from etl.kernels.bytes.utf8 import Texts
from etl.kernels.jit import allocator, inner, kernel
from etl.kernels.lines.repeated import (
    LineBuffers,
    cut_unit,
    extend_array,
    keep_lines,
    new_line_buffers,
)
from etl.kernels.lines.text_units import (
    PARAGRAPHS,
    Cutting,
    Tools,
    UnitBuffers,
    new_tools,
    new_unit_buffers,
    split_document,
)


class _Ranges(NamedTuple):
    """Ranges of bytes, in order and without overlap."""

    starts: NDArray[np.int64]  # (m,) the first byte
    ends: NDArray[np.int64]  # (m,) the byte after the last


def remove_units(
    texts: Texts, cutting: Cutting, first_cut: NDArray[np.int64], ordinals: NDArray[np.int32]
) -> Spans:
    """Return the spans of each document that remain without the units of some ordinals.

    The ordinals of document ``k`` are ``ordinals[first_cut[k] : first_cut[k + 1]]``. Cuts leave no larger
    gaps, as in ``etl.kernels.lines.repeated``. White space is removed with the sentence before it.
    """
    first_span = np.zeros(len(texts.offsets), np.int64)
    remaining, missing = _remove_units(
        texts.offsets, texts.data, new_tools(cutting), cutting, (first_cut, ordinals), first_span
    )
    assert missing == 0, "a document has fewer units than the ordinals to remove"
    return Spans(remaining.starts, remaining.ends, first_span)


@allocator
def _remove_units(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    tools: Tools,
    cutting: Cutting,
    cuts: tuple[NDArray[np.int64], NDArray[np.int32]],
    first_span: NDArray[np.int64],
) -> tuple[_Ranges, int]:
    """Return the ranges that remain, and the number of ordinals without a unit."""
    first_cut, ordinals = cuts
    buffers, units = new_line_buffers(1024), new_unit_buffers(1024)
    remaining, kept = _new_ranges(1024), _new_ranges(1024)
    num = missing = 0
    for k in range(len(offsets) - 1):
        to_remove = ordinals[first_cut[k] : first_cut[k + 1]]
        if len(to_remove) == 0:
            remaining = _with_capacity(remaining, num + 1)
            remaining.starts[num], remaining.ends[num] = offsets[k], offsets[k + 1]
            num += 1
        else:
            # Units are found again by the same rules as when they were hashed, since only their ordinals
            # are stored.
            buffers, lines, units, size = split_document(
                data, offsets[k], offsets[k + 1], tools, cutting, buffers, units, 0
            )
            removed = np.zeros(size, np.bool_)
            for ordinal in to_remove:
                # A text with fewer units has changed since; the caller reports it.
                if ordinal < size:
                    removed[ordinal] = True
                else:
                    missing += 1
            # Two steps: lines without any rest are left out by ``keep_lines``, which also decides about
            # blank lines; then sentences are cut out of the remaining lines.
            holes = _cut_units(buffers, lines, units, removed, cutting)
            kept = _with_capacity(kept, lines + 1)
            num_kept = keep_lines(buffers, lines, offsets[k + 1], kept.starts, kept.ends)
            remaining = _with_capacity(remaining, num + num_kept + len(holes.starts))
            num = _subtract(kept, num_kept, holes, remaining, num)
        first_span[k + 1] = num
    return _Ranges(remaining.starts[:num], remaining.ends[:num]), missing


@allocator
def _cut_units(
    buffers: LineBuffers,
    lines: int,
    units: UnitBuffers,
    removed: NDArray[np.bool_],
    cutting: Cutting,
) -> _Ranges:
    """Remove units of a document: mark lines of which nothing remains as cut.

    Returns the holes: the ranges to remove from lines of which some sentences remain.
    """
    for line in range(lines):
        buffers.cut[line] = False
    holes = _new_ranges(len(removed))
    num = unit = 0
    while unit < len(removed):
        line, after, all_removed = units.lines[unit], unit, True
        # A line can have several sentences.
        while after < len(removed) and units.lines[after] == line:
            all_removed &= removed[after]
            after += 1
        if all_removed:
            cut_unit(buffers, line, lines, cutting.unit == PARAGRAPHS)
        else:
            num = _append_holes(units, removed, unit, after, holes, num)
        unit = after
    return _Ranges(holes.starts[:num], holes.ends[:num])


@inner
def _append_holes(
    units: UnitBuffers, removed: NDArray[np.bool_], unit: int, after: int, holes: _Ranges, num: int
) -> int:
    """Append the holes of the units of a line, from ``unit`` up to ``after``; return the number of holes.

    A hole includes the white space after a sentence or, for the last sentence of the line, before it.
    """
    for k in range(unit, after):
        if not removed[k]:
            continue
        is_last = k + 1 == after
        start = units.stops[k - 1] if is_last else units.starts[k]
        end = units.stops[k] if is_last else units.starts[k + 1]
        if num > 0 and start <= holes.ends[num - 1]:
            holes.ends[num - 1] = end
        else:
            holes.starts[num], holes.ends[num] = start, end
            num += 1
    return num


@kernel
def _subtract(kept: _Ranges, num_kept: int, holes: _Ranges, remaining: _Ranges, num: int) -> int:
    """Append the first ``num_kept`` ranges without the holes to ``remaining``; return its new size.

    Each hole lies within one of the ranges.
    """
    hole = 0
    for k in range(num_kept):
        start, end = kept.starts[k], kept.ends[k]
        while hole < len(holes.starts) and holes.starts[hole] < end:
            if start < holes.starts[hole]:
                remaining.starts[num], remaining.ends[num] = start, holes.starts[hole]
                num += 1
            start = holes.ends[hole]
            hole += 1
        if start < end:
            remaining.starts[num], remaining.ends[num] = start, end
            num += 1
    return num


@allocator
def _new_ranges(size: int) -> _Ranges:
    return _Ranges(np.empty(size, np.int64), np.empty(size, np.int64))


@allocator
def _with_capacity(ranges: _Ranges, size: int) -> _Ranges:
    """Return the ranges, extended unless they can hold ``size`` of them."""
    if size <= len(ranges.starts):
        return ranges
    return _Ranges(extend_array(ranges.starts, size), extend_array(ranges.ends, size))
