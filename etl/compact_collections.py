"""Compact collections for millions of units of work: lists on disk, sets and maps of 16-byte keys."""

import hashlib
import heapq
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Generic, TypeVar
from weakref import finalize

import numpy as np
import numpy.typing as npt

from etl.errors import WriteError, error_line

_BATCH_ITEMS = 1024  # pickled together
_SORTED_ITEMS = 1 << 16  # sorted together in memory
_MIN_MERGED = 1 << 14  # new keys of a KeyMap
_MAX_MEMORY_BYTES = 1 << 20  # of one list; a longer one is moved to disk

T = TypeVar("T")


class SpilledList(Generic[T]):
    """A list that is written once and can be iterated repeatedly; a long one is stored on disk.

    Raises WriteError if the disk is full.

    >>> squares = SpilledList(number * number for number in range(4))
    >>> len(squares), list(squares)
    (4, [0, 1, 4, 9])
    """

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._file = SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES)  # noqa: SIM115
        finalize(self, self._file.close)
        self._offsets = [0]  # bytes at which batches start, and the end of the last one
        self._count = 0
        remaining = iter(items)
        while batch := list(islice(remaining, _BATCH_ITEMS)):
            try:
                self._file.write(pickle.dumps(batch))
            except OSError as error:
                raise WriteError(
                    f"a temporary list of work cannot be written ({error_line(error)})",
                    hint="it needs about 200 bytes per split; set TMPDIR to a folder with enough space",
                ) from error
            self._offsets.append(self._file.tell())
            self._count += len(batch)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for start, stop in zip(self._offsets, self._offsets[1:], strict=False):
            self._file.seek(start)  # another iterator may have moved the file position
            yield from pickle.loads(self._file.read(stop - start))  # noqa: S301  # written above


def sort_spilled(items: Iterable[T], key: Callable[[T], int]) -> Iterator[T]:
    """Yield items in the order of a key, those with equal keys as they come: a merge sort on disk.

    >>> list(sort_spilled(["bb", "a", "cc", "d"], key=len))
    ['a', 'd', 'bb', 'cc']
    """
    remaining, runs = iter(items), list[SpilledList[T]]()
    while run := sorted(islice(remaining, _SORTED_ITEMS), key=key):
        runs.append(SpilledList(run))
    return heapq.merge(*runs, key=key)


class PackedKeySet:
    """A set of keys of 32 hexadecimal digits, held in 16 bytes each.

    >>> "0a" * 16 in PackedKeySet(["0a" * 16]), "0b" * 16 in PackedKeySet(["0a" * 16])
    (True, False)
    """

    def __init__(self, keys: Iterable[str]) -> None:
        data = bytearray()
        for key in keys:
            data += bytes.fromhex(key)
        self._keys = np.sort(np.frombuffer(data, "S16"))

    def __contains__(self, key: object) -> bool:
        return index_of(self._keys, bytes.fromhex(str(key))) is not None


class DigestSet:
    """A set of texts, of which it holds digests of 16 bytes each.

    >>> paths = DigestSet(["a.parquet"])
    >>> paths.update(["b.parquet"])
    >>> "a.parquet" in paths, "b.parquet" in paths, "c.parquet" in paths
    (True, True, False)
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._digests = np.zeros(0, "S16")
        self.update(texts)

    def update(self, texts: Iterable[str]) -> None:
        """Add texts."""
        data = bytearray()
        for text in texts:
            data += digest(text)
        self._digests = np.sort(np.concatenate([self._digests, np.frombuffer(data, "S16")]))

    def __contains__(self, text: object) -> bool:
        return index_of(self._digests, digest(str(text))) is not None


class KeyMap:
    """A mapping of 16-byte keys to 64-bit integers, held in 24 bytes each.

    It has two arrays sorted by key. New keys go to a dictionary first, which is merged into the arrays when
    it has grown to a sixteenth of their length, so that n keys cost n log n. A lookup takes a few
    microseconds.

    >>> map = KeyMap()
    >>> map.put(b"a" * 16, 7)
    >>> map.get(b"a" * 16), map.get(b"b" * 16)
    (7, None)
    """

    def __init__(self) -> None:
        self._keys: npt.NDArray[np.bytes_] = np.empty(0, "S16")
        self._values: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._recent: dict[bytes, int] = {}

    def get(self, key: bytes) -> int | None:
        """Return the value of a key, or None."""
        if key in self._recent:
            return self._recent[key]
        index = index_of(self._keys, key)
        return None if index is None else int(self._values[index])

    def put(self, key: bytes, value: int) -> None:
        """Add or replace the value of a key."""
        self._recent[key] = value
        if len(self._recent) >= max(_MIN_MERGED, len(self._keys) // 16):
            self._flush()

    def merge(self, keys: npt.NDArray[np.bytes_], values: npt.NDArray[np.int64]) -> None:
        """Add or replace the values of many keys."""
        self._flush()
        self._insert(keys, values)

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield the keys as hexadecimal digits, with their values."""
        self._flush()
        for key, value in zip(self._keys, self._values, strict=True):
            yield bytes(key).ljust(16, b"\0").hex(), int(value)

    def values(self) -> npt.NDArray[np.int64]:
        """Return the values of all keys, in no order."""
        self._flush()
        return self._values

    def starting_with(self, prefixes: Collection[bytes]) -> Iterator[tuple[str, int]]:
        """Yield the keys with one of some prefixes of equal length, in no order, as ``items`` does.

        >>> map = KeyMap()
        >>> map.put(b"a" * 16, 7)
        >>> map.put(b"b" * 16, 8)
        >>> list(map.starting_with([b"bbb"]))
        [('62626262626262626262626262626262', 8)]
        """
        prefixes = {*prefixes}
        length = len(next(iter(prefixes), b""))
        for prefix in prefixes:
            low = int(np.searchsorted(self._keys, prefix))
            # Keys are sorted, so the keys with a prefix are neighbours. A newer value of one is in the
            # dictionary.
            high = int(np.searchsorted(self._keys, prefix.ljust(16, b"\xff"), side="right"))
            for key, value in zip(self._keys[low:high], self._values[low:high], strict=True):
                full = bytes(key).ljust(16, b"\0")
                if full not in self._recent:
                    yield full.hex(), int(value)
        for key, value in self._recent.items():
            if key[:length] in prefixes:
                yield key.hex(), value

    def _flush(self) -> None:
        recent, self._recent = self._recent, {}
        count = len(recent)
        self._insert(np.array(list(recent), "S16"), np.fromiter(recent.values(), np.int64, count))

    def _insert(self, keys: npt.NDArray[np.bytes_], values: npt.NDArray[np.int64]) -> None:
        if not len(keys):
            return
        keys = np.concatenate([self._keys, keys])
        order = np.argsort(keys, kind="stable")  # stable: among equal keys, the newest is last
        keys = keys[order]
        is_last = np.append(keys[1:] != keys[:-1], True)
        self._keys = keys[is_last]
        self._values = np.concatenate([self._values, values])[order][is_last]


def digest(text: str) -> bytes:
    """Return a digest of 16 bytes."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def index_of(keys: npt.NDArray[np.bytes_], key: bytes) -> int | None:
    """Return the index of a key in sorted keys of equal length, or None if it is not among them."""
    index = int(np.searchsorted(keys, key))
    # numpy strips trailing zeros; keys stay distinct, since all have the same length.
    return index if index < len(keys) and keys[index] == key.rstrip(b"\0") else None
