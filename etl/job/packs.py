"""Packs of small splits, which one task reads into common data files."""

from collections.abc import Iterable, Iterator
from typing import Final

from etl.lake.ledger import Ledger
from etl.lake.work_units import split_key
from etl.sources import Split

SMALL_BYTES: Final = 8 << 20
"""The most text of a member, about: half of what a task holds back of one; chosen here."""

MAX_UNITS: Final = 64
"""The most members: a task of a second or so, for small inputs must occupy all workers; chosen here."""


def pack_splits(
    splits: Iterable[Split], documents: Ledger, *, split_bytes: int
) -> Iterator[tuple[Split, ...]]:
    """Yield splits in packs: neighbours that are small whole files, together as large as one split.

    All others are alone, and so are files of whose rows ``documents`` has a part: only texts are missing.
    """
    most = min(split_bytes // 4, SMALL_BYTES)
    pack: list[Split] = []
    work = 0
    for split in splits:
        is_small = split.is_whole and split.work <= most
        if not is_small or documents.is_done(split_key(documents, split)):
            yield (split,)
            continue
        if pack and (len(pack) == MAX_UNITS or work + split.work > split_bytes):
            yield _in_order(pack)
            pack, work = [], 0
        pack.append(split)
        work += split.work
    if pack:
        yield _in_order(pack)


def _in_order(pack: list[Split]) -> tuple[Split, ...]:
    """Return a pack in the order of addresses, which the rows of a data file have."""
    return tuple(sorted(pack, key=lambda split: split.source))
