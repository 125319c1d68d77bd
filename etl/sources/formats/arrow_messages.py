"""Check the messages of Arrow IPC files and streams before Arrow reads them: what memory they take.

Arrow allocates what a message claims: the length of its body, and of each compressed buffer. The layouts
are defined by Arrow's ``Message.fbs``, ``Schema.fbs`` and ``File.fbs``, serialized by FlatBuffers.
"""

import struct
from dataclasses import dataclass

import pyarrow as pa

from etl.errors import SourceError
from etl.sources.formats.columnar import MAX_DECODED_BYTES
from etl.sources.split import Split

MAX_BATCH_BYTES = 2 * MAX_DECODED_BYTES
"""The maximum size of a record batch and all dictionaries in memory; a record batch is read whole."""

SCHEMA, DICTIONARY, RECORD_BATCH = 1, 2, 3
_CONTINUATION = b"\xff\xff\xff\xff"
_FILE_MAGIC = b"ARROW1"
_MAX_FIELDS = 100_000  # chosen here; a field takes about 1 KB
_MAX_METADATA_BYTES = 64 << 20  # chosen here


@dataclass(frozen=True, slots=True)
class Message:
    """A message without its body. ``memory`` is the size of a record batch or dictionary."""

    kind: int
    rows: int
    memory: int
    end: int  # where the next message of a stream starts


@dataclass(frozen=True, slots=True)
class Block:
    """Where a message is in a file."""

    offset: int
    metadata_bytes: int
    body_bytes: int


class _Table:
    """A table of a FlatBuffer. Raises ``struct.error`` where it is outside the buffer."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self._position = data, position
        self._vtable = position - _integer(data, "<i", position)
        self._size = _integer(data, "<H", self._vtable)

    def field(self, index: int) -> int:
        """Return the position of a field; 0 if it is absent."""
        entry = 4 + 2 * index
        offset = _integer(self.data, "<H", self._vtable + entry) if entry < self._size else 0
        return self._position + offset if offset else 0

    def integer(self, index: int, layout: str) -> int:
        """Return a number; 0 if it is absent."""
        position = self.field(index)
        return _integer(self.data, layout, position) if position else 0

    def table(self, index: int) -> "_Table | None":
        """Return a nested table."""
        position = self.field(index)
        return _Table(self.data, _follow(self.data, position)) if position else None

    def vector(self, index: int) -> tuple[int, int]:
        """Return the position of the first item of a vector, and the number of items."""
        position = self.field(index)
        if not position:
            return 0, 0
        start = _follow(self.data, position)
        return start + 4, _integer(self.data, "<I", start)


def check_schema(message: bytes, split: Split) -> None:
    """Raise SourceError if a serialized schema describes too many fields; ArrowInvalid if it is damaged."""
    try:
        start = 8 if message.startswith(_CONTINUATION) else 4
        header = _root(message[start:]).table(2)
        if header is not None:
            _check_fields(header, 1, split, [0])
    except (struct.error, RecursionError) as error:
        raise pa.ArrowInvalid(f"the Arrow schema is damaged ({error})") from error


def read_message(file: pa.NativeFile, offset: int, split: Split) -> Message | None:
    """Return the message at an offset, None at the end of a stream.

    Raises ArrowInvalid if it is damaged or claims more bytes than the file has, SourceError if it is a
    schema of too many fields.
    """
    try:
        prefix = bytes(file.read_at(8, offset))
        start = 8 if prefix.startswith(_CONTINUATION) else 4
        if len(prefix) < start:
            return None
        length = _integer(prefix, "<i", start - 4)
        if length == 0:
            return None
        metadata = _read_exactly(file, offset + start, length, split)
        return _parse_message(file, metadata, offset + start + length, split)
    except (struct.error, RecursionError) as error:
        raise pa.ArrowInvalid(f"the message at byte {offset} is damaged ({error})") from error


def read_blocks(file: pa.NativeFile, split: Split) -> tuple[list[Block], list[Block]]:
    """Return the dictionaries and the record batches of a file; raises as ``read_message`` does."""
    try:
        size = file.size()
        tail = bytes(file.read_at(10, max(0, size - 10)))
        if tail[4:] != _FILE_MAGIC:
            raise pa.ArrowInvalid("the file has no Arrow footer: it is truncated")
        length = _integer(tail, "<i", 0)
        footer = _root(_read_exactly(file, size - 10 - length, length, split))
        schema = footer.table(1)
        if schema is not None:
            _check_fields(schema, 1, split, [0])
        return _blocks(footer, 2), _blocks(footer, 3)
    except (struct.error, RecursionError) as error:
        raise pa.ArrowInvalid(f"the footer is damaged ({error})") from error


def _blocks(footer: _Table, index: int) -> list[Block]:
    start, count = footer.vector(index)
    content = footer.data[start : start + 24 * count]
    if len(content) < 24 * count:
        raise struct.error("the list of messages is truncated")
    return [Block(*fields) for fields in struct.iter_unpack("<qi4xq", content)]


def _parse_message(file: pa.NativeFile, metadata: bytes, body: int, split: Split) -> Message:
    message = _root(metadata)
    kind, body_bytes = message.integer(1, "<B"), message.integer(3, "<q")
    if body_bytes < 0 or body + body_bytes > file.size():
        raise pa.ArrowInvalid(f"a message of {body_bytes} bytes at byte {body} is outside the file")
    header = message.table(2)
    rows, memory = 0, body_bytes
    if kind == SCHEMA and header is not None:
        _check_fields(header, 1, split, [0])
    batch = header.table(1) if kind == DICTIONARY and header is not None else header
    if kind in (DICTIONARY, RECORD_BATCH) and batch is not None:
        rows = batch.integer(0, "<q")
        if rows < 0:
            raise pa.ArrowInvalid(f"a record batch claims {rows} rows")
        if batch.field(3):  # compressed
            start, count = batch.vector(2)
            buffers = struct.iter_unpack("<qq", metadata[start : start + 16 * count])
            memory += sum(_unpacked_bytes(file, body + at, size) for at, size in buffers)
    return Message(kind, rows, memory, body + body_bytes)


def _unpacked_bytes(file: pa.NativeFile, offset: int, size: int) -> int:
    """Return the size of a compressed buffer after decompression."""
    if size < 8 or offset < 0:
        return 0
    prefix = bytes(file.read_at(8, offset))
    return max(_integer(prefix, "<q", 0), 0)


def _check_fields(table: _Table, index: int, split: Split, seen: list[int]) -> None:
    """Count the fields in a schema or field; several may share the bytes of one."""
    start, count = table.vector(index)
    seen[0] += count
    if seen[0] > _MAX_FIELDS:
        raise SourceError(
            f"the schema has more than {_MAX_FIELDS} fields",
            where=split.uri,
            hint="write a file that has only the columns that the recipe needs",
        )
    for number in range(count):
        _check_fields(_Table(table.data, _follow(table.data, start + 4 * number)), 5, split, seen)


def _read_exactly(file: pa.NativeFile, offset: int, length: int, split: Split) -> bytes:
    if length < 0 or offset < 0 or offset + length > file.size():
        raise pa.ArrowInvalid(f"metadata of {length} bytes at byte {offset} is outside the file")
    if length > _MAX_METADATA_BYTES:
        raise SourceError(
            f"{length} bytes of metadata are more than the limit of {_MAX_METADATA_BYTES}",
            where=split.uri,
            hint="write the rows to several files",
        )
    return bytes(file.read_at(length, offset))


def _root(data: bytes) -> _Table:
    return _Table(data, _follow(data, 0))


def _follow(data: bytes, position: int) -> int:
    """Return the target of an offset."""
    return position + _integer(data, "<I", position)


def _integer(data: bytes, layout: str, position: int) -> int:
    if position < 0:
        raise struct.error("an offset is negative")
    return int(struct.unpack_from(layout, data, position)[0])
