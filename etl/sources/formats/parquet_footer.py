"""Read a Parquet footer before Arrow does: how much memory it takes, and where the pages are.

Arrow allocates what a footer claims, and pyarrow aborts the process when asked for the size of a column chunk
that a damaged footer lacks.
"""

import base64
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from etl.errors import SourceError
from etl.parquet import thrift
from etl.sources.formats import arrow_messages
from etl.sources.formats.columnar import MAX_DECODED_BYTES
from etl.sources.split import Split

_MAGIC = b"PAR1"
_END_BYTES = 8  # the length of the footer, and the magic bytes
_TAIL_BYTES = 1 << 16  # read at once; chosen here
_REPEATED = 2
_INT64 = 6  # a type of Thrift
_BYTE_ARRAY = 6
_FIXED_BYTE_ARRAY = 7
# Measured with pyarrow 26: the size in memory per element of a footer.
_ELEMENT_BYTES, _GROUP_BYTES, _CHUNK_BYTES = 1300, 100, 800
_CHUNK_METADATA = (3,)  # a field of a column chunk
_MAX_DEPTH = 100  # chosen here
_BOMB_BYTES = 1 << 16  # a shorter Arrow schema cannot describe many fields


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf of the schema."""

    index: int  # among the leaves
    path: str  # with dots
    name: str  # of the top-level column
    is_list: bool  # whether it is inside a list or map
    value_bytes: int | None  # None: as long as the value


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """The pages of one column in one row group."""

    column: Column
    start: int
    length: int
    values: int


class GroupSize(NamedTuple):
    """The size of a row group, and where the footer describes it."""

    rows: int
    total_bytes: int  # of all columns, uncompressed
    column_bytes: int  # of one column, uncompressed; 0 if the file lacks it
    offset: int  # in the footer


@dataclass(frozen=True)
class Footer:
    """The columns of a file, and the chunks of each row group that was asked for, by index."""

    columns: list[Column]
    groups: dict[int, list[ColumnChunk]]
    sizes: list[GroupSize]


class FooterReader:
    """Reads a footer; raises SourceError if Arrow would need too much memory for it."""

    def __init__(self, file: pa.NativeFile, split: Split) -> None:
        self._split, self._size = split, file.size()
        self._data = _footer_bytes(file)
        self._memory = 0

    def read(
        self,
        groups: Container[int],
        *,
        measured: str = "",
        skip_to: tuple[int, int] | None = None,
    ) -> Footer:
        """Return the footer with the chunks of some row groups, and the sizes of all.

        ``measured`` is the column of ``GroupSize.column_bytes``. ``skip_to`` is the index and the offset of
        the first of the row groups, if the footer was read before: then only these groups are read, which
        takes a tenth of the time if they are few. Raises ArrowInvalid if the footer is damaged.
        """
        try:
            return self._read(thrift.ThriftReader(self._data), groups, measured, skip_to)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise pa.ArrowInvalid(f"the footer is damaged ({error})") from error

    def _read(
        self,
        reader: thrift.ThriftReader,
        groups: Container[int],
        measured: str,
        skip_to: tuple[int, int] | None,
    ) -> Footer:
        footer, number = Footer([], {}, []), 0
        while True:
            number, kind = reader.field(number)
            if kind == 0:
                return footer
            if number == 2 and kind == 9:
                footer.columns[:] = self._columns(reader)
            elif number == 4 and kind == 9:
                count, first = self._count(reader, _GROUP_BYTES), 0
                if skip_to is not None:
                    first, reader.position = skip_to
                for index in range(first, count):
                    if skip_to is not None and index not in groups:
                        return footer
                    footer.groups[index] = []
                    chunks = footer.groups[index] if index in groups else None
                    footer.sizes.append(self._group(reader, footer.columns, chunks, measured))
            elif number == 5 and kind == 9:
                for _ in range(self._count(reader, _GROUP_BYTES)):
                    self._check_arrow_schema(reader)
            else:
                reader.skip(kind)

    def _count(self, reader: thrift.ThriftReader, item_bytes: int) -> int:
        count, kind = reader.items()
        if kind != 12:
            raise ValueError(f"a list has items of type {kind}")
        # Counted before the items are read: a few bytes can claim a billion of them.
        self._memory += count * item_bytes
        if count > len(self._data):
            raise ValueError(f"a list claims {count} items")
        if self._memory > MAX_DECODED_BYTES:
            raise SourceError(
                f"the footer describes so many columns and row groups that it takes more than"
                f" {MAX_DECODED_BYTES >> 20} MB of memory",
                where=self._split.uri,
                hint="write the rows to several files, or in larger row groups",
            )
        return count

    def _columns(self, reader: thrift.ThriftReader) -> list[Column]:
        columns: list[Column] = []
        # The schema is a tree, written depth first: each group says how many children follow. A group is
        # closed when its last child was read.
        open_groups: list[list[Any]] = []  # remaining children, path, whether it is repeated
        for index in range(self._count(reader, _ELEMENT_BYTES)):
            name, fields = _schema_element(reader)
            path, is_list = name, False
            if open_groups:
                parent = open_groups[-1]
                parent[0] -= 1
                path = f"{parent[1]}.{name}" if parent[1] else name
                is_list = parent[2]
            is_list = is_list or (fields.get(3) == _REPEATED and index > 0)
            if len(open_groups) > _MAX_DEPTH:
                raise ValueError(f"the schema has more than {_MAX_DEPTH} levels")
            self._memory += len(path)
            if children := fields.get(5, 0):
                open_groups.append([children, path if index else "", is_list])
            elif index:
                kind = fields.get(1)
                fixed = fields.get(2, 0) if kind == _FIXED_BYTE_ARRAY else 16
                width = None if kind == _BYTE_ARRAY else fixed
                top = open_groups[1][1] if len(open_groups) > 1 else path
                columns.append(Column(len(columns), path, top, is_list, width))
            while open_groups and open_groups[-1][0] <= 0:
                open_groups.pop()
        return columns

    def _group(
        self,
        reader: thrift.ThriftReader,
        columns: list[Column],
        chunks: list[ColumnChunk] | None,
        measured: str,
    ) -> GroupSize:
        """Return the size of a row group, and add its chunks to a list."""
        size, offset = {2: 0, 3: 0}, reader.position
        number = measured_bytes = 0
        while True:
            number, kind = reader.field(number)
            if kind == 0:
                return GroupSize(size[3], size[2], measured_bytes, offset)
            if number in size and kind == _INT64:
                size[number] = reader.integer()
                continue
            if number != 1 or kind != 9:
                reader.skip(kind)
                continue
            for index in range(self._count(reader, _CHUNK_BYTES)):
                is_measured = columns[index].name == measured
                if chunks is None and not is_measured:
                    reader.skip(12)
                    continue
                metadata = reader.numbers(_CHUNK_METADATA)[_CHUNK_METADATA[0]]
                measured_bytes += metadata[6] if is_measured else 0
                if chunks is not None:
                    chunks.append(self._chunk(columns[index], metadata))

    def _chunk(self, column: Column, metadata: dict[int, Any]) -> ColumnChunk:
        start, dictionary = metadata[9], metadata.get(11, 0)
        # A dictionary page, if there is one, comes before the data pages.
        start = dictionary if 0 < dictionary < start else start
        length = metadata[7]
        if start < 0 or length < 0 or start + length > self._size:
            raise ValueError(f"column {column.path!r} is outside the file")
        return ColumnChunk(column, start, length, metadata[5])

    def _check_arrow_schema(self, reader: thrift.ThriftReader) -> None:
        """Count the fields of the Arrow schema that Arrow's own writer adds."""
        key, value, number = b"", b"", 0
        while True:
            number, kind = reader.field(number)
            if kind == 0:
                break
            if kind == 8:
                key, value = (reader.binary(), value) if number == 1 else (key, reader.binary())
            else:
                reader.skip(kind)
        if key == b"ARROW:schema" and len(value) > _BOMB_BYTES:
            arrow_messages.check_schema(base64.b64decode(value), self._split)


def _schema_element(reader: thrift.ThriftReader) -> tuple[str, dict[int, int]]:
    fields: dict[int, int] = {}
    name, number = b"", 0
    while True:
        number, kind = reader.field(number)
        if kind == 0:
            return name.decode("utf-8", "replace"), fields
        if number == 4 and kind == 8:
            name = reader.binary()
        elif kind == 5:
            fields[number] = reader.integer()
        else:
            reader.skip(kind)


def _footer_bytes(file: pa.NativeFile) -> bytes:
    """Return the serialized footer, as far as it can be found; a small one costs one request."""
    size = file.size()
    tail = bytes(file.read_at(_TAIL_BYTES, max(0, size - _TAIL_BYTES)))
    length = int.from_bytes(tail[-_END_BYTES:-4], "little")
    if tail[-4:] != _MAGIC or length + _END_BYTES + len(_MAGIC) > size:
        raise pa.ArrowInvalid(
            "Parquet magic bytes not found in footer: the file is not Parquet or is truncated"
        )
    if length + _END_BYTES > len(tail):
        return bytes(file.read_at(length, size - _END_BYTES - length))
    return tail[len(tail) - _END_BYTES - length : -_END_BYTES]
