"""The order of an epoch: the window and the row groups of each sample.

Sample g is numbered over all ranks. Its window follows by arithmetic only:

1. **Runs.** Consecutive row groups of the table form a run of about ``run_tokens`` tokens, which can be
   fetched from an object store in one request.
2. **Stream.** The stream of an epoch is all runs, shuffled by (seed, epoch). Window i is the stream's tokens
   [i * seq_len, i * seq_len + seq_len]. Windows cross runs (at the end of a document), so an epoch drops
   only the tail of the stream.
3. **Lanes.** The windows of the stream are divided into ``lanes`` equal shares, each read from front to back
   by one lane. Which lane reads which share is random in each epoch.
4. **Blocks.** In a lane, the windows of each ``block_tokens`` tokens are shuffled among themselves. With
   many lanes a block is a single window.
5. **Samples** are taken from the lanes in turn: sample g is number g // lanes of lane g % lanes.

The order depends only on (table version, seq_len, seed, epoch, shuffle settings). A step of R ranks takes the
next samples, which are divided by lanes (see ``steps.py``). If ``lanes`` is a multiple of R, no two ranks
read the same bytes. If not, ``lanes % R`` lanes are divided among several ranks: with L lanes, a table is
read (L + R - gcd(L, R)) / L times or little more. So a remote table has lanes in proportion to its size, up
to 15,360, with which 1,000 ranks read it 1.07 times. With fewer lanes than ranks, each byte is read by R / L
ranks or more.

A rank holds a page of each of its lanes in memory, and a block if it is longer than a window. A batch mixes
up to ``lanes`` places of the table. Where the border of a lane falls into a row group, both lanes open it.

Permutations sort the raw output of Philox, which NumPy guarantees to keep, unlike the methods of
``Generator`` (NEP 19). An order costs 4 bytes and about 0.1 µs per row group. Longer intermediate arrays are
built in parts, which keeps the peak memory at that.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from etl.errors import LoaderError
from etl.loader.order.shuffle_settings import ResolvedShuffle, bounded_slices, permutation

_FORMAT = 4  # increase it when the order changes: older states are then refused
_MARK_EVERY = 256  # row groups per stored running total
_ONE = np.zeros(1, np.int64)
_LANE_SAMPLES = 8  # at least so many, so that a small table has fewer lanes and longer blocks


@dataclass(frozen=True)
class EpochStream:
    """The G non-empty row groups of an epoch, in its order.

    Only the start of every 256th row group is stored: 8 bytes each would be most of the stream's memory.
    """

    groups: np.ndarray  # (G,) int32, numbers of row groups in the table
    group_tokens: np.ndarray  # (row groups of the table,) int32
    marks: np.ndarray  # (ceil(G / 256) + 1,) int64: the first token of each 256th, and the end

    @staticmethod
    def of(groups: np.ndarray, group_tokens: np.ndarray) -> "EpochStream":
        """Return the stream of row groups in a given order, (G,) int32."""
        # Sum 256 row groups at a time, in parts: the tokens of all row groups in the order of the epoch would
        # be an array as large as the stream.
        totals = [np.zeros(1, np.int64)]
        for part in bounded_slices(len(groups)):
            tokens = group_tokens[groups[part]]
            firsts = np.arange(0, len(tokens), _MARK_EVERY)
            totals.append(np.add.reduceat(tokens, firsts, dtype=np.int64))
        return EpochStream(groups, group_tokens, np.cumsum(np.concatenate(totals)))

    def start(self, index: int) -> int:
        """Return the first token of the row group at an index; the stream's end for index G."""
        # From the mark before the index, at most 255 row groups are to be added.
        mark = index // _MARK_EVERY
        before = self.groups[mark * _MARK_EVERY : index]
        return int(self.marks[mark]) + int(self.group_tokens[before].sum(dtype=np.int64))

    def group_index(self, token: int) -> int:
        """Return the index of the row group that holds a token of the stream."""
        # The last mark that is not after the token, and the row groups from there on.
        mark = int(np.searchsorted(self.marks, token, side="right")) - 1
        first = mark * _MARK_EVERY
        ends = np.cumsum(
            self.group_tokens[self.groups[first : first + _MARK_EVERY]], dtype=np.int64
        )
        return first + int(np.searchsorted(ends, token - int(self.marks[mark]), side="right"))

    def group_indices(self, start: int, stop: int) -> range:
        """Return the indices of the row groups that hold the stream's tokens [start, stop)."""
        return range(self.group_index(start), self.group_index(stop - 1) + 1)


class LanePlan(Protocol):
    """Which row groups are read together."""

    @property
    def lanes(self) -> int:
        """The number of lanes."""

    def runs(self) -> np.ndarray:
        """Return the first row group of each run, ascending."""

    def lane_span(self, epoch: int, lane: int) -> tuple[int, int]:
        """Return the first token of a lane in the stream of an epoch, and the end of its last one."""


@dataclass(frozen=True)
class EpochPlan:
    """The samples of any epoch, a pure function of these fields.

    Raises LoaderError if the table is too small for one window.
    """

    group_tokens: np.ndarray  # (G,) int32, in the order of the table
    seq_len: int
    seed: int
    shuffle: ResolvedShuffle | None  # None: the order of the table
    overlap: int = 1  # tokens that a window shares with the next: the label of its last token

    def __post_init__(self) -> None:
        if self.seq_len < 1:
            raise LoaderError(f"seq_len must be at least 1, not {self.seq_len}")
        if self.num_samples < 1:
            raise LoaderError(
                f"a window needs {self.seq_len + self.overlap} tokens, "
                f"but the table has only {self.num_tokens}",
                hint="use a smaller seq_len, or a table with more tokens",
            )

    @cached_property
    def num_tokens(self) -> int:
        """The number of tokens in the table."""
        return int(self.group_tokens.sum(dtype=np.int64))

    @property
    def num_samples(self) -> int:
        """The number of windows of an epoch over all ranks; the last one needs one more token as label."""
        return max(self.num_tokens - self.overlap, 0) // self.seq_len

    @property
    def dropped_tokens(self) -> int:
        """The number of tokens at the end of an epoch's stream that are in no window."""
        return self.num_tokens - self.num_samples * self.seq_len - self.overlap

    @cached_property
    def lanes(self) -> int:
        """The number of lanes in use, at most an eighth of the samples."""
        if self.shuffle is None:
            return 1
        return max(min(self.shuffle.lanes, self.num_samples // _LANE_SAMPLES), 1)

    @cached_property
    def block_windows(self) -> int:
        """The number of windows of a full block."""
        if self.shuffle is None:
            return 1
        return max(self.shuffle.block_tokens // self.seq_len, 1)

    def runs(self) -> np.ndarray:
        """Return the first row group of each run, (R,) int32, ascending from 0; one run without shuffle."""
        if self.shuffle is None:
            return np.zeros(1, np.int32)
        # The row groups that begin in the same ``run_tokens`` tokens of the table are a run. With
        # run_tokens=10, row groups of 4 tokens begin at 0, 4, 8, 12, 16, 20: the runs are 0-2, 3-4 and 5.
        firsts, before, last = [], 0, -1
        for part in bounded_slices(len(self.group_tokens)):
            tokens = self.group_tokens[part]
            ends = before + np.cumsum(tokens, dtype=np.int64)
            bins = (ends - tokens) // self.shuffle.run_tokens
            # The bin before this part, so that a run may continue in it.
            is_first = np.diff(bins, prepend=last) != 0
            firsts.append((np.flatnonzero(is_first) + part.start).astype(np.int32))
            before, last = int(ends[-1]), int(bins[-1])
        return np.concatenate(firsts)

    def lane(self, epoch: int, lane: int) -> range:
        """Return the windows of a lane; lanes differ by at most one window, the first ones are longer."""
        if self.shuffle is None:
            return range(self.num_samples)
        # Sample g is in lane g % lanes, so the first lanes get the samples that are left over.
        start = int(_lane_starts(self.num_samples, self.lanes, self.seed, epoch)[lane])
        return range(start, start + len(range(lane, self.num_samples, self.lanes)))

    def lane_span(self, epoch: int, lane: int) -> tuple[int, int]:
        """Return the first token of a lane in the stream, and the end of its last one."""
        windows = self.lane(epoch, lane)
        return windows.start * self.seq_len, windows.stop * self.seq_len + self.overlap

    def block(self, epoch: int, lane: int, number: int) -> tuple[int, np.ndarray]:
        """Return the first window of a block of a lane, and the shuffled order of its windows."""
        windows = self.lane(epoch, lane)
        # The last block of a lane has the windows that are left, and a permutation of that size.
        start = windows.start + number * self.block_windows
        size = min(self.block_windows, windows.stop - start)
        if size == 1:  # as all blocks if there are many lanes
            return start, _ONE
        return start, permutation(size, self.seed, epoch, "block", lane, number)

    def window(self, epoch: int, sample: int) -> int:
        """Return the window of the epoch's stream for a sample."""
        # Samples take the lanes in turn; in a lane, they take the slots of one block after the other.
        position, lane = divmod(sample, self.lanes)
        number, slot = divmod(position, self.block_windows)
        start, order = self.block(epoch, lane, number)
        return start + int(order[slot])

    def find_sample(self, epoch: int, window: int) -> int:
        """Return the sample of an epoch whose window it is: the inverse of ``window``."""
        lane, position = self.place_in_lane(epoch, window)
        number = position // self.block_windows
        start, order = self.block(epoch, lane, number)
        slot = int(np.flatnonzero(order == window - start)[0])
        return (number * self.block_windows + slot) * self.lanes + lane

    def place_in_lane(self, epoch: int, window: int) -> tuple[int, int]:
        """Return the lane that reads a window of the epoch's stream, and its place there."""
        if self.shuffle is None:
            return 0, window
        starts = _lane_starts(self.num_samples, self.lanes, self.seed, epoch)
        lane = int(np.argmax(np.where(starts <= window, starts, -1)))
        return lane, window - int(starts[lane])

    def stream_epoch_of(self, epoch: int) -> int:
        """Return the epoch whose stream is read; a pass over a part of an epoch has another number."""
        return epoch

    def stream(self, epoch: int) -> EpochStream:
        """Return the row groups of an epoch in its order."""
        groups = self._order(epoch)
        if not self.group_tokens.all():  # two row groups would begin at the same token
            kept = (groups[part] for part in bounded_slices(len(groups)))
            groups = np.concatenate([part[self.group_tokens[part] > 0] for part in kept])
        return EpochStream.of(groups, self.group_tokens)

    def _order(self, epoch: int) -> np.ndarray:
        """Return all row groups in the order of an epoch, (G,) int32."""
        if self.shuffle is None:
            return np.arange(len(self.group_tokens), dtype=np.int32)
        # The row groups of a run stay together, since one request fetches them.
        runs = self.runs()
        lengths = np.diff(runs, append=np.int32(len(self.group_tokens)))
        order = permutation(len(runs), self.seed, epoch, "runs")
        return _concatenate_ranges(runs[order], lengths[order])

    def fingerprint(self, table_digest: str) -> str:
        """Return 16 hex digits over everything that decides the order, for comparison with saved states."""
        shuffle = None if self.shuffle is None else asdict(self.shuffle)
        parts = [_FORMAT, table_digest, self.seq_len, self.seed, shuffle]
        if self.overlap == 0:  # a plan of documents could otherwise equal a plan of tokens
            parts.append("documents")
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@lru_cache(maxsize=16)
def _lane_starts(num_samples: int, lanes: int, seed: int, epoch: int) -> np.ndarray:
    """Return the first window of each lane, (lanes,) int64."""
    # The kth share of the stream belongs to lane order[k] and is as long as that lane.
    order = permutation(lanes, seed, epoch, "lanes")
    sizes = num_samples // lanes + (order < num_samples % lanes)
    starts = np.empty(lanes, np.int64)
    starts[order] = np.cumsum(sizes) - sizes
    return starts


def _concatenate_ranges(firsts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the concatenated members of ranges, (sum of lengths,) int32.

    >>> _concatenate_ranges(np.array([5, 0, 3], np.int32), np.array([1, 3, 2], np.int32))
    array([5, 0, 1, 2, 3, 4], dtype=int32)
    """
    ends = np.cumsum(lengths, dtype=np.int32)
    # A running total of differences needs no second array: 1 in a range, and from the last member of a range
    # to the first of the next. In the example, they are 5, -5, 1, 1, 1, 1.
    steps = np.ones(ends[-1], np.int32)
    steps[0] = firsts[0]
    steps[ends[:-1]] = firsts[1:] - firsts[:-1] - lengths[:-1] + 1
    return np.cumsum(steps, dtype=np.int32, out=steps)
