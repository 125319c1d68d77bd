"""The names of the data files of ``tokens_shuffled``: which part of the random order a file holds."""

import re
from dataclasses import dataclass
from typing import Self

_NAME = re.compile(r"(?:.*/)?([0-9a-f]{8})([0-9a-f]{8})[0-9a-f]{16}-[^/]*")


@dataclass(frozen=True)
class Bucket:
    """One of ``count`` equal ranges of the keys by which rows are sorted.

    >>> Bucket(1, 4).file_key("c0ffee" * 8)
    '0000000100000004c0ffeec0ffeec0ff'
    """

    number: int
    count: int

    def file_key(self, part: str) -> str:
        """Return the key with which the name of the bucket's file begins; ``part`` is that of a shuffle."""
        return f"{self.number:08x}{self.count:08x}{part[:16]}"

    @classmethod
    def of_file(cls, path: str) -> Self | None:
        """Return the bucket of a data file; None for a file with another name.

        >>> Bucket.of_file("0000000100000004c0ffeec0ffeec0ff-0123456789ab-0.parquet")
        Bucket(number=1, count=4)
        """
        match = _NAME.fullmatch(path)
        return None if match is None else cls(*(int(digits, 16) for digits in match.groups()))
