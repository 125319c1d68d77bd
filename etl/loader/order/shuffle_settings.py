"""The settings of the shuffle, and permutations that depend only on a seed."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.random import Philox

from etl.errors import LoaderError

LOCAL_LANES = 256
# R ranks read L lanes (L + R - gcd(L, R)) / L times, and each lane has a page more than its windows: so
# lanes are many and long, and their number has many divisors in common with usual world sizes. Each number
# divides those before it, so that a class of a mixture reads few lanes of each source.
_REMOTE_LANES = (*(15 << k for k in range(10, -1, -1)), 5, 1)
_FEW_LANES = 960  # up to so many, lanes may be short: 15 pages, about 350 kB
_FEW_LANE_TOKENS, _MANY_LANE_TOKENS = 250_000, 500_000
_RUN_TOKENS = 1 << 23  # 9 to 16 MB of Parquet, a good request size
_RUNS_PER_LANE = 8  # at least, so that a small table is shuffled too
_BUFFER_TOKENS = 1 << 21  # of the blocks of all lanes: 8 MB
_MANY_LANES = 32  # from here on, a batch mixes enough places without blocks
_SMALL_TABLE_TOKENS = 1 << 22  # up to this, lanes are blocks
_PART = 1 << 20  # row groups processed at a time


@dataclass(frozen=True, kw_only=True)
class Shuffle:
    """The settings of the shuffle; ``epoch.py`` defines the terms.

    A batch of N windows comes from min(N, lanes) places of the table. Each lane holds a page of its file in
    memory, about 0.1 MB, or in a temporary file and 8 kB of memory if the table is in an object store; the
    ranks divide the lanes among themselves. With a multiple of the world size, no two ranks read the same
    bytes; with fewer lanes than ranks, several ranks read each byte. ``lanes=None`` means 256 for local
    files. For an object store, where reading twice costs more, it means 960, fewer for less than 240 M
    tokens, and up to 15,360 from 8 billion tokens on: the larger the table, the more ranks may read it. At
    10 M tokens per rank or more, all ranks together then fetch about 1.1 times the table at most.

    In a lane, the windows of each block are shuffled. ``block_tokens=None`` means single windows, but 131,072
    tokens for 16 lanes, and whole lanes in a table of up to 4 M tokens. Longer runs make larger requests to
    an object store but mix less over time. ``run_tokens=None`` means 8 M tokens, or fewer if a lane would
    otherwise have fewer than 8 runs.

    >>> Shuffle().resolved(10**12, is_remote=False)
    ResolvedShuffle(lanes=256, block_tokens=1, run_tokens=8388608)
    >>> [Shuffle().resolved(n * 10**9, is_remote=True).lanes for n in (1, 2, 4, 8, 1000)]
    [1920, 3840, 7680, 15360, 15360]
    """

    lanes: int | None = None
    block_tokens: int | None = None
    run_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and value < 1:
                raise LoaderError(f"{name} of Shuffle must be at least 1, not {value}")

    def resolved(self, num_tokens: int, *, is_remote: bool = False) -> "ResolvedShuffle":
        """Return the settings for a table of ``num_tokens`` tokens."""
        lanes = self.lanes or (_remote_lanes(num_tokens) if is_remote else LOCAL_LANES)
        # With few lanes, blocks mix windows. A small table fits in memory: each lane is one block.
        block_tokens = _BUFFER_TOKENS // lanes if lanes < _MANY_LANES else 1
        if num_tokens <= _SMALL_TABLE_TOKENS:
            block_tokens = num_tokens
        run_tokens = min(_RUN_TOKENS, num_tokens // (lanes * _RUNS_PER_LANE))
        return ResolvedShuffle(
            lanes=lanes,
            block_tokens=self.block_tokens or max(block_tokens, 1),
            run_tokens=self.run_tokens or max(run_tokens, 1),
        )


@dataclass(frozen=True, kw_only=True)
class ResolvedShuffle:
    """The settings of the shuffle of a table."""

    lanes: int
    block_tokens: int
    run_tokens: int


def _remote_lanes(num_tokens: int) -> int:
    """Return the default for an object store."""
    few = min(num_tokens // _FEW_LANE_TOKENS, _FEW_LANES)
    return divisible_lanes(max(num_tokens // _MANY_LANE_TOKENS, few))


def divisible_lanes(most: int) -> int:
    """Return a number of lanes up to ``most`` that has many divisors among world sizes."""
    return next((lanes for lanes in _REMOTE_LANES if lanes <= most), 1)


def permutation(size: int, *key: object) -> np.ndarray:
    """Return a permutation of range(size), (size,) int64, that depends only on size and key.

    Sorts random numbers that carry their index in the lowest bits, which needs neither a stable sort nor an
    array of indices.
    """
    index_bits = np.uint64((1 << size.bit_length()) - 1)
    # Replace the lowest random bits by the index: after the sort, they are the permutation.
    raw = random_bits(size, *key)
    raw &= ~index_bits
    for part in bounded_slices(size):
        raw[part] |= np.arange(part.start, part.stop, dtype=np.uint64)
    raw.sort()
    raw &= index_bits
    return raw.view(np.int64)


def bounded_slices(size: int) -> Iterator[slice]:
    """Return slices that cover range(size), for processing in parts without a full copy."""
    return (slice(start, min(start + _PART, size)) for start in range(0, size, _PART))


def uniform(size: int, *key: object) -> np.ndarray:
    """Return numbers in [0, 1), (size,) float64, that depend only on size and key."""
    return (random_bits(size, *key) >> np.uint64(11)) * 2.0**-53


def random_bits(size: int, *key: object) -> np.ndarray:
    """Return random numbers, (size,) uint64, that depend only on key; the first ones not on size."""
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).digest()
    raw: np.ndarray = Philox(key=int.from_bytes(digest, "little")).random_raw(size)
    return raw
