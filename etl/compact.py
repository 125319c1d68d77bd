"""What a driver remembers of a million units of work: lists on disk, and keys in 16 bytes each."""

import pickle
from collections.abc import Iterable, Iterator
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import Generic, TypeVar
from weakref import finalize

import numpy as np
import numpy.typing as npt

from etl.errors import WriteError, said

_BATCH = 1024  # items that are held at a time
_IN_MEMORY = 1 << 20  # bytes; what is more goes to disk

T = TypeVar("T")


class Spilled(Generic[T]):
    """A list that is written once and iterated any number of times; a long one lies on disk.

    Raises WriteError if there is no room for it.

    >>> found = Spilled(number * number for number in range(4))
    >>> len(found), list(found)
    (4, [0, 1, 4, 9])
    """

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        finalize(self, self._file.close)
        self._ends = [0]  # of the batches, in bytes
        self._count = 0
        remaining = iter(items)
        while batch := list(islice(remaining, _BATCH)):
            try:
                self._file.write(pickle.dumps(batch))
            except OSError as error:
                raise WriteError(
                    f"a list of what is to be done cannot be written ({said(error)})",
                    hint="it needs some 200 bytes for each split; TMPDIR names another folder",
                ) from error
            self._ends.append(self._file.tell())
            self._count += len(batch)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for start, stop in zip(self._ends, self._ends[1:], strict=False):
            self._file.seek(start)  # another iterator may have been here meanwhile
            yield from pickle.loads(self._file.read(stop - start))  # noqa: S301  # what was written here


class KeySet:
    """Keys of 32 hexadecimal digits, and whether one is among them.

    >>> "0a" * 16 in KeySet(["0a" * 16]), "0b" * 16 in KeySet(["0a" * 16])
    (True, False)
    """

    def __init__(self, keys: Iterable[str]) -> None:
        data = bytearray()
        for key in keys:
            data += bytes.fromhex(key)
        self._keys = np.sort(np.frombuffer(data, "S16"))

    def __contains__(self, key: object) -> bool:
        return place_of(self._keys, bytes.fromhex(str(key))) is not None


def place_of(keys: npt.NDArray[np.bytes_], key: bytes) -> int | None:
    """Where a key stands among sorted keys of one length; None: it does not."""
    place = int(np.searchsorted(keys, key))
    # numpy leaves out zeros at an end; all keys have one length, so that they stay distinct.
    return place if place < len(keys) and keys[place] == key.rstrip(b"\0") else None
