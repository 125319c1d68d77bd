"""Reader for JSON Lines: one JSON object per line, uncompressed, gzip or zstd.

The standard library's parser reads each line: 150 to 230 MB/s per core on pages of 8 KB, including the
construction of tables. The parsers of Arrow and Polars alone are 1.6 to 2.2 times as fast, but neither
isolates a bad line or distinguishes an absent text from a null one, and Arrow's reads two objects on one line
as two rows.

Files are cut, compressed ones between their members (see ``member_starts.py``): bgzip and pzstd write many,
gzip one. ``row`` counts lines, so those of the earlier pieces of a file are counted before a piece is read.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from etl import storage
from etl.sources.formats import byte_lines, member_starts
from etl.sources.parts import KnownPart, cut_bytes
from etl.sources.records import (
    LONG_RECORD_CHARS,
    MAX_PARSED_BYTES,
    TABLE_BYTES,
    RecordBuffer,
    count_outside_quotes,
    to_json,
    to_text,
)
from etl.sources.settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".jsonl", ".ndjson", ".json")
COMPRESSIBLE: bool = True

_BLANK = " \t\r"
_parse = json.JSONDecoder().decode


def cut(whole: Split, source: Source, known: Sequence[KnownPart]) -> list[Split]:
    """Cut a file at multiples of ``split_bytes``; a piece has the lines that start in it.

    A compressed file is cut between its gzip members or zstd frames, if it has several: a piece has the lines
    after the line feeds in it. The first row of a piece is unknown until the lines before it are counted.
    """
    if whole.compression is None:
        points: Iterable[int] = range(source.split_bytes, whole.size, source.split_bytes)
    else:
        points = member_starts.find_cuts(whole, source.split_bytes)
    return cut_bytes(whole, points, known)


def read(split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the split's records as tables of schema RAW; ``row`` is the line's index in the file."""
    first_row = split.known_first_row
    row, buffer = first_row, RecordBuffer(split.uri, max_bytes=min(batch_bytes, TABLE_BYTES))
    with storage.open_input(split.uri) as file:
        stream, start, stop = byte_lines.open_lines(file, split)
        blocks = byte_lines.read_blocks(
            stream,
            max_line_bytes=source.max_record_bytes,
            start=start,
            stop=stop,
        )
        try:
            for block in blocks:
                for line in _split(block):
                    _add_line(line, row, source, buffer)
                    row += 1
                    if buffer.is_full:
                        yield from buffer.flush()
        except OSError as error:
            raise byte_lines.make_stream_error(split, error, row - first_row) from error
    yield from buffer.flush()


def count_records(split: Split) -> int:
    """Return the number of lines that start in the split's byte range, including blank ones."""
    with storage.open_input(split.uri) as file:
        return byte_lines.count_lines(file, split)


def _split(block: str) -> list[str]:
    lines = block.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _add_line(line: str, row: int, source: Source, buffer: RecordBuffer) -> None:
    """Parse a line and add it as a row, or as a row with a reason; skip a blank line."""
    if (excess := _excess(line, source.max_record_bytes)) is not None:
        return buffer.reject(row, "too_large", excess, raw=line)
    try:
        record = _parse(line)
    except (ValueError, RecursionError) as error:
        if line.strip(_BLANK):
            buffer.reject(row, "malformed", str(error), raw=line)
        return None
    if not isinstance(record, dict):
        error_text = f"expected a JSON object, found {type(record).__name__}"
        return buffer.reject(row, "malformed", error_text, raw=line)
    columns = source.columns
    if columns.text not in record:
        error_text = f"the object has no key {columns.text!r}"
        return buffer.reject(row, "no_text", error_text, raw=line)
    text = record[columns.text]
    if not (text is None or isinstance(text, str)):
        error_text = f"the value of {columns.text!r} is {type(text).__name__}, not a string"
        return buffer.reject(row, "malformed", error_text, raw=line)
    record_id = None if columns.id is None else to_text(record.get(columns.id))
    url = None if columns.url is None else to_text(record.get(columns.url))
    media_type = None if columns.media_type is None else to_text(record.get(columns.media_type))
    metadata = _metadata(record, source)
    return buffer.add(row, text, id=record_id, url=url, metadata=metadata, media_type=media_type)


def _metadata(record: dict[str, Any], source: Source) -> str | None:
    if source.metadata == ():
        return None
    if source.metadata == "all":
        columns = source.columns
        taken = (columns.text, columns.id, columns.url)
        return to_json({key: value for key, value in record.items() if key not in taken})
    return to_json({key: record[key] for key in source.metadata if key in record})


def _excess(line: str, max_bytes: int) -> str | None:
    """Return which limit a line exceeds, or None."""
    # A character has at most four bytes, so only long lines need the exact length.
    if 4 * len(line) <= min(max_bytes, LONG_RECORD_CHARS):
        return None
    content = line.encode("utf-8", "surrogateescape")
    if len(content) > max_bytes:
        return f"the record is larger than {max_bytes} bytes"
    too_many = len(content) > LONG_RECORD_CHARS and _parsed_bytes(content) > MAX_PARSED_BYTES
    return "the record has too many values" if too_many else None


def _parsed_bytes(line: bytes) -> int:
    """Return an upper bound of the size of a line as Python objects, besides its characters.

    The sizes are those of CPython 3.11 to 3.13, including pointers and the unused part of containers.
    """
    content = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    values, objects = count_outside_quotes(content, b"[,:"), count_outside_quotes(content, b"{")
    return 112 * values + 264 * objects
