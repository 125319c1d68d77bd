"""The order of an epoch: which window of which row groups is sample g. Arithmetic only, no reading.

1. **Runs.** Row groups that follow each other in the table make a run of about ``run_tokens`` tokens,
   which an object store gives in one request.
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
``Generator`` (NEP 19). Cost of an order: 4 bytes and about 0.1 µs for each row group. What is longer than
that is made in parts, so that building it takes no more.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.random import Philox  # now: its 5 ms are no part of the first batch

from etl.errors import LoaderError

_FORMAT = 3  # raise it when the order changes: states of before are refused then
_RUN_TOKENS = 1 << 23  # 9 to 16 MB of Parquet: what a request should have (see remote.py)
_RUNS_PER_LANE = 8  # at least, so that a small table is shuffled, too
_MARK_EVERY = 256  # row groups between two running totals that are kept
_PART = 1 << 20  # row groups that are looked at together


@dataclass(frozen=True, kw_only=True)
class Shuffle:
    """How far apart the windows of a batch lie in the table; see the module for the terms.

    More lanes mix better and need more memory: each that a rank reads holds a block and a page of its
    file, 2 to 3 MB. A multiple of the number of ranks lets them share no row group. Longer runs make
    greater requests to an object store and mix less over time; None takes 8 M tokens, or as many as leave
    each lane 8 runs.

    >>> Shuffle(lanes=64).resolved(512_000_000).run_tokens
    1000000
    """

    lanes: int = 16
    block_tokens: int = 1 << 18
    run_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and value < 1:
                raise LoaderError(f"{name}={value} of Shuffle", hint="give 1 or more")

    def resolved(self, num_tokens: int) -> Self:
        """The settings with the length of a run in a table of so many tokens."""
        if self.run_tokens is not None:
            return self
        most = num_tokens // (self.lanes * _RUNS_PER_LANE)
        return replace(self, run_tokens=max(min(_RUN_TOKENS, most), 1))


@dataclass(frozen=True)
class Stream:
    """The row groups of an epoch in its order, those without tokens left out; G row groups.

    Of where they end, in tokens of the stream, every 256th is kept: 8 bytes each would be the most of it.
    """

    groups: np.ndarray  # (G,) int32, numbers of row groups in the table
    group_tokens: np.ndarray  # (row groups of the table,) int32
    marks: np.ndarray  # (ceil(G / 256) + 1,) int64: where each 256th begins, and the stream's end

    @staticmethod
    def of(groups: np.ndarray, group_tokens: np.ndarray) -> "Stream":
        """The stream of row groups in this order, (G,) int32."""
        totals = [np.zeros(1, np.int64)]
        for part in _parts(len(groups)):
            tokens = group_tokens[groups[part]]
            firsts = np.arange(0, len(tokens), _MARK_EVERY)
            totals.append(np.add.reduceat(tokens, firsts, dtype=np.int64))
        return Stream(groups, group_tokens, np.cumsum(np.concatenate(totals)))

    def start(self, place: int) -> int:
        """The first token of the row group at a place of the stream, or its end behind the last one."""
        mark = place // _MARK_EVERY
        before = self.groups[mark * _MARK_EVERY : place]
        return int(self.marks[mark]) + int(self.group_tokens[before].sum(dtype=np.int64))

    def place(self, token: int) -> int:
        """The place of the row group that holds a token of the stream."""
        mark = int(np.searchsorted(self.marks, token, side="right")) - 1
        first = mark * _MARK_EVERY
        ends = np.cumsum(
            self.group_tokens[self.groups[first : first + _MARK_EVERY]], dtype=np.int64
        )
        return first + int(np.searchsorted(ends, token - int(self.marks[mark]), side="right"))

    def places(self, start: int, stop: int) -> range:
        """The places of the row groups that hold the stream's tokens [start, stop)."""
        return range(self.place(start), self.place(stop - 1) + 1)


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
        # A run is shorter than this.
        longest = self._run_tokens + int(self.group_tokens.max())
        return most if most <= self.num_tokens // longest else min(most, len(self.runs()))

    @cached_property
    def block_windows(self) -> int:
        """Windows of a block."""
        return max((self.shuffle or Shuffle()).block_tokens // self.seq_len, 1)

    @property
    def _run_tokens(self) -> int:
        assert self.shuffle is not None
        found = self.shuffle.resolved(self.num_tokens).run_tokens
        assert found is not None
        return found

    def runs(self) -> np.ndarray:
        """The first row group of each run, (R,) int32, rising from 0; one run if nothing is shuffled."""
        if self.shuffle is None:
            return np.zeros(1, np.int32)
        found, before, last = [], 0, -1
        for part in _parts(len(self.group_tokens)):
            tokens = self.group_tokens[part]
            ends = before + np.cumsum(tokens, dtype=np.int64)
            bins = (ends - tokens) // self._run_tokens
            is_first = np.diff(bins, prepend=last) != 0
            found.append((np.flatnonzero(is_first) + part.start).astype(np.int32))
            before, last = int(ends[-1]), int(bins[-1])
        return np.concatenate(found)

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
            kept = (groups[part] for part in _parts(len(groups)))
            groups = np.concatenate([part[self.group_tokens[part] > 0] for part in kept])
        return Stream.of(groups, self.group_tokens)

    def _order(self, epoch: int) -> np.ndarray:
        """All row groups in the order of an epoch, (G,) int32."""
        if self.shuffle is None:
            return np.arange(len(self.group_tokens), dtype=np.int32)
        runs = self.runs()
        lengths = np.diff(runs, append=np.int32(len(self.group_tokens)))
        turn = permutation(len(runs), self.seed, epoch, "runs")
        return _members(runs[turn], lengths[turn])

    def fingerprint(self, table_digest: str) -> str:
        """What a saved state must agree with: 16 hex digits over all that decides the order."""
        shuffle = None if self.shuffle is None else asdict(self.shuffle.resolved(self.num_tokens))
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
    for part in _parts(size):
        raw[part] |= np.arange(part.start, part.stop, dtype=np.uint64)
    raw.sort()
    raw &= places
    return raw.view(np.int64)


def _members(firsts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers of ranges, one range behind the other: (sum of lengths,) int32.

    >>> _members(np.array([5, 0, 3], np.int32), np.array([1, 3, 2], np.int32))
    array([5, 0, 1, 2, 3, 4], dtype=int32)
    """
    ends = np.cumsum(lengths, dtype=np.int32)
    # By one, and from the last of a range to the first of the next.
    steps = np.ones(ends[-1], np.int32)
    steps[0] = firsts[0]
    steps[ends[:-1]] = firsts[1:] - firsts[:-1] - lengths[:-1] + 1
    return np.cumsum(steps, dtype=np.int32, out=steps)


def _parts(size: int) -> Iterator[slice]:
    """Slices of range(size) that are looked at one by one, to have no copy of all of it."""
    return (slice(start, min(start + _PART, size)) for start in range(0, size, _PART))


def uniform(size: int, *key: object) -> np.ndarray:
    """Numbers in [0, 1), (size,) float64, that depend on size and key alone."""
    return (_raw(size, key) >> np.uint64(11)) * 2.0**-53


def _raw(size: int, key: tuple[object, ...]) -> np.ndarray:
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).digest()
    raw: np.ndarray = Philox(key=int.from_bytes(digest, "little")).random_raw(size)
    return raw
