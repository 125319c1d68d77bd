"""The order of an epoch of best-fit windows, as in ``epoch.py``, with units instead of row groups.

Units (``best_fit_packing.py``) are fixed parts of the table: they depend on ``seq_len`` and the shuffle's
settings, but not on the epoch. A run has several strands, each of consecutive whole row groups: strand k of
the table is its kth equal part, and run j has the jth row groups of each part. So a unit has documents of
several places, which fill windows better than documents of one source. Runs are divided into units. An epoch
shuffles the runs; its stream is the windows of all units. A block is the part of a unit that is in a lane:
all of it, except at the borders of a lane. Without shuffle, there is one run with one strand.

Only the numbers of tokens and windows of each unit are kept, 36 bytes for 512 K tokens. The windows of a unit
are planned again whenever it is read.
"""

import hashlib
import json
from dataclasses import KW_ONLY, asdict, dataclass
from functools import cached_property

import numpy as np

from etl.loader.order.epoch import EpochPlan, EpochStream
from etl.loader.order.shuffle_settings import ResolvedShuffle, Shuffle, divisible_lanes, permutation

UNITS_FORMAT = 2
"""Increase it when units or windows change: older states are then refused, and units computed again."""

_UNIT_TOKENS, _UNIT_WINDOWS = 1 << 19, 32  # measured: see best_fit_packing.py
_ALL_UNITS_TOKENS = 1 << 23  # of all lanes of a local table
_REMOTE_LANES = 1024  # at most
_REMOTE_LANE_TOKENS = 1 << 27  # at least ten runs, of which two lanes may read one
_UNITS_PER_RUN = 8  # the last unit of a run ends where the run ends
_RUNS_PER_LANE = 2  # if runs have more than one unit
_STRANDS = 8  # measured: see best_fit_packing.py
_RUNS = 4  # at least, so that a small table has fewer strands


def unit_shuffle(
    shuffle: bool | Shuffle,  # noqa: FBT001
    *,
    seq_len: int,
    num_tokens: int,
    is_remote: bool = False,
) -> ResolvedShuffle | None:
    """Return the settings of the shuffle, in which ``block_tokens`` is the maximum of a unit.

    ``run_tokens`` are the tokens of a strand of a run. By default, units have up to 512 K tokens, more if
    these are fewer than 32 windows, and there are 16 lanes, at 32 K tokens 8. A table in an object store has
    up to 1,024, so that ranks do not fetch the same bytes.

    >>> unit_shuffle(True, seq_len=32_768, num_tokens=10**10)
    ResolvedShuffle(lanes=8, block_tokens=1048576, run_tokens=1048576)
    >>> unit_shuffle(True, seq_len=2048, num_tokens=10**11, is_remote=True).lanes
    480
    """
    if shuffle is False:
        return None
    given = Shuffle() if shuffle is True else shuffle
    unit_tokens = given.block_tokens or default_unit_tokens(seq_len)
    lanes = given.lanes
    if lanes is None:
        # Each lane holds a unit, so longer units leave memory for fewer lanes. A table in an object store has
        # more lanes, if each is still long enough to be read by few ranks.
        lanes = max(_ALL_UNITS_TOKENS // unit_tokens, 1)
        if is_remote:
            most = min(num_tokens // _REMOTE_LANE_TOKENS, _REMOTE_LANES)
            lanes = max(lanes, divisible_lanes(most))
    run_tokens = given.run_tokens
    if run_tokens is None:
        # A run has at least one unit, and up to eight if each lane still has two runs: the last unit of a run
        # ends where the run ends, which costs padding.
        shortest = Shuffle(lanes=lanes).resolved(num_tokens).run_tokens
        longer = min(_UNITS_PER_RUN * unit_tokens, num_tokens // (lanes * _RUNS_PER_LANE))
        run_tokens = max(shortest, unit_tokens, longer) // _STRANDS
    return ResolvedShuffle(lanes=lanes, block_tokens=unit_tokens, run_tokens=run_tokens)


def default_unit_tokens(seq_len: int) -> int:
    """Return the default maximum of the tokens of a unit."""
    return max(_UNIT_TOKENS, _UNIT_WINDOWS * seq_len)


def divide_into_strands(first_groups: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first row group of each strand of each run, and the end of its row groups, (R, K) int32.

    ``first_groups`` are the first row groups of the parts of the table that are read in one piece, ascending
    from 0. Where their number is not a multiple of K, the last strands of some runs are empty.

    >>> starts, stops = divide_into_strands(np.arange(0, 18, 2), num_groups=17)
    >>> starts.tolist(), stops.tolist()
    ([[0, 10], [2, 12], [4, 14], [6, 16], [8, 17]], [[2, 12], [4, 14], [6, 16], [8, 17], [10, 17]])
    """
    num_strands = max(min(_STRANDS, len(first_groups) // _RUNS), 1)
    num_runs = -(-len(first_groups) // num_strands)
    # Bound i is where part i begins. Parts that are missing to fill the grid begin at the end: they are
    # empty.
    bounds = np.full(num_runs * num_strands + 1, num_groups, np.int32)
    bounds[: len(first_groups)] = first_groups
    # Strand k of run j is part k * num_runs + j.
    starts, stops = (each.reshape(num_strands, num_runs).T for each in (bounds[:-1], bounds[1:]))
    return starts, stops


@dataclass(frozen=True)
class UnitPlan(EpochPlan):
    """The best-fit windows of any epoch. Here ``group_tokens`` are the windows of each of the U units.

    There are R runs of K strands.
    """

    _: KW_ONLY
    window_tokens: int  # the tokens of a window; ``seq_len`` is 1 window
    unit_tokens: np.ndarray  # (U, K) int32
    first_units: np.ndarray  # (R,) int32: the first unit of each run
    first_groups: np.ndarray  # (R, K) int32: the first row group of each strand
    stop_groups: np.ndarray  # (R, K) int32: the end of its row groups
    row_groups: EpochStream  # all row groups, in the order of the table

    @cached_property
    def lanes(self) -> int:
        """The number of lanes in use, at most the number of runs."""
        return 1 if self.shuffle is None else min(self.shuffle.lanes, len(self.first_units))

    @property
    def padding(self) -> float:
        """The share of an epoch's tokens that are padding."""
        used = int(self.unit_tokens.sum(dtype=np.int64))
        return 1.0 - used / (self.num_samples * self.window_tokens)

    @property
    def num_strands(self) -> int:
        """The number of strands of a run."""
        return len(self.unit_tokens[0])

    @cached_property
    def _strands(self) -> list[EpochStream]:
        """The units in the order of their numbers, with their tokens in each strand."""
        every = np.arange(len(self.unit_tokens), dtype=np.int32)
        return [EpochStream.of(every, tokens) for tokens in self.unit_tokens.T]

    def runs(self) -> np.ndarray:
        """Return the first unit of each run, (R,) int32; one run without shuffle."""
        return np.zeros(1, np.int32) if self.shuffle is None else self.first_units

    def unit_spans(self, unit: int) -> list[tuple[int, range]]:
        """Return the strands that have tokens of a unit, each with these tokens of the table."""
        run = int(np.searchsorted(self.first_units, unit, side="right")) - 1
        spans = []
        for strand in np.flatnonzero(self.unit_tokens[unit]).tolist():
            # The units of a run follow each other in a strand: the tokens of the earlier ones come first.
            units = self._strands[strand]
            before = units.start(unit) - units.start(int(self.first_units[run]))
            start = self.row_groups.start(int(self.first_groups[run, strand])) + before
            spans.append((strand, range(start, start + int(self.unit_tokens[unit, strand]))))
        return spans

    def span_groups(self, span: range) -> list[int]:
        """Return the row groups that hold some tokens of the table, without empty ones."""
        groups = self.row_groups.group_indices(span.start, span.stop)
        return [group for group in groups if self.row_groups.group_tokens[group]]

    def part(self, stream: EpochStream, lane_windows: range, window: int) -> tuple[int, range]:
        """Return the unit of a window, as its index in the stream, and its windows in the lane."""
        index = stream.group_index(window)
        start, end = stream.start(index), stream.start(index + 1)
        return index, range(max(start, lane_windows.start), min(end, lane_windows.stop))

    def order(self, epoch: int, lane: int, windows: range) -> np.ndarray:
        """Return the windows of a unit in a lane, shuffled among themselves; counted from the first one."""
        if self.shuffle is None:
            return np.arange(len(windows))
        return permutation(len(windows), self.seed, epoch, "unit", lane, windows.start)

    def find_window(self, epoch: int, stream: EpochStream, sample: int) -> int:
        """Return the window of the epoch's stream for a sample."""
        position, lane = divmod(sample, self.lanes)
        # A lane may begin or end inside a unit; the windows of a unit are shuffled in each lane alone, so
        # that a lane reads each unit once.
        in_lane = self.lane(epoch, lane)
        _, windows = self.part(stream, in_lane, in_lane[position])
        slot = in_lane[position] - windows.start
        return windows.start + int(self.order(epoch, lane, windows)[slot])

    def find_sample(self, epoch: int, window: int) -> int:
        """Return the sample of an epoch whose window it is: the inverse of ``window``."""
        lane, _ = self.place_in_lane(epoch, window)
        in_lane = self.lane(epoch, lane)
        _, windows = self.part(self.stream(epoch), in_lane, window)
        order = self.order(epoch, lane, windows)
        slot = int(np.flatnonzero(order == window - windows.start)[0])
        return (windows.start + slot - in_lane.start) * self.lanes + lane

    def find_units(self, group: int, tokens: range) -> list[int]:
        """Return the units that have some of the table's tokens, which are in a row group."""
        run, strand = np.argwhere((self.first_groups <= group) & (group < self.stop_groups))[0]
        stop = (
            len(self.unit_tokens) if run + 1 == len(self.first_units) else self.first_units[run + 1]
        )
        return [
            unit
            for unit in range(int(self.first_units[run]), int(stop))
            for number, span in self.unit_spans(unit)
            if number == strand and span.start < tokens.stop and tokens.start < span.stop
        ]

    def window(self, epoch: int, sample: int) -> int:
        """Return the window of the epoch's stream for a sample."""
        return self.find_window(epoch, self.stream(epoch), sample)

    def group_stream(self, epoch: int) -> EpochStream:
        """Return the row groups in the order in which an epoch reads them, one strand after the other."""
        groups = self.row_groups.groups
        if self.shuffle is not None:
            order = permutation(len(self.first_groups), self.seed, epoch, "runs")
            starts, stops = (
                each[order].T.ravel().tolist() for each in (self.first_groups, self.stop_groups)
            )
            runs = zip(starts, stops, strict=True)
            groups = np.concatenate([groups[start:stop] for start, stop in runs])
        tokens = self.row_groups.group_tokens
        return EpochStream.of(groups[tokens[groups] > 0], tokens)

    def fingerprint(self, table_digest: str) -> str:
        """Return 16 hex digits over everything that decides the order, for comparison with saved states."""
        shuffle = None if self.shuffle is None else asdict(self.shuffle)
        parts = ["best_fit", UNITS_FORMAT, table_digest, self.window_tokens, self.seed, shuffle]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
