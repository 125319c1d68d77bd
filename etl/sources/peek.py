"""Read the first records of a file with all its columns, and guess the format of a file from its content."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from etl import storage
from etl.errors import SourceError, StorageError, error_line
from etl.parquet.parquet_file import open_parquet
from etl.sources.formats import byte_lines, json_array, jsonl
from etl.sources.formats.csv import default_delimiter
from etl.sources.split import Format, Split

_READ_BYTES: Final = 1 << 18  # of lines and compressed files; chosen here
_MAX_LINE_BYTES: Final = 32 << 20

_MAGIC: Final[Mapping[bytes, Format]] = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"WARC/": "warc",
    b"{": "jsonl",
    b"[": "jsonl",
}

Record = Mapping[str, Any]


def peek(file: Split, max_records: int, delimiter: str | None = None) -> list[Record]:
    """Return the first records of a file as Python values by column; none of a format without columns.

    ``delimiter`` is the one of CSV files. Records that cannot be read are left out. Raises SourceError if
    the file cannot be read or does not have its format.
    """
    try:
        with storage.open_input(file.uri) as opened:
            match file.format:
                case "parquet" | "delta":
                    records: Iterator[Record] = _from_parquet(opened, max_records, file)
                case "arrow":
                    records = _from_arrow(opened, max_records)
                case "jsonl":
                    records = _from_json(opened, file)
                case "csv":
                    records = _from_csv(opened, file, delimiter)
                case _:
                    records = iter(())
            return [*islice(records, max_records)]
    except (pa.ArrowException, OSError, StorageError, UnicodeDecodeError, csv.Error) as error:
        why = error.what if isinstance(error, StorageError) else error_line(error)
        what = f"cannot be read as {file.format} ({why})"
        hint = "rename the file if its extension is wrong, or leave it out"
        raise SourceError(what, where=file.uri, hint=hint) from error


def sniff_format(uri: str) -> Format | None:
    """Return the format of an uncompressed file by its first bytes; None if they are of no known format."""
    with storage.open_input(uri) as opened:
        start = bytes(opened.read(16)).lstrip(b"\xef\xbb\xbf \t\r\n")
    return next((name for magic, name in _MAGIC.items() if start.startswith(magic)), None)


def _from_parquet(opened: pa.NativeFile, max_records: int, file: Split) -> Iterator[Record]:
    content = open_parquet(opened, pre_buffer=False)
    for batch in content.iter_batches(batch_size=max_records, use_threads=False):
        for record in _records(batch):
            yield {**record, **dict(file.partition)}


def _from_arrow(opened: pa.NativeFile, max_records: int) -> Iterator[Record]:
    start = opened.read(6)
    opened.seek(0)
    if start == b"ARROW1":
        content = pa.ipc.open_file(opened)
        batches = (content.get_batch(index) for index in range(content.num_record_batches))
    else:
        batches = iter(pa.ipc.open_stream(opened))
    for batch in batches:
        yield from _records(batch.slice(0, max_records))


def _records(batch: pa.RecordBatch) -> Iterator[Record]:
    names, columns = batch.schema.names, map(_values, batch.columns)
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column; None for those that Python lacks, such as a date in the year 10000."""
    values = []
    for scalar in column:
        try:
            values.append(scalar.as_py())
        except (ValueError, OverflowError, KeyError):  # the last one: of an unknown time zone
            values.append(None)
    return values


def _from_json(opened: pa.NativeFile, file: Split) -> Iterator[Record]:
    if jsonl.is_array(opened, file):
        chunks = byte_lines.read_chunks(opened, file, _READ_BYTES)
        for element in json_array.read_elements(chunks, max_bytes=_MAX_LINE_BYTES):
            if isinstance(element, json_array.Element) and isinstance(element.value, dict):
                yield element.value
        return
    for block in _blocks(opened, file):
        for line in block.split("\n"):
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


def first_lines(file: Split, max_lines: int) -> list[str]:
    """Return the first lines of a file of text; none if it cannot be read."""
    try:
        with storage.open_input(file.uri) as opened:
            lines = (line for block in _blocks(opened, file) for line in block.split("\n"))
            return [*islice(lines, max_lines)]
    except (OSError, StorageError, UnicodeDecodeError):
        return []


def _from_csv(opened: pa.NativeFile, file: Split, delimiter: str | None) -> Iterator[Record]:
    csv.field_size_limit(_MAX_LINE_BYTES)
    delimiter = delimiter or default_delimiter(file.uri)
    lines = (line for block in _blocks(opened, file) for line in io.StringIO(block, newline="\n"))
    header: Sequence[str] | None = None
    for fields in csv.reader(lines, delimiter=delimiter):
        if header is None:
            header = fields
        elif len(fields) == len(header):
            yield dict(zip(header, fields, strict=True))


def _blocks(opened: pa.NativeFile, file: Split) -> Iterator[str]:
    chunks = byte_lines.read_chunks(opened, file, _READ_BYTES)
    for block in byte_lines.read_blocks(chunks, max_line_bytes=_MAX_LINE_BYTES, is_start=True):
        if isinstance(block, byte_lines.Damage):
            raise OSError(block.error)
        yield block
