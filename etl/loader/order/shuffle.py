"""The settings of the shuffle, and permutations that depend only on a seed."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Self

import numpy as np
from numpy.random import Philox

from etl.errors import LoaderError

_RUN_TOKENS = 1 << 23  # 9 to 16 MB of Parquet, a good request size
_RUNS_PER_LANE = 8  # at least, so that a small table is shuffled too
_PART = 1 << 20  # row groups processed at a time


@dataclass(frozen=True, kw_only=True)
class Shuffle:
    """The settings of the shuffle; ``epoch.py`` defines the terms.

    More lanes mix better but need more memory: each lane that a rank reads holds a block and a page of its
    file, 2 to 3 MB. With a multiple of the world size, ranks share no row group; with fewer lanes than ranks,
    each row group is read by several of them. Longer runs make larger
    requests to an object store but mix less over time. ``run_tokens=None`` means 8 M tokens, or fewer if a
    lane would otherwise have fewer than 8 runs.

    >>> Shuffle(lanes=64).resolved(512_000_000).run_tokens
    1000000
    """

    lanes: int = 16
    block_tokens: int = 1 << 18
    run_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and value < 1:
                raise LoaderError(f"{name} of Shuffle must be at least 1, not {value}")

    def resolved(self, num_tokens: int) -> Self:
        """Return the settings with the run length for a table of ``num_tokens`` tokens."""
        if self.run_tokens is not None:
            return self
        max_run_tokens = num_tokens // (self.lanes * _RUNS_PER_LANE)
        return replace(self, run_tokens=max(min(_RUN_TOKENS, max_run_tokens), 1))


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
