"""Read structures in Thrift's compact protocol, in which Parquet writes its footers and page headers.

Only the numbers in a structure are returned. Raises IndexError where the bytes end too early, and ValueError
where they are not valid.
"""

from collections.abc import Container
from typing import Any

_INTEGERS = (4, 5, 6)  # i16, i32, i64
_DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = 7, 8, 9, 10, 11, 12, 13
_MAX_BITS = 70  # of an integer: ten bytes
_MAX_DEPTH = 64  # chosen here; the structures of Parquet have a depth of 10


def decode_integer(varint: bytes) -> int:
    """Return the signed integer that is stored in some bytes, of which it takes all."""
    value = 0
    for byte in reversed(varint):
        value = value << 7 | byte & 127
    return (value >> 1) ^ -(value & 1)


class ThriftReader:
    """A position in bytes at which structures are read."""

    __slots__ = ("_data", "_depth", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data, self.position, self._depth = data, position, 0

    def varint(self) -> int:
        """Return the unsigned integer at the position."""
        data, position, value, shift = self._data, self.position, 0, 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                return value
            shift += 7
            if shift >= _MAX_BITS:
                raise ValueError("an integer is too long")

    def integer(self) -> int:
        """Return the signed integer at the position."""
        value = self.varint()
        # Zigzag: 0, -1, 1, -2 are stored as 0, 1, 2, 3, so that small negative numbers are short, too.
        return (value >> 1) ^ -(value & 1)

    def field(self, previous: int) -> tuple[int, int]:
        """Return the id and type of the next field of a structure; type 0 after the last field."""
        byte = self._data[self.position]
        self.position += 1
        # One byte for most fields: the type, and the difference from the id before; 0 if the id follows.
        kind, delta = byte & 0x0F, byte >> 4
        if kind == 0:
            return 0, 0
        return (previous + delta if delta else self.integer()), kind

    def items(self) -> tuple[int, int]:
        """Return the number and type of the items of the list at the position."""
        byte = self._data[self.position]
        self.position += 1
        count = byte >> 4
        return (self.varint() if count == 0x0F else count), byte & 0x0F

    def binary(self) -> bytes:
        """Return the string at the position."""
        length = self.varint()
        start, self.position = self.position, self.position + length
        if self.position > len(self._data):
            raise IndexError
        return self._data[start : self.position]

    def numbers(self, nested: Container[int] = ()) -> dict[int, Any]:
        """Return the integers in the structure at the position by field id.

        The fields ``nested`` are structures, of which the integers are returned too.
        """
        data, position, number = self._data, self.position, 0
        values: dict[int, Any] = {}
        self._enter()
        while True:
            byte = data[position]
            position += 1
            kind = byte & 0x0F
            if kind == 0:
                break
            self.position = position
            number = number + (byte >> 4) if byte >> 4 else self.integer()
            if 4 <= kind <= 6:  # an integer, mostly of one byte
                byte = data[position := self.position]
                if byte < 0x80:
                    values[number] = (byte >> 1) ^ -(byte & 1)
                    position += 1
                    continue
                values[number] = self.integer()
            elif kind == _STRUCT and number in nested:
                values[number] = self.numbers()
            else:
                self.skip(kind)
            position = self.position
        self.position = position
        self._depth -= 1
        return values

    def skip(self, kind: int, *, in_list: bool = False) -> None:
        """Skip the value of a type at the position."""
        if kind in _INTEGERS:
            self.varint()
        elif kind == _BINARY:
            length = self.varint()
            self.position += length
        elif kind == _STRUCT:
            self._skip_struct()
        elif kind in (_LIST, _SET):
            count, item = self.items()
            self._skip_items(count, item)
        elif kind == _MAP:
            if count := self.varint():
                self.position += 1
                kinds = self._data[self.position - 1]
                for _ in range(count):
                    self._skip_items(1, kinds >> 4)
                    self._skip_items(1, kinds & 0x0F)
        elif kind in (1, 2):  # a field of type Boolean has no value besides its type
            self.position += in_list
        else:
            self.position += {3: 1, _DOUBLE: 8, _UUID: 16}[kind]
        if self.position > len(self._data):
            raise IndexError

    def _skip_items(self, count: int, kind: int) -> None:
        self._enter()
        if kind in _INTEGERS:
            data, position = self._data, self.position
            for _ in range(count):
                while data[position] >= 0x80:
                    position += 1
                position += 1
            self.position, count = position, 0
        for _ in range(count):
            self.skip(kind, in_list=True)
        self._depth -= 1

    def _skip_struct(self) -> None:
        """Skip a structure; most of a footer is skipped here, twice as fast as through ``skip``."""
        # Nested structures are counted here instead of skipped by recursion. Local variables instead of
        # attributes make most of the difference.
        data, position, before = self._data, self.position, self._depth
        self._enter()
        while self._depth > before:
            byte = data[position]
            position += 1
            kind = byte & 0x0F
            if kind == 0:
                self._depth -= 1
                continue
            if byte < 0x10:  # the field has a long id
                while data[position] >= 0x80:
                    position += 1
                position += 1
            if 4 <= kind <= 6:  # integers
                while data[position] >= 0x80:
                    position += 1
                position += 1
            elif kind == _BINARY and data[position] < 0x80:
                position += 1 + data[position]
            elif kind == _STRUCT:
                self._enter()
            elif kind > 2:
                self.position = position
                self.skip(kind)
                position = self.position
        self.position = position

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("the structure is nested too deeply")
