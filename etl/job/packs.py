"""Packs of small units of work, which one task does and whose rows share data files."""

import math
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Final, TypeVar

from etl.compact_collections import SpilledList
from etl.job.first_failures import ENOUGH
from etl.lake.work_units import WorkUnit
from etl.sources import Split
from etl.sources.split import TEXT_RATIO

SMALL_BYTES: Final = 8 << 20
"""The most text of a member, about: a quarter of what a task holds back of one; chosen here."""

MAX_UNITS: Final = 64
"""The most members: a task of a second or so, for small inputs must occupy all workers; chosen here."""

Unit = TypeVar("Unit", Split, WorkUnit)


def pack_units(
    units: Iterable[Unit], *, split_bytes: int, held: Callable[[Unit], Hashable] = lambda _: None
) -> Iterator[tuple[Unit, ...]]:
    """Yield units of work in packs: neighbours that are small, together with as much text as one split.

    All others are alone, and so are parts of input files that are read. The members of a pack are equal by
    ``held``, which says what tables have of them: of a pack, a table commits all units or none.
    """
    packs: dict[Hashable, list[Unit]] = {}
    sizes: Counter[Hashable] = Counter()
    for unit in units:
        size = _text_bytes(unit)
        if _is_part(unit) or size > min(split_bytes // 4, SMALL_BYTES):
            yield (unit,)
            continue
        kind = held(unit)
        if len(packs.get(kind, ())) == MAX_UNITS or sizes[kind] + size > split_bytes:
            yield _in_order(packs.pop(kind))
            del sizes[kind]
        packs.setdefault(kind, []).append(unit)
        sizes[kind] += size
    yield from map(_in_order, packs.values())


def count_packs(units: int, text_bytes: int, *, split_bytes: int) -> int:
    """Return in about how many packs units with so much text are, if all are equally large.

    >>> count_packs(300, 300_000, split_bytes=32 << 20), count_packs(9, 9 << 30, split_bytes=32 << 20)
    (5, 9)
    """
    size = text_bytes // max(units, 1)
    if size > min(split_bytes // 4, SMALL_BYTES):
        return units
    return math.ceil(units / min(MAX_UNITS, split_bytes // max(size, 1)))


def run_packs(
    packs: SpilledList[tuple[Unit, ...]],
    run: Callable[[SpilledList[tuple[Unit, ...]]], Generator[Unit]],
) -> None:
    """Run packs, and then alone the units that ``run`` yields: they failed, or could not be committed."""
    with closing(run(packs)) as failed:
        # The first ones at once: if they all fail alone, too, the run stops here, and not after all packs.
        for again in (islice(failed, ENOUGH), failed):
            units = SpilledList((unit,) for unit in again)
            if len(units):
                for _ in run(units):
                    raise AssertionError("a unit that runs alone is in no pack")


def _is_part(unit: Split | WorkUnit) -> bool:
    return isinstance(unit, Split) and not unit.is_whole


def _text_bytes(unit: Split | WorkUnit) -> int:
    """Return about how many bytes of text a unit has."""
    return unit.work if isinstance(unit, Split) else unit.size * TEXT_RATIO


def _in_order(pack: list[Unit]) -> tuple[Unit, ...]:
    """Return a pack in the order of addresses, which the rows of a data file have."""
    return tuple(sorted(pack, key=lambda unit: (unit.source, unit.first_row or 0)))
