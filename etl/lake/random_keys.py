"""Random keys of rows: hashes of a seed and the address, which no file or partition changes."""

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etl.delta.actions import to_numpy

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def random_keys(rows: pa.Table, seed: int) -> npt.NDArray[np.uint64]:
    """Return the random key of each row, given its columns ``source`` and ``row``.

    Keys are outputs of SplitMix64 (Steele, Lea and Flood 2014): its seed is a hash of ``seed`` and the
    source, and its counter is the row.

    >>> rows = pa.table({"source": ["a", "a", "b"], "row": [0, 1, 0]})
    >>> random_keys(rows, 0)
    array([ 9332374042948633827,  3018045003183092718, 13645479630882064839],
          dtype=uint64)
    """
    sources = rows["source"].combine_chunks().dictionary_encode()
    digests = [
        hashlib.blake2b(f"{seed}\x00{source}".encode(), digest_size=8).digest()
        for source in sources.dictionary.to_pylist()
    ]
    states = np.frombuffer(b"".join(digests), "<u8")[to_numpy(sources.indices, np.int32)]
    rows_ = to_numpy(rows["row"].combine_chunks(), np.int64).astype(np.uint64)
    return mix(states + (rows_ + np.uint64(1)) * _GAMMA)


def mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return SplitMix64's finalizer of each value: one-to-one, and each bit depends on all bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def uniform(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return random keys as numbers from 0 to 1, exclusive: the first 53 bits, which float64 holds.

    >>> uniform(np.array([0, 1 << 63], np.uint64))
    array([0. , 0.5])
    """
    numbers: npt.NDArray[np.float64] = (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def seed_for(purpose: str, seed: int) -> int:
    """Return the seed of a purpose, so that choices for others do not depend on each other."""
    digest = hashlib.blake2b(f"{purpose}\x00{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest)
