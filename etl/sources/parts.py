"""Parts of a file: which were read before, and where the rest of the file is cut.

A part is a range of row groups, of record batches or of bytes, as its format counts them. Once read, a part
stays what it is: whatever the split size of a later run, that run cuts only the gaps between known parts. So
no record is read twice or left out, as ``tests/sources/test_parts.py`` checks for any sequence of runs.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from etl.sources import record_ranges
from etl.sources.split import Split


@dataclass(frozen=True, slots=True)
class KnownPart:
    """A part of a file that was read before; if it is not done, its rows were dropped since."""

    start: int
    stop: int | None  # None: the end of the file
    is_done: bool

    def overlaps(self, start: int, stop: int | None) -> bool:
        """Return whether another part has any of the same content."""
        return (stop is None or self.start < stop) and (self.stop is None or start < self.stop)


def cut_at(points: Iterable[int], known: Sequence[KnownPart]) -> list[tuple[int, int | None]]:
    """Return all parts of a file in order: the known ones, and the gaps between them cut at some points.

    ``known`` parts are in order and do not overlap; points inside of them are ignored.

    >>> cut_at([10, 20, 30], [KnownPart(5, 12, True)])
    [(0, 5), (5, 12), (12, 20), (20, 30), (30, None)]
    """
    edges = {0, *(part.start for part in known), *(p.stop for p in known if p.stop is not None)}
    starts = [part.start for part in known]
    for point in points:
        index = bisect_right(starts, point) - 1
        stop = known[index].stop if index >= 0 else 0
        if stop is not None and stop <= point:
            edges.add(point)
    return [*pairwise(sorted(edges)), (max(edges), None)]


def cut_split(whole: Split, points: Iterable[int], known: Sequence[KnownPart]) -> list[Split]:
    """Return the parts of a file that ``cut_at`` returns; only the first one's first row is known."""
    return [
        replace(part_of(whole, start, stop), first_row=0 if start == 0 else None)
        for start, stop in cut_at(points, known)
    ]


def part_of(whole: Split, start: int, stop: int | None) -> Split:
    """Return a part of a file, with the records of it that are read if an index lists them."""
    part = replace(whole, start=start, stop=stop)
    return part if whole.records is None else record_ranges.narrow(part)


def cut_bytes(whole: Split, points: Iterable[int], known: Sequence[KnownPart]) -> list[Split]:
    """Return the parts as ``cut_split`` does, for a file that is cut at bytes."""
    return [
        piece if piece.records is not None else replace(piece, bytes=_size_of(piece))
        for piece in cut_split(whole, points, known)
    ]


def _size_of(piece: Split) -> int:
    return (piece.size if piece.stop is None else piece.stop) - piece.start


def is_complete(known: Sequence[KnownPart]) -> bool:
    """Return whether known parts, which are in order, are done and leave no gap.

    >>> is_complete([KnownPart(0, 7, True), KnownPart(7, None, True)])
    True
    """
    stops = [0, *(part.stop for part in known)]
    starts = [*(part.start for part in known), None]
    return stops == starts and all(part.is_done for part in known)
