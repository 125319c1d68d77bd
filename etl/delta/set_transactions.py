"""Application transactions of a Delta table, held in 24 bytes each.

A table may have millions of transactions. Names that are 128 bits in hexadecimal, alone or after a kind and a
colon, are held in a ``KeyMap`` for each kind; other names in a dictionary.
"""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl.compact_collections import KeyMap
from etl.delta.actions import string_scalar, to_numpy

_NUM_DIGITS = 32  # of the hexadecimal part of a name
_NAME_PATTERN = f"(?s)^(.*[^:]:)?[0-9a-f]{{{_NUM_DIGITS}}}$"


class SetTransactions:
    """A mapping of names to versions; a later version of a name replaces an earlier one.

    >>> transactions = SetTransactions()
    >>> transactions.update({"stream": 2, "part:" + "0a" * 16: 7})
    >>> [transactions.get(name) for name in ("part:" + "0a" * 16, "stream", "other")]
    [7, 2, None]
    """

    def __init__(self) -> None:
        self._kinds: dict[str, KeyMap] = {}
        self._others: dict[str, int] = {}

    def get(self, name: str) -> int | None:
        """Return the version of a name, or None."""
        kind, digest = _split(name)
        if digest is None:
            return self._others.get(name)
        return self._kinds[kind].get(digest) if kind in self._kinds else None

    def update(self, versions: Mapping[str, int]) -> None:
        """Add or replace the versions of some names."""
        for name, version in versions.items():
            kind, digest = _split(name)
            if digest is None:
                self._others[name] = version
            else:
                self._kinds.setdefault(kind, KeyMap()).put(digest, version)

    def extend(self, names: pa.Array, versions: pa.Array) -> None:
        """Add or replace many versions: arrays of string and int64 without nulls."""
        is_digest = pc.match_substring_regex(names, _NAME_PATTERN)
        rest = [array.filter(pc.invert(is_digest)).to_pylist() for array in (names, versions)]
        self.update(dict(zip(*rest, strict=True)))
        names, versions = names.filter(is_digest), versions.filter(is_digest)
        kinds = pc.utf8_rtrim(pc.utf8_slice_codeunits(names, 0, -_NUM_DIGITS), ":")
        digests = pc.utf8_slice_codeunits(names, -_NUM_DIGITS)
        for kind in pc.unique(kinds).to_pylist():
            chosen = pc.equal(kinds, string_scalar(kind))
            keys = _pack(digests.filter(chosen))
            values = to_numpy(versions.filter(chosen), np.int64)
            self._kinds.setdefault(kind, KeyMap()).merge(keys, values)

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield all names with their versions."""
        yield from self._others.items()
        for kind in self._kinds:
            prefix = f"{kind}:" if kind else ""
            yield from ((prefix + digits, version) for digits, version in self.of_kind(kind))

    def of_kind(self, kind: str) -> Iterator[tuple[str, int]]:
        """Yield the hexadecimal parts of the names of one kind, with their versions."""
        if kind in self._kinds:
            yield from self._kinds[kind].items()

    def versions_of_kind(self, kind: str) -> npt.NDArray[np.int64]:
        """Return the versions of all names of one kind, in no order."""
        return self._kinds[kind].values() if kind in self._kinds else np.empty(0, np.int64)

    def starting_with(self, kind: str, prefixes: Collection[bytes]) -> Iterator[tuple[str, int]]:
        """Yield the names of one kind that start with one of some prefixes of equal length."""
        if kind in self._kinds:
            yield from self._kinds[kind].starting_with(prefixes)


def _split(name: str) -> tuple[str, bytes | None]:
    """Return the kind of a name and its 128 bits, or None for a name of another form."""
    kind, colon, digits = name.rpartition(":")
    if len(digits) != _NUM_DIGITS or (colon and (not kind or kind.endswith(":"))):
        return "", None
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        return "", None
    return kind, digest if digest.hex() == digits else None


def _pack(digits: pa.Array) -> npt.NDArray[np.bytes_]:
    """Convert strings of 32 hexadecimal digits to 16 bytes each."""
    text = digits.buffers()[2].to_pybytes()[: _NUM_DIGITS * len(digits)].decode()
    return np.frombuffer(bytes.fromhex(text), "S16")
