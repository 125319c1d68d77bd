"""Plan the best-fit windows of a table: divide it into units, from the lengths of all its documents.

The units are computed once on a machine, and then taken from the cache.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from hashlib import sha256

import numpy as np

from etl.errors import LoaderError
from etl.loader.fetch.document_lengths import read_lengths
from etl.loader.fetch.file_cache import cached_arrays
from etl.loader.fetch.table_index import TableIndex
from etl.loader.order.best_fit_packing import divide, interleave
from etl.loader.order.epoch import EpochPlan, EpochStream
from etl.loader.order.shuffle_settings import ResolvedShuffle
from etl.loader.order.unit_plan import (
    UNITS_FORMAT,
    UnitPlan,
    default_unit_tokens,
    divide_into_strands,
)


def plan_units(
    index: TableIndex, seq_len: int, seed: int, shuffle: ResolvedShuffle | None
) -> UnitPlan:
    """Return the order of the best-fit windows of a table; the units are computed once on a machine.

    Raises LoaderError if the table has no tokens.
    """
    if seq_len < 1:
        raise LoaderError(f"seq_len must be at least 1, not {seq_len}")
    runs = EpochPlan(index.group_tokens, 1, seed, shuffle, overlap=0).runs()
    places = sha256(index.group_tokens.tobytes() + index.chunks.tobytes()).hexdigest()
    settings = None if shuffle is None else asdict(shuffle)
    units = cached_arrays(
        "units",
        [UNITS_FORMAT, index.url, index.version, index.digest(), places, seq_len, settings],
        partial(_divide_table, index, runs, seq_len, shuffle),
    )
    return UnitPlan(
        units.pop("windows"),
        1,
        seed,
        shuffle,
        overlap=0,
        window_tokens=seq_len,
        row_groups=EpochStream.of(
            np.arange(len(index.group_tokens), dtype=np.int32), index.group_tokens
        ),
        **units,
    )


def _divide_table(
    index: TableIndex, runs: np.ndarray, seq_len: int, shuffle: ResolvedShuffle | None
) -> dict[str, np.ndarray]:
    """Read the lengths of all documents, and return the windows of each unit, and fields of UnitPlan."""
    # The lengths are read in the order in which the strands of each run are packed, so that only the lengths
    # of one run are in memory.
    max_tokens = default_unit_tokens(seq_len) if shuffle is None else shuffle.block_tokens
    starts, stops = divide_into_strands(runs, len(index.group_tokens))
    by_strand = [[*map(range, *run)] for run in zip(starts.tolist(), stops.tolist(), strict=True)]
    lengths = read_lengths(index, [g for run in by_strand for groups in run for g in groups])
    units: list[tuple[np.ndarray, int]] = []
    first_units = [0]
    for run in by_strand:
        units += divide(
            _pieces(run, lengths, seq_len),
            seq_len=seq_len,
            max_tokens=max(max_tokens, seq_len),
            num_strands=len(run),
        )
        first_units.append(len(units))
    has_units = np.diff(first_units) > 0  # a run of empty documents has none, and is left out
    tokens = np.array([tokens for tokens, _ in units], np.int32)
    return {
        "windows": np.array([windows for _, windows in units], np.int32),
        "unit_tokens": tokens.reshape(-1, starts.shape[1]),
        "first_units": np.array(first_units[:-1], np.int32)[has_units],
        "first_groups": starts[has_units],
        "stop_groups": stops[has_units],
    }


def _pieces(
    run: Sequence[range], lengths: Iterator[np.ndarray], seq_len: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the pieces of a run, given the row groups of its strands and their lengths, one after another."""
    if len(run) == 1:  # of the whole table, perhaps: in parts
        yield from (interleave([next(lengths)], seq_len) for _ in run[0])
        return
    parts = [[next(lengths) for _ in groups] for groups in run]
    empty = np.zeros(0, np.int64)
    yield interleave([np.concatenate([empty, *part]) for part in parts], seq_len)
