"""Comma- or tab-separated values with a header, plain, gzip or zstd.

The slowest of the formats, read by the standard library's parser in strict mode: quoted fields may
hold line feeds, and a record that breaks the rules is a row with a reason.
"""

import csv
import io
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from etl import storage
from etl.errors import SourceError
from etl.sources import lines
from etl.sources.rows import Gathered, json_text
from etl.sources.source import Source, Split, needed

_MAX_FIELD_CHARS = (1 << 31) - 1  # csv's own limit of 128 KB is too low; _Feed limits the record


class _Bad(NamedTuple):
    reason: str
    error: str
    raw: str


class _TooLongError(Exception):
    """A record has grown over the limit, by a quote that is never closed, for example."""


class _Feed:
    """The lines of a stream for csv.reader, and those of the record that it is reading."""

    def __init__(self, blocks: Iterator[str], max_record_bytes: int) -> None:
        self._lines = (line for block in blocks for line in io.StringIO(block, newline="\n"))
        self._max = max_record_bytes
        self._record: list[str] = []
        self._size = 0

    def take(self) -> str:
        """What was read since the last call: the text of one record."""
        text = "".join(self._record)
        self._record, self._size = [], 0
        return text

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._record.append(line)
        self._size += len(line)
        if self._size > self._max:
            raise _TooLongError(f"a record of more than {self._max} bytes")
        return line


def read(split: Split, source: Source) -> Iterator[pa.Table]:
    """The file's records as tables of schema RAW; ``row`` counts them from 0 after the header.

    Raises SourceError if the header is malformed or lacks a column that the recipe names.
    """
    gathered, row = Gathered(split.uri), 0
    with storage.open_input(split.uri) as file:
        stream = lines.unpacked(file, split)
        try:
            for record in _records(stream, split, source):
                if isinstance(record, _Bad):
                    gathered.reject(row, record.reason, record.error, raw=record.raw)
                else:
                    _add(record, row, source, gathered)
                row += 1
                if gathered.full:
                    yield from gathered.take()
        except OSError as error:
            raise lines.broken_off(split, error, row) from error
    yield from gathered.take()


def _records(
    stream: pa.NativeFile, split: Split, source: Source
) -> Iterator[dict[str, str] | _Bad]:
    """Each record by the header's names, or what is wrong with it."""
    csv.field_size_limit(_MAX_FIELD_CHARS)
    blocks = lines.blocks(stream, max_line_bytes=source.max_record_bytes)
    feed = _Feed(blocks, source.max_record_bytes)
    reader = csv.reader(feed, strict=True, delimiter=_delimiter(split.uri))
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
            yield _Bad(reason, str(error), feed.take())
            continue
        raw = feed.take()
        if not fields:  # a blank line is no record
            continue
        if header is None:
            header = fields
            needed(source, header, split)
        elif len(fields) != len(header):
            error_text = f"{len(fields)} fields where the header has {len(header)}"
            yield _Bad("malformed", error_text, raw)
        else:
            yield dict(zip(header, fields, strict=True))


def _add(record: dict[str, str], row: int, source: Source, gathered: Gathered) -> None:
    columns = source.columns
    taken = (columns.text, columns.id, columns.url)
    kept = [n for n in record if n not in taken] if source.metadata == "all" else source.metadata
    gathered.add(
        row,
        record[columns.text],
        key=None if columns.id is None else record[columns.id],
        url=None if columns.url is None else record[columns.url],
        metadata=json_text({name: record[name] for name in kept}) if source.metadata else None,
    )


def _delimiter(uri: str) -> str:
    name = uri.lower().removesuffix(".gz").removesuffix(".zst")
    return "\t" if name.endswith(".tsv") else ","
