"""Clusters of duplicates: each kept document with the documents left out for it.

A document's address is one integer here: the index of its input file, with the row in the low 40 bits.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl import schemas
from etl.audit.duplicates.rows_by_source import read_batches
from etl.delta.table import Table

AT_A_TIME: Final = 1 << 23  # duplicates that are counted in one pass over the table
_ROW_BITS: Final = 40

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ClusterCounts:
    """Counts from one pass over ``duplicates``; only ``kinds`` includes documents that are cut."""

    kinds: Counter[str] = field(default_factory=Counter)
    keepers: Counter[str] = field(default_factory=Counter)  # input file -> its duplicates
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)  # (source, keeper's source)


def count_duplicates(table: Table, folders: Mapping[str, str]) -> ClusterCounts:
    """Count duplicates by kind, by keeper's input file, and by pair of files.

    ``folders`` maps input files to the folders that replace them in ``pairs``.
    """
    counts = ClusterCounts()
    for batch in read_batches(table, ["kind", "source", "keeper_source"]):
        groups = pa.table(batch).group_by(batch.schema.names).aggregate([([], "count_all")])
        for row in groups.to_pylist():
            size, source, keeper = row["count_all"], row["source"], row["keeper_source"]
            counts.kinds[row["kind"]] += size
            if row["kind"] in schemas.WHOLE:
                counts.keepers[keeper] += size
                counts.pairs[folders.get(source, source), folders.get(keeper, keeper)] += size
    return counts


def group_sources(keepers: Mapping[str, int]) -> Iterator[list[str]]:
    """Group the input files with keepers, in order, by at most ``AT_A_TIME`` duplicates."""
    group: list[str] = []
    size = 0
    for source in sorted(keepers):
        if group and size + keepers[source] > AT_A_TIME:
            yield group
            group, size = [], 0
        group.append(source)
        size += keepers[source]
    if group:
        yield group


def read_keepers(table: Table, sources: Sequence[str]) -> tuple[Ints, Ints]:
    """Return the sorted addresses of the keepers in some input files, and their duplicate counts."""
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for batch in read_batches(table, ["kind", "keeper_source", "keeper_row"]):
        keepers = to_addresses(batch, sources, "keeper_")
        both = np.concatenate([keys, keepers[keepers >= 0]])
        weights = np.concatenate([counts, np.ones(len(both) - len(counts), np.int64)])
        keys, indices = np.unique(both, return_inverse=True)
        counts = np.bincount(indices, weights, minlength=len(keys)).astype(np.int64)
    return keys, counts


def read_members(
    table: Table, keepers: Sequence[tuple[str, int]], limit: int
) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return the rows of ``duplicates`` for a few keepers: the first ``limit`` of each by address."""
    sources = sorted({source for source, _ in keepers})
    wanted = np.array([to_address(sources, *keeper) for keeper in keepers], np.int64)
    by_keeper: dict[tuple[str, int], list[dict[str, Any]]] = {keeper: [] for keeper in keepers}
    unused = {"id", "unit", "keeper_lake", *schemas.CUTS.names}
    for batch in read_batches(table, [n for n in table.schema.names if n not in unused]):
        is_member = np.isin(to_addresses(batch, sources, "keeper_"), wanted)
        for row in batch.filter(pa.array(is_member)).to_pylist():
            members = by_keeper[row["keeper_source"], row["keeper_row"]]
            members.append(row)
            if len(members) > 2 * limit:
                members[:] = _first(members, limit)
    return {keeper: _first(members, limit) for keeper, members in by_keeper.items()}


def _first(members: Sequence[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    return sorted(members, key=lambda row: (row["source"], row["row"]))[:limit]


def to_addresses(batch: pa.RecordBatch, sources: Sequence[str], prefix: str) -> Ints:
    """Return the addresses in a batch; -1 for other input files and for documents that are only cut."""
    number = pc.index_in(batch[f"{prefix}source"], pa.array(sources, pa.string()))
    is_whole = pc.is_in(batch["kind"], pa.array(schemas.WHOLE))
    number = pc.fill_null(pc.if_else(is_whole, number, None), -1).to_numpy().astype(np.int64)
    rows = batch[f"{prefix}row"].to_numpy()
    return np.where(number < 0, -1, number << _ROW_BITS | rows)


def to_address(sources: Sequence[str], source: str, row: int) -> int:
    """Return the address of one document."""
    return sources.index(source) << _ROW_BITS | row


def from_address(sources: Sequence[str], address: int) -> tuple[str, int]:
    """Return the input file and the row of an address."""
    return sources[address >> _ROW_BITS], address & ((1 << _ROW_BITS) - 1)


def slice_of_source(keys: Ints, number: int) -> slice:
    """Return the slice of sorted addresses that belongs to an input file."""
    first, last = np.searchsorted(keys, np.array([number, number + 1], np.int64) << _ROW_BITS)
    return slice(int(first), int(last))


def to_rows(keys: Ints) -> Ints:
    """Return the rows of addresses."""
    return keys & ((1 << _ROW_BITS) - 1)
