"""Reader for values separated by commas, tabs or ``delimiter``, with a header; uncompressed, gzip or zstd.

This is the slowest format: the standard library's parser reads it in strict mode. Quoted fields may contain
line feeds, and a malformed record becomes a row with a reason. Only the first line of such a record is lost:
where a quote is missing, the lines after it may be other records. A damaged compressed file is read up to the
damage, since the lines after it may be inside a quoted field.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

import pyarrow as pa

from etl import storage
from etl.errors import SourceError
from etl.sources.columns import columns_to_read
from etl.sources.formats import byte_lines, whole_files
from etl.sources.formats.byte_lines import Damage
from etl.sources.records import (
    LONG_RECORD_CHARS,
    MAX_PARSED_BYTES,
    TABLE_BYTES,
    RecordBuffer,
    json_chars,
    to_json,
)
from etl.sources.source_settings import Source
from etl.sources.split import Split, split_compression

EXTENSIONS: tuple[str, ...] = (".csv", ".tsv")
COMPRESSIBLE: bool = True

cut = whole_files.keep_whole  # a quoted field may contain line feeds
count_records = whole_files.refuse_to_count

_FIELD_BYTES = 88  # at most, of a short field: a str of CPython 3.11 to 3.13 and a pointer to it
_MAX_FIELD_CHARS = 2**31 - 1  # csv's own limit of 128 KB is too low; _RecordLines limits records


class _BadRecord(NamedTuple):
    reason: str
    error: str
    raw: str


class _TooLargeError(Exception):
    """A record exceeds a limit, for example because a quote is never closed."""


class _DamagedError(Exception):
    """The file is damaged after the lines that were read."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(f"the file is damaged inside the record ({damage.error})")
        self.damage = damage


class _RecordLines:
    """The lines of a stream for csv.reader, which can return to the second line of a record."""

    def __init__(
        self, blocks: Iterator[str | Damage], max_record_bytes: int, delimiter: str
    ) -> None:
        self._sources = [_split(blocks)]  # the last one is read first
        self._max, self._delimiter = max_record_bytes, delimiter
        self.begin_record()

    def begin_record(self) -> None:
        """Note that the next line starts a record."""
        self.first_line: str | None = None
        self._more_lines: io.StringIO | None = None
        self._size, self._fields = 0, 0

    def return_to_second_line(self) -> None:
        """Read the lines of the record again, except the first."""
        if self._more_lines is not None:
            self._more_lines.seek(0)
            self._sources.append(self._more_lines)

    def __iter__(self) -> "_RecordLines":
        return self

    def __next__(self) -> str:
        line = next(self._sources[-1], None)
        while line is None:
            if len(self._sources) == 1:
                raise StopIteration
            self._sources.pop()
            line = next(self._sources[-1], None)
        if isinstance(line, Damage):
            raise _DamagedError(line)
        self._size += len(line)
        if self.first_line is None:
            self.first_line = line
        else:
            if self._more_lines is None:
                self._more_lines = io.StringIO(newline="\n")
            self._more_lines.write(line)
        if self._size > self._max:
            raise _TooLargeError(f"the record is larger than {self._max} bytes")
        if self._size > LONG_RECORD_CHARS:
            self._fields += line.count(self._delimiter)
            if self._fields * _FIELD_BYTES > MAX_PARSED_BYTES:
                raise _TooLargeError("the record has too many fields")
        return line


def _split(blocks: Iterator[str | Damage]) -> Iterator[str | Damage]:
    """Yield the lines of blocks, and then the damage again and again; a long block is one line."""
    for block in blocks:
        if isinstance(block, Damage):
            yield from repeat(block)
        elif len(block) > LONG_RECORD_CHARS:
            yield block
        else:
            yield from io.StringIO(block, newline="\n")


def read(split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the file's records as tables of schema RAW; ``row`` counts from 0 after the header.

    Raises SourceError if the header is malformed or lacks a column that the recipe names.
    """
    buffer = RecordBuffer(split.uri, max_bytes=min(batch_bytes, TABLE_BYTES))
    with storage.open_input(split.uri) as file:
        chunks = byte_lines.read_chunks(file, split)
        for row, record in enumerate(_records(chunks, split, source)):
            if isinstance(record, Damage):
                byte_lines.report_damage(record, row, split, source, buffer)
            elif isinstance(record, _BadRecord):
                buffer.reject(row, record.reason, record.error, raw=record.raw)
            else:
                _add(record, row, source, buffer)
            if buffer.is_full:
                yield from buffer.flush()
    yield from buffer.flush()


def _records(
    chunks: Iterable[bytes | Damage], split: Split, source: Source
) -> Iterator[dict[str, str] | _BadRecord | Damage]:
    """Yield each record by column name, or the error in it; the damage of the file comes last."""
    csv.field_size_limit(_MAX_FIELD_CHARS)
    blocks = byte_lines.read_blocks(chunks, max_line_bytes=source.max_record_bytes, is_start=True)
    delimiter = source.delimiter or default_delimiter(split.uri)
    lines = _RecordLines(blocks, source.max_record_bytes, delimiter)
    reader = csv.reader(lines, strict=True, delimiter=delimiter)
    header: list[str] | None = None
    while True:
        lines.begin_record()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except (csv.Error, _TooLargeError, _DamagedError) as error:
            if isinstance(error, _DamagedError) and lines.first_line is None:
                yield error.damage
                return
            if header is None:
                raise SourceError(f"the header is malformed ({error})", where=split.uri) from error
            reason = "too_large" if isinstance(error, _TooLargeError) else "malformed"
            lines.return_to_second_line()
            yield _BadRecord(reason, str(error), lines.first_line or "")
            continue
        if not fields:  # a blank line
            continue
        if header is None:
            header = fields
            columns_to_read(source, header, split)
        elif len(fields) != len(header):
            error_text = f"the number of fields is {len(fields)}, but the header has {len(header)}"
            yield _BadRecord("malformed", error_text, lines.first_line or "")
        else:
            yield dict(zip(header, fields, strict=True))


def _add(record: dict[str, str], row: int, source: Source, buffer: RecordBuffer) -> None:
    columns = source.columns
    taken = (columns.text, columns.id, columns.url)
    kept = [n for n in record if n not in taken] if source.metadata == "all" else source.metadata
    if sum(len(record[name]) for name in kept) > LONG_RECORD_CHARS:
        chars = sum(json_chars(record[name]) for name in kept)
        if chars > source.max_record_bytes:
            error = f"the metadata has {chars} characters"
            return buffer.reject(row, "too_large", error, raw=record[columns.text])
    return buffer.add(
        row,
        record[columns.text],
        id=None if columns.id is None else record[columns.id],
        url=None if columns.url is None else record[columns.url],
        media_type=None if columns.media_type is None else record[columns.media_type],
        metadata=to_json({name: record[name] for name in kept}) if source.metadata else None,
    )


def default_delimiter(uri: str) -> str:
    """Return the delimiter of a file by its extension."""
    plain, _ = split_compression(uri)
    return "\t" if plain.endswith(".tsv") else ","
