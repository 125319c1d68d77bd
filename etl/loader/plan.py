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
``Generator`` (NEP 19). Cost of an order: 12 bytes and about 0.2 µs for each row group.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from etl.errors import LoaderError

_FORMAT = 1  # raise it when the order changes: states of before are refused then


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
        return min(self.shuffle.lanes, self.num_samples, int(self.runs[-1]) + 1)

    @cached_property
    def block_windows(self) -> int:
        """Windows of a block."""
        return max((self.shuffle or Shuffle()).block_tokens // self.seq_len, 1)

    @property
    def runs(self) -> np.ndarray:
        """The run that each row group belongs to, (G,) int64, rising: numbered from 0 without gaps."""
        if self.shuffle is None:
            return np.zeros(len(self.group_tokens), np.int64)
        ends = np.cumsum(self.group_tokens, dtype=np.int64)
        bins = (ends - self.group_tokens) // self.shuffle.run_tokens
        return np.cumsum(np.diff(bins, prepend=bins[:1]) != 0)

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
        if self.shuffle is None:
            groups = np.arange(len(self.group_tokens), dtype=np.int32)
        else:
            runs = self.runs
            turn = np.empty(int(runs[-1]) + 1, np.int64)  # of each run, when its turn comes
            turn[permutation(len(turn), self.seed, epoch, "runs")] = np.arange(len(turn))
            groups = np.argsort(turn[runs], kind="stable").astype(np.int32)
        groups = groups[self.group_tokens[groups] > 0]
        return Stream(groups, np.cumsum(self.group_tokens[groups], dtype=np.int64))

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
    """A permutation of range(size), (size,) int64, that depends on size and key alone."""
    return np.argsort(_raw(size, key), kind="stable")


def uniform(size: int, *key: object) -> np.ndarray:
    """Numbers in [0, 1), (size,) float64, that depend on size and key alone."""
    return (_raw(size, key) >> np.uint64(11)) * 2.0**-53


def _raw(size: int, key: tuple[object, ...]) -> np.ndarray:
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).digest()
    raw: np.ndarray = np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(size)
    return raw
