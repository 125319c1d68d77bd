"""The order of an epoch: which window of which row groups is sample g. Arithmetic only, no reading.

1. **Runs.** Row groups that follow each other in the table make a run of about ``run_tokens`` tokens.
2. **Stream.** An epoch's stream is all runs, in an order shuffled by (seed, epoch). Window i is the
   stream's tokens [i * seq_len, i * seq_len + seq_len]: windows cross runs (at the end of a document),
   so that all that is left over in an epoch is the stream's tail.
3. **Lanes.** The stream's windows are cut into ``lanes`` equal shares, each read from front to back.
4. **Blocks.** In a lane, each ``block_tokens`` worth of windows is shuffled among itself.
5. **Samples** are dealt from the lanes in turn: sample g is the (g // lanes)-th of lane g % lanes.

All of it depends on (table version, seq_len, seed, epoch, shuffle settings) alone. Rank r of R takes the
samples g = r (mod R), hence reads the lanes = r (mod gcd(lanes, R)): with ``lanes`` a multiple of R no two
ranks read the same bytes. Memory is ``lanes / R`` blocks; what a batch mixes is ``lanes`` places of the
table, each shuffled over one block. A lane's border may fall into a run, which both lanes then open: an
epoch opens at most ``lanes`` row groups twice.

Permutations sort the raw output of Philox, which NumPy keeps the same for good, not so the methods of
``Generator`` (NEP 19). Cost of an order: 12 bytes and about 0.1 µs for each row group.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.random import Philox  # now: its 5 ms are no part of the first batch

from etl.errors import LoaderError

_FORMAT = 2  # raise it when the order changes: states of before are refused then


@dataclass(frozen=True, kw_only=True)
class Shuffle:
    """How far apart the windows of a batch lie in the table; see the module for the terms.

    More lanes mix better and need more memory: each that a rank reads holds a block and a page of its
    file, 2 to 3 MB. A multiple of the number of ranks lets them share no row group.

    >>> Shuffle(lanes=64).block_tokens
    262144
    """

    lanes: int = 16
    block_tokens: int = 1 << 18
    run_tokens: int = 1 << 20

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise LoaderError(f"{name}={value} of Shuffle", hint="give 1 or more")


@dataclass(frozen=True)
class Stream:
    """The row groups of an epoch in its order, those without tokens left out; G row groups."""

    groups: np.ndarray  # (G,) int32, numbers of row groups in the table
    ends: np.ndarray  # (G,) int64, where each ends, in tokens of the stream

    def start(self, place: int) -> int:
        """The first token of the row group at a place of the stream."""
        return int(self.ends[place - 1]) if place else 0

    def places(self, start: int, stop: int) -> range:
        """The places of the row groups that hold the stream's tokens [start, stop)."""
        first, last = np.searchsorted(self.ends, (start, stop - 1), side="right")
        return range(int(first), int(last) + 1)


@dataclass(frozen=True)
class Plan:
    """The samples of any epoch, as a pure function of what is given here.

    Raises LoaderError if the table has no window of this length.
    """

    group_tokens: np.ndarray  # (G,) int32, in the table's order
    seq_len: int
    seed: int
    shuffle: Shuffle | None  # None: the table's own order
    overlap: int = 1  # tokens that a window shares with the next: the label of its last one

    def __post_init__(self) -> None:
        if self.seq_len < 1:
            raise LoaderError(f"seq_len={self.seq_len}", hint="give 1 or more")
        if self.num_samples < 1:
            raise LoaderError(
                f"a window takes {self.seq_len + self.overlap} tokens, "
                f"the table has {self.num_tokens}",
                hint="give a smaller seq_len, or a table with more tokens",
            )

    @cached_property
    def num_tokens(self) -> int:
        """Tokens of the table."""
        return int(self.group_tokens.sum(dtype=np.int64))

    @property
    def num_samples(self) -> int:
        """Windows of an epoch, over all ranks; the last one needs a token behind it as its label."""
        return max(self.num_tokens - self.overlap, 0) // self.seq_len

    @property
    def dropped_tokens(self) -> int:
        """Tokens at the end of an epoch's stream that are in no window."""
        return self.num_tokens - self.num_samples * self.seq_len - self.overlap

    @cached_property
    def lanes(self) -> int:
        """Lanes in use: no more than there are runs or samples."""
        if self.shuffle is None:
            return 1
        most = min(self.shuffle.lanes, self.num_samples)
        longest = self.shuffle.run_tokens + int(
            self.group_tokens.max()
        )  # a run is shorter than this
        return most if most <= self.num_tokens // longest else min(most, len(self._runs()))

    @cached_property
    def block_windows(self) -> int:
        """Windows of a block."""
        return max((self.shuffle or Shuffle()).block_tokens // self.seq_len, 1)

    @property
    def runs(self) -> np.ndarray:
        """The run that each row group belongs to, (G,) int64, rising: numbered from 0 without gaps."""
        numbers = np.zeros(len(self.group_tokens), np.int64)
        if self.shuffle is not None:
            numbers[self._runs()[1:]] = 1
        return np.cumsum(numbers, out=numbers)

    def _runs(self) -> np.ndarray:
        """The first row group of each run, (R,) int32."""
        assert self.shuffle is not None
        bins = _running(self.group_tokens)
        bins -= self.group_tokens  # in place: these are 80 MB for ten million row groups
        bins //= self.shuffle.run_tokens
        is_first = np.ones(len(bins), np.bool_)
        np.not_equal(bins[1:], bins[:-1], out=is_first[1:])
        del bins
        return np.flatnonzero(is_first).astype(np.int32)

    def lane_start(self, lane: int) -> int:
        """The first window of a lane; lanes differ by one window at most, the longer ones first."""
        size, longer = divmod(self.num_samples, self.lanes)
        return lane * size + min(lane, longer)

    def block(self, epoch: int, lane: int, number: int) -> tuple[int, np.ndarray]:
        """A block of a lane: its first window, and the order in which its windows are dealt."""
        start = self.lane_start(lane) + number * self.block_windows
        size = min(self.block_windows, self.lane_start(lane + 1) - start)
        if self.shuffle is None:
            return start, np.arange(size)
        return start, permutation(size, self.seed, epoch, "block", lane, number)

    def window(self, epoch: int, sample: int) -> int:
        """The window of the epoch's stream that a sample is."""
        position, lane = divmod(sample, self.lanes)
        number, place = divmod(position, self.block_windows)
        start, order = self.block(epoch, lane, number)
        return start + int(order[place])

    def stream(self, epoch: int) -> Stream:
        """The order of the row groups in an epoch."""
        groups = self._order(epoch)
        if not self.group_tokens.all():
            groups = groups[self.group_tokens[groups] > 0]
        return Stream(groups, _running(self.group_tokens[groups]))

    def _order(self, epoch: int) -> np.ndarray:
        """All row groups in the order of an epoch, (G,) int32."""
        if self.shuffle is None:
            return np.arange(len(self.group_tokens), dtype=np.int32)
        runs = self._runs()
        turn = permutation(len(runs), self.seed, epoch, "runs").astype(np.int32)
        firsts = runs[turn]
        lengths = np.diff(np.append(runs, np.int32(len(self.group_tokens))))[turn]
        del runs, turn
        return _members(firsts, lengths)

    def fingerprint(self, table_digest: str) -> str:
        """What a saved state must agree with: 16 hex digits over all that decides the order."""
        shuffle = None if self.shuffle is None else asdict(self.shuffle)
        parts = [_FORMAT, table_digest, self.seq_len, self.seed, shuffle]
        if (
            self.overlap == 0
        ):  # of documents, whose table and settings may else look like one of tokens
            parts.append("documents")
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def permutation(size: int, *key: object) -> np.ndarray:
    """A permutation of range(size), (size,) int64, that depends on size and key alone.

    Random numbers are sorted with their places in the lowest bits, which needs neither a stable sort nor
    an array of places.
    """
    places = np.uint64((1 << size.bit_length()) - 1)
    raw = _raw(size, key)
    raw &= ~places
    raw |= np.arange(size, dtype=np.uint32)
    raw.sort()
    raw &= places
    return raw.view(np.int64)


def _members(firsts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers of ranges, one range behind the other: (sum of lengths,) int32.

    >>> _members(np.array([5, 0, 3], np.int32), np.array([1, 3, 2], np.int32))
    array([5, 0, 1, 2, 3, 4], dtype=int32)
    """
    ends = np.cumsum(lengths, dtype=np.int32)
    steps = np.ones(
        ends[-1], np.int32
    )  # by one, and from the last of a range to the first of the next
    steps[0] = firsts[0]
    steps[ends[:-1]] = firsts[1:] - firsts[:-1] - lengths[:-1] + 1
    return np.cumsum(steps, out=steps)


def _running(counts: np.ndarray) -> np.ndarray:
    """The running total, (n,) int64, without the copy that cumsum makes to widen its input."""
    total = counts.astype(np.int64)
    return np.cumsum(total, out=total)


def uniform(size: int, *key: object) -> np.ndarray:
    """Numbers in [0, 1), (size,) float64, that depend on size and key alone."""
    return (_raw(size, key) >> np.uint64(11)) * 2.0**-53


def _raw(size: int, key: tuple[object, ...]) -> np.ndarray:
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).digest()
    raw: np.ndarray = Philox(key=int.from_bytes(digest, "little")).random_raw(size)
    return raw
