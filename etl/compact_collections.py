"""Compact collections for millions of units of work: lists on disk, and sets of 16-byte keys."""

import pickle
from collections.abc import Iterable, Iterator
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Generic, TypeVar
from weakref import finalize

import numpy as np
import numpy.typing as npt

from etl.errors import WriteError, error_line

_BATCH_ITEMS = 1024  # pickled together
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


def index_of(keys: npt.NDArray[np.bytes_], key: bytes) -> int | None:
    """Return the index of a key in sorted keys of equal length, or None if it is not among them."""
    index = int(np.searchsorted(keys, key))
    # numpy strips trailing zeros; keys stay distinct, since all have the same length.
    return index if index < len(keys) and keys[index] == key.rstrip(b"\0") else None
