"""Reader for JSON: one object per line, or an array of objects; uncompressed, gzip or zstd.

The standard library's parser reads each line: 150 to 230 MB/s per core on pages of 8 KB, including the
construction of tables. The parsers of Arrow and Polars alone are 1.6 to 2.2 times as fast, but neither
isolates a bad line or distinguishes an absent text from a null one, and Arrow's reads two objects on one line
as two rows.

Files of lines are cut, compressed ones between their members (see ``member_starts.py``): bgzip and pzstd
write many, gzip one. ``row`` counts lines, so the lines of the earlier pieces of a file are counted before a
piece is read. A file that starts with an array is one piece, whatever its extension, and ``row`` is the index
in the array (see ``json_array.py``).
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from etl import storage
from etl.errors import StorageError
from etl.sources.formats import byte_lines, json_array, member_starts
from etl.sources.formats.byte_lines import Damage
from etl.sources.parts import KnownPart, cut_bytes
from etl.sources.records import (
    TABLE_BYTES,
    RecordBuffer,
    find_excess,
    to_json,
    to_text,
)
from etl.sources.source_settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".jsonl", ".ndjson", ".json")
COMPRESSIBLE: bool = True

_BLANK = " \t\r"
_BLANKS = re.compile(r"[ \t\r\n]+")
_SHORT_LINE_CHARS = 16
_SAMPLED_CHARS = 1 << 10
_parse = json.JSONDecoder().decode


def cut(whole: Split, source: Source, known: Sequence[KnownPart]) -> list[Split]:
    """Cut a file at multiples of ``split_bytes``; a piece has the lines that start in it.

    A compressed file is cut between its gzip members or zstd frames, if it has several: a piece has the lines
    after the line feeds in it. The first row of a piece is unknown until the lines before it are counted.
    """
    if whole.compression is None:
        points: Sequence[int] = range(source.split_bytes, whole.size, source.split_bytes)
    else:
        points = member_starts.find_cuts(whole, source.split_bytes)
    if points and not known and _is_known_array(whole):
        points = ()
    return cut_bytes(whole, points, known)


def _is_known_array(whole: Split) -> bool:
    """Return whether a file is an array; an unreadable file is reported when it is read."""
    try:
        with storage.open_input(whole.uri) as file:
            return is_array(file, whole)
    except (StorageError, OSError):
        return False


def is_array(file: pa.NativeFile, split: Split) -> bool:
    """Return whether the file of a split is an array, not lines; the file is then at its start."""
    file.seek(0)
    chunk = next(byte_lines.read_chunks(file, replace(split, start=0, stop=None)), b"")
    file.seek(0)
    return isinstance(chunk, bytes) and json_array.starts_array(chunk)


def read(split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the split's records as tables of schema RAW.

    ``row`` is the line's index in the file, or the element's in an array.
    """
    buffer = RecordBuffer(split.uri, max_bytes=min(batch_bytes, TABLE_BYTES))
    with storage.open_input(split.uri) as file:
        chunks = byte_lines.read_chunks(file, split)
        first = next(chunks, b"")
        if split.start == 0 and isinstance(first, bytes) and json_array.may_start_array(first):
            if is_array(file, split):
                yield from _read_array(file, split, source, buffer)
                return
            chunks = byte_lines.read_chunks(file, split)
        else:
            chunks = chain([first], chunks)
        yield from _read_lines(chunks, split, source, buffer)


def _read_lines(
    chunks: Iterable[bytes | Damage], split: Split, source: Source, buffer: RecordBuffer
) -> Iterator[pa.Table]:
    row, is_start = split.known_first_row, split.start == 0
    blocks = byte_lines.read_blocks(
        chunks, max_line_bytes=source.max_record_bytes, is_start=is_start
    )
    for block in blocks:
        if isinstance(block, Damage):
            byte_lines.report_damage(block, row, split, source, buffer)
            row += 1
            continue
        lines, row = _number_lines(block, row)
        for number, line in lines:
            if line and line != "\r":
                _add_line(line, number, source, buffer)
                if buffer.is_full:
                    yield from buffer.flush()
    yield from buffer.flush()


def _read_array(
    file: pa.NativeFile, split: Split, source: Source, buffer: RecordBuffer
) -> Iterator[pa.Table]:
    """Yield the elements of an array; of a split that is a share of a file, about as many bytes."""
    chunks = byte_lines.read_chunks(file, replace(split, stop=None))
    elements = json_array.read_elements(chunks, max_bytes=source.max_record_bytes)
    size = 0
    for row, element in enumerate(elements):
        if isinstance(element, Damage):
            byte_lines.report_damage(element, row, split, source, buffer)
        elif element.problem is not None:
            buffer.reject(row, element.problem, element.error, raw=element.raw)
        else:
            _add_record(element.value, row, element.raw, source, buffer)
        size += len(element.raw)
        if split.stop is not None and size >= split.stop:
            break
        if buffer.is_full:
            yield from buffer.flush()
    yield from buffer.flush()


def count_records(split: Split) -> int:
    """Return the number of lines that start in the split's byte range, including blank ones."""
    with storage.open_input(split.uri) as file:
        return byte_lines.count_lines(file, split)


def _number_lines(block: str, row: int) -> tuple[Iterable[tuple[int, str]], int]:
    """Return the lines of a block with their numbers, and the number after them.

    Blank lines may be left out.
    """
    # Blank lines must not cost as much as records: where lines are short, they are looked for first.
    begin = block[:_SAMPLED_CHARS]
    if begin.count("\n") * _SHORT_LINE_CHARS > len(begin):
        after = row + block.count("\n") + (not block.endswith("\n"))
        return _filled_lines(block, row), after
    lines = block.split("\n")
    return enumerate(lines, row), row + len(lines) - (not lines[-1])


def _filled_lines(block: str, row: int) -> Iterator[tuple[int, str]]:
    """Yield the lines of a block that are not blank, with their numbers."""
    position = 0
    while position < len(block):
        if (blanks := _BLANKS.match(block, position)) is not None:
            if blanks.end() == len(block):
                return
            # A run of white space may end with the indentation of a line: count the line feeds in it,
            # and go on after the last one.
            start = max(block.rfind("\n", position, blanks.end()) + 1, position)
            row += block.count("\n", position, start)
            position = start
        stop = block.find("\n", position)
        stop = len(block) if stop < 0 else stop
        yield row, block[position:stop]
        row, position = row + 1, stop + 1


def _add_line(line: str, row: int, source: Source, buffer: RecordBuffer) -> None:
    """Parse a line and add it as a row; skip a blank line."""
    if (excess := find_excess(line, source.max_record_bytes)) is not None:
        return buffer.reject(row, "too_large", excess, raw=line)
    try:
        record = _parse(line)
    except (ValueError, RecursionError) as error:
        if line.strip(_BLANK):
            buffer.reject(row, "malformed", str(error), raw=line)
        return None
    return _add_record(record, row, line, source, buffer)


def _add_record(record: Any, row: int, raw: str, source: Source, buffer: RecordBuffer) -> None:
    """Add a JSON value as a row, or as a row with a reason."""
    if not isinstance(record, dict):
        error_text = f"expected a JSON object, found {type(record).__name__}"
        return buffer.reject(row, "malformed", error_text, raw=raw)
    columns = source.columns
    if columns.text not in record:
        error_text = f"the object has no key {columns.text!r}"
        return buffer.reject(row, "no_text", error_text, raw=raw)
    text = record[columns.text]
    if not (text is None or isinstance(text, str)):
        error_text = f"the value of {columns.text!r} is {type(text).__name__}, not a string"
        return buffer.reject(row, "malformed", error_text, raw=raw)
    try:
        record_id = None if columns.id is None else to_text(record.get(columns.id))
        url = None if columns.url is None else to_text(record.get(columns.url))
        media_type = None if columns.media_type is None else to_text(record.get(columns.media_type))
    except ValueError as error:
        return buffer.reject(row, "malformed", str(error), raw=raw)
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
