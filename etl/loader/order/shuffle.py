"""The settings of the shuffle, and permutations that depend only on a seed."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.random import Philox

from etl.errors import LoaderError

LOCAL_LANES, REMOTE_LANES = 256, 1024
# At least, about 350 kB: reading one page twice costs less than a tenth.
_REMOTE_LANE_TOKENS = 1 << 18
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
    memory, about 0.1 MB; the ranks divide the lanes among themselves. With a multiple of the world size, no
    two ranks read the same bytes; with fewer lanes than ranks, several ranks read each byte. ``lanes=None``
    means 256 for local files, and 1,024 for an object store, where reading twice costs more (512 or fewer
    for less than 268 M tokens).

    In a lane, the windows of each block are shuffled. ``block_tokens=None`` means single windows, but 131,072
    tokens for 16 lanes, and whole lanes in a table of up to 4 M tokens. Longer runs make larger requests to
    an object store but mix less over time. ``run_tokens=None`` means 8 M tokens, or fewer if a lane would
    otherwise have fewer than 8 runs.

    >>> Shuffle().resolved(10**12, is_remote=False)
    ResolvedShuffle(lanes=256, block_tokens=1, run_tokens=8388608)
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
    """Return the default for an object store, a power of two: two lanes may request the page between them."""
    lanes = REMOTE_LANES
    while lanes > 1 and num_tokens < lanes * _REMOTE_LANE_TOKENS:
        lanes //= 2
    return lanes


def permutation(size: int, *key: object) -> np.ndarray:
    """Return a permutation of range(size), (size,) int64, that depends only on size and key.

    Sorts random numbers that carry their index in the lowest bits, which needs neither a stable sort nor an
    array of indices.
    """
    index_bits = np.uint64((1 << size.bit_length()) - 1)
    raw = _raw(size, key)
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
    return (_raw(size, key) >> np.uint64(11)) * 2.0**-53


def _raw(size: int, key: tuple[object, ...]) -> np.ndarray:
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).digest()
    raw: np.ndarray = Philox(key=int.from_bytes(digest, "little")).random_raw(size)
    return raw
