"""What the log of ``documents`` says of input files: their names, and which parts of them were read.

A file is known by its real URI. Its **identity** is a number that hashes the address under which it was first
read, and its fingerprint of that time. It is part of the keys of its units of work, and stays the same when
the file is moved, copied or touched.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.delta.set_transactions import SetTransactions
from etl.sources.content_digests import SAMPLE_DIGITS, Content
from etl.sources.parts import KnownPart
from etl.sources.split import Split

# Of the 32 hexadecimal digits in the names of a part, and of a content.
_FILE_DIGITS, _START_DIGITS = 20, 12
_SIZE_DIGITS, _IDENTITY_DIGITS = 32 - SAMPLE_DIGITS - 12, 12  # the size is that modulo 1 TB


def digest(*parts: object) -> str:
    """Return a hash of some values in hexadecimal digits."""
    text = "\x00".join(str(part) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()


def int63(hexdigest: str) -> int:
    """Return the first 63 bits of a hash: Delta's versions are signed."""
    return int(hexdigest[:16], 16) >> 1


class ReadPart(NamedTuple):
    """A part of a file that was read, and the digest of its rows."""

    start: int
    stop: int | None
    rows: int | None


class InputLog:
    """The input files of a generation of ``documents``, as its log describes them."""

    def __init__(
        self, transactions: SetTransactions, generation: int, key: Callable[..., str]
    ) -> None:
        """``key`` returns the key of a unit of work."""
        self._transactions = transactions
        self._generation = generation
        self._key = key

    @classmethod
    def empty(cls) -> "InputLog":
        """Return the log of a table that does not exist yet."""
        return cls(SetTransactions(), 1, digest)

    def new_identity(self, split: Split) -> int:
        """Return the identity of a file that was never read."""
        return self.hash_identity(split.source, split.fingerprint)

    def hash_identity(self, address: str, fingerprint: str) -> int:
        """Return the identity of a file by its address, and its fingerprint when it was first read."""
        return int63(digest(self._generation, address, fingerprint))

    def identity_of(self, uri: str) -> int | None:
        """Return the identity of the file that is known by a name, if any; its rows may be dropped since."""
        return self._transactions.get(self._name_of(uri)) or None

    def is_current(self, split: Split) -> bool:
        """Return whether a file is listed as it was when it was last read or compared."""
        if split.format == "delta":  # immutable; the real URI has the table's id
            return True
        listed = self._transactions.get(self._stamp_of(split.real_uri))
        if listed is None:
            first = self.hash_identity(split.real_uri, split.fingerprint)
            return self.identity_of(split.real_uri) == first
        return listed == int63(digest(split.fingerprint))

    def parts(self, identities: Collection[int]) -> dict[int, list[KnownPart]]:
        """Return, in order, the known parts of files; files that were never read have none."""
        # A file that was cut has an entry for each part, under a prefix of the file and the start. A
        # file that was read as a whole has none, only the key of its single unit.
        names = {self._prefix_of(identity): identity for identity in identities}
        known: dict[int, list[KnownPart]] = {}
        prefixes = [bytes.fromhex(name) for name in names]
        for name, stop in self._transactions.starting_with("part", prefixes):
            identity = names[name[:_FILE_DIGITS]]
            start = int(name[_FILE_DIGITS:], 16)
            part = KnownPart(start, stop or None, self._is_done(identity, start, stop or None))
            known.setdefault(identity, []).append(part)
        for identity in identities:
            number = self._transactions.get(self._key(identity, 0, None))
            if identity not in known and number:
                known[identity] = [KnownPart(0, None, number > 0)]
        return {identity: sorted(parts, key=_start) for identity, parts in known.items()}

    def is_live(self, identity: int) -> bool:
        """Return whether the table holds a file, at least a part of it."""
        return any(part.is_done for part in self.parts([identity]).get(identity, ()))

    def rows_digest(self, identity: int, start: int, stop: int | None) -> int | None:
        """Return the digest of the rows of a part that was read."""
        return self._transactions.get(f"rows:{self._key(identity, start, stop)}")

    def digests(self, identity: int) -> Iterator[ReadPart]:
        """Yield the parts of a file that the table holds, with the digests of their rows."""
        for part in self.parts([identity]).get(identity, ()):
            if part.is_done:
                rows = self.rows_digest(identity, part.start, part.stop)
                yield ReadPart(part.start, part.stop, rows)

    def with_sizes(self, sizes: Collection[int]) -> dict[int, list[tuple[str, int]]]:
        """Return the known contents of files of some sizes: the samples with the identities of the files."""
        by_digits = {_size_digits(size): size for size in sizes}
        contents: dict[int, list[tuple[str, int]]] = {}
        prefixes = [bytes.fromhex(each) for each in by_digits]
        for name, identity in self._transactions.starting_with("content", prefixes):
            sample = name[_SIZE_DIGITS:-_IDENTITY_DIGITS]
            contents.setdefault(by_digits[name[:_SIZE_DIGITS]], []).append((sample, identity))
        return contents

    def samples(self, identity: int | None, size: int) -> set[str]:
        """Return the samples of a file that had a size."""
        known = self.with_sizes({size}).get(size, ())
        return {sample for sample, each in known if each == identity}

    def with_contents(
        self, contents: Collection[tuple[int, str]]
    ) -> dict[tuple[int, str], list[int]]:
        """Return the identities of files that the table holds, by size and sample."""
        by_digits = {_size_digits(size) + sample: (size, sample) for size, sample in contents}
        prefixes = [bytes.fromhex(each) for each in by_digits]
        found: dict[tuple[int, str], list[int]] = {}
        for name, identity in self._transactions.starting_with("content", prefixes):
            if self.is_live(identity):
                content = by_digits[name[:-_IDENTITY_DIGITS]]
                found.setdefault(content, []).append(identity)
        return found

    def num_identities(self) -> int:
        """Return the number of different files that names refer to, also of files whose rows were dropped."""
        return len(self._identities())

    def has_dropped(self) -> bool:
        """Return whether rows of a file were dropped that is still known, and is therefore read again."""
        parts = self.parts(self._identities().tolist()).values()
        return not all(part.is_done for known in parts for part in known)

    def _identities(self) -> NDArray[np.int64]:
        return np.setdiff1d(self._transactions.versions_of_kind("file"), [0])

    def describe_unit(self, split: Split, content: Content | None) -> dict[str, int]:
        """Return the transactions that describe the input of a unit of work."""
        described = {self._name_of(split.source): split.identity} | self.describe_name(split)
        if not split.is_whole:
            prefix = self._prefix_of(split.identity)
            described[f"part:{prefix}{split.start:0{_START_DIGITS}x}"] = split.stop or 0
        if content is not None:
            key = self._key(split.identity, split.start, split.stop)
            described[f"rows:{key}"] = content.rows
            which = f"{split.identity:016x}"[-_IDENTITY_DIGITS:]
            described[f"content:{_size_digits(split.size)}{content.sample}{which}"] = split.identity
        return described

    def describe_name(self, split: Split) -> dict[str, int]:
        """Return the transactions by which a file is known under its real URI, as it is listed now."""
        described = {self._name_of(split.real_uri): split.identity}
        stamp = self._stamp_of(split.real_uri)
        # The identity itself hashes the name and the fingerprint of the first reading, so most files
        # need no stamp: it is stored only once a file is listed otherwise.
        is_first = split.identity == self.hash_identity(split.real_uri, split.fingerprint)
        if split.format != "delta" and (not is_first or self._transactions.get(stamp) is not None):
            described[stamp] = int63(digest(split.fingerprint))
        return described

    def forget(self, address: str) -> dict[str, int]:
        """Return the transactions after which a file is no longer known by an address."""
        return {self._name_of(address): 0}

    def _is_done(self, identity: int, start: int, stop: int | None) -> bool:
        return (self._transactions.get(self._key(identity, start, stop)) or 0) > 0

    def _name_of(self, uri: str) -> str:
        return f"file:{digest(self._generation, uri)[:32]}"

    def _stamp_of(self, uri: str) -> str:
        return f"stamp:{digest(self._generation, uri)[:32]}"

    def _prefix_of(self, identity: int) -> str:
        return digest(self._generation, "parts", identity)[:_FILE_DIGITS]


def _size_digits(size: int) -> str:
    return f"{size:0{_SIZE_DIGITS}x}"[-_SIZE_DIGITS:]


def _start(part: KnownPart) -> int:
    return part.start
