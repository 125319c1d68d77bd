"""Reader for comma- or tab-separated values with a header, uncompressed, gzip or zstd.

This is the slowest format: the standard library's parser reads it in strict mode. Quoted fields may contain
line feeds, and a malformed record becomes a row with a reason.
"""

import csv
import io
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from etl import storage
from etl.errors import SourceError
from etl.sources.columns import columns_to_read
from etl.sources.formats import byte_lines, whole_files
from etl.sources.records import TABLE_BYTES, RecordBuffer, to_json
from etl.sources.settings import Source
from etl.sources.split import Split, split_compression

EXTENSIONS: tuple[str, ...] = (".csv", ".tsv")
COMPRESSIBLE: bool = True

cut = whole_files.keep_whole  # a quoted field may contain line feeds
count_records = whole_files.refuse_to_count

_MAX_FIELD_CHARS = 2**31 - 1  # csv's own limit of 128 KB is too low; _RecordLines limits records


class _BadRecord(NamedTuple):
    reason: str
    error: str
    raw: str


class _TooLongError(Exception):
    """A record exceeds the size limit, for example because a quote is never closed."""


class _RecordLines:
    """The lines of a stream for csv.reader; keeps those of the current record."""

    def __init__(self, blocks: Iterator[str], max_record_bytes: int) -> None:
        self._lines = (line for block in blocks for line in io.StringIO(block, newline="\n"))
        self._max = max_record_bytes
        self._record: list[str] = []
        self._size = 0

    def take_record(self) -> str:
        """Return the lines read since the last call: the text of one record."""
        text = "".join(self._record)
        self._record, self._size = [], 0
        return text

    def __iter__(self) -> "_RecordLines":
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._record.append(line)
        self._size += len(line)
        if self._size > self._max:
            raise _TooLongError(f"the record is larger than {self._max} bytes")
        return line


def read(split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the file's records as tables of schema RAW; ``row`` counts from 0 after the header.

    Raises SourceError if the header is malformed or lacks a column that the recipe names.
    """
    row, buffer = 0, RecordBuffer(split.uri, max_bytes=min(batch_bytes, TABLE_BYTES))
    with storage.open_input(split.uri) as file:
        stream = byte_lines.decompress(file, split)
        try:
            for record in _records(stream, split, source):
                if isinstance(record, _BadRecord):
                    buffer.reject(row, record.reason, record.error, raw=record.raw)
                else:
                    _add(record, row, source, buffer)
                row += 1
                if buffer.is_full:
                    yield from buffer.flush()
        except OSError as error:
            raise byte_lines.make_stream_error(split, error, row) from error
    yield from buffer.flush()


def _records(
    stream: pa.NativeFile, split: Split, source: Source
) -> Iterator[dict[str, str] | _BadRecord]:
    """Yield each record by column name, or the error in it."""
    csv.field_size_limit(_MAX_FIELD_CHARS)
    blocks = byte_lines.read_blocks(stream, max_line_bytes=source.max_record_bytes)
    record_lines = _RecordLines(blocks, source.max_record_bytes)
    reader = csv.reader(record_lines, strict=True, delimiter=_delimiter(split.uri))
    header: list[str] | None = None
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except (csv.Error, _TooLongError) as error:
            if header is None:
                raise SourceError(f"the header is malformed ({error})", where=split.uri) from error
            reason = "malformed" if isinstance(error, csv.Error) else "too_large"
            yield _BadRecord(reason, str(error), record_lines.take_record())
            continue
        raw = record_lines.take_record()
        if not fields:  # a blank line
            continue
        if header is None:
            header = fields
            columns_to_read(source, header, split)
        elif len(fields) != len(header):
            error_text = f"the number of fields is {len(fields)}, but the header has {len(header)}"
            yield _BadRecord("malformed", error_text, raw)
        else:
            yield dict(zip(header, fields, strict=True))


def _add(record: dict[str, str], row: int, source: Source, buffer: RecordBuffer) -> None:
    columns = source.columns
    taken = (columns.text, columns.id, columns.url)
    kept = [n for n in record if n not in taken] if source.metadata == "all" else source.metadata
    buffer.add(
        row,
        record[columns.text],
        id=None if columns.id is None else record[columns.id],
        url=None if columns.url is None else record[columns.url],
        metadata=to_json({name: record[name] for name in kept}) if source.metadata else None,
    )


def _delimiter(uri: str) -> str:
    plain, _ = split_compression(uri)
    return "\t" if plain.endswith(".tsv") else ","
