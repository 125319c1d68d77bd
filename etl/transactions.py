"""Application transactions by name, held in 24 bytes each: a table of a million splits has millions.

Almost all names of the ledger's are 128 bits in hexadecimal, alone or after a kind and a colon. These stand
as sorted bytes beside their versions; what is new goes to a dictionary first, which is merged into them when
it has grown to a sixteenth of them, so that n names cost n log n. A look-up takes some microseconds.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl.compact import place_of

_DIGITS = 32  # of a name's hexadecimal part
_NAME = f"(?s)^(.*[^:]:)?[0-9a-f]{{{_DIGITS}}}$"
_LEAST_MERGED = 1 << 14


class Transactions:
    """Names -> versions; a later version of a name takes the place of an earlier one.

    >>> found = Transactions()
    >>> found.update({"generation": 2, "file:" + "0a" * 16: 7})
    >>> found.get("file:" + "0a" * 16), found.get("generation"), found.get("recipe")
    (7, 2, None)
    """

    def __init__(self) -> None:
        self._kinds: dict[str, _Digests] = {}
        self._others: dict[str, int] = {}

    def get(self, name: str) -> int | None:
        """The version of a name; None: there is none."""
        kind, digest = _parts(name)
        if digest is None:
            return self._others.get(name)
        return self._kinds[kind].get(digest) if kind in self._kinds else None

    def update(self, versions: Mapping[str, int]) -> None:
        """Take in some names with their versions."""
        for name, version in versions.items():
            kind, digest = _parts(name)
            if digest is None:
                self._others[name] = version
            else:
                self._kinds.setdefault(kind, _Digests()).put(digest, version)

    def extend(self, names: pa.Array, versions: pa.Array) -> None:
        """Take in many at once: string and int64, without nulls."""
        is_digest = pc.match_substring_regex(names, _NAME)
        rest = [array.filter(pc.invert(is_digest)).to_pylist() for array in (names, versions)]
        self.update(dict(zip(*rest, strict=True)))
        names, versions = names.filter(is_digest), versions.filter(is_digest)
        kinds = pc.utf8_rtrim(pc.utf8_slice_codeunits(names, 0, -_DIGITS), ":")
        digests = pc.utf8_slice_codeunits(names, -_DIGITS)
        for kind in pc.unique(kinds).to_pylist():
            chosen = pc.equal(kinds, kind)
            keys = _packed(digests.filter(chosen))
            self._kinds.setdefault(kind, _Digests()).merge(keys, versions.filter(chosen))

    def of_kind(self, kind: str) -> Iterator[tuple[str, int]]:
        """The hexadecimal parts of the names of one kind, and their versions."""
        if kind in self._kinds:
            yield from self._kinds[kind].items()


class _Digests:
    """128-bit keys -> versions: most in two sorted arrays, the newest in a dictionary."""

    def __init__(self) -> None:
        self._keys: npt.NDArray[np.bytes_] = np.empty(0, "S16")
        self._versions: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._recent: dict[bytes, int] = {}

    def get(self, key: bytes) -> int | None:
        if key in self._recent:
            return self._recent[key]
        place = place_of(self._keys, key)
        return None if place is None else int(self._versions[place])

    def put(self, key: bytes, version: int) -> None:
        self._recent[key] = version
        if len(self._recent) >= max(_LEAST_MERGED, len(self._keys) // 16):
            self._settle()

    def merge(self, keys: npt.NDArray[np.bytes_], versions: pa.Array) -> None:
        self._settle()
        self._join(keys, np.asarray(versions))

    def items(self) -> Iterator[tuple[str, int]]:
        self._settle()
        for key, version in zip(self._keys, self._versions, strict=True):
            yield bytes(key).ljust(16, b"\0").hex(), int(version)

    def _settle(self) -> None:
        recent, self._recent = self._recent, {}
        count = len(recent)
        self._join(np.array(list(recent), "S16"), np.fromiter(recent.values(), np.int64, count))

    def _join(self, keys: npt.NDArray[np.bytes_], versions: npt.NDArray[np.int64]) -> None:
        if not len(keys):
            return
        keys = np.concatenate([self._keys, keys])
        order = np.argsort(keys, kind="stable")  # of equal ones the newer is the later
        keys = keys[order]
        is_last = np.append(keys[1:] != keys[:-1], True)
        self._keys = keys[is_last]
        self._versions = np.concatenate([self._versions, versions])[order][is_last]


def _parts(name: str) -> tuple[str, bytes | None]:
    """The kind of a name and its 128 bits; these are None for a name of another form."""
    kind, colon, digits = name.rpartition(":")
    if len(digits) != _DIGITS or (colon and (not kind or kind.endswith(":"))):
        return "", None
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        return "", None
    return kind, digest if digest.hex() == digits else None


def _packed(digits: pa.Array) -> npt.NDArray[np.bytes_]:
    """Strings of 32 hexadecimal digits as 16 bytes each."""
    text = digits.buffers()[2].to_pybytes()[: _DIGITS * len(digits)].decode()
    return np.frombuffer(bytes.fromhex(text), "S16")
