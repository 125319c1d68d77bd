"""Reader for WARC and WET files: one document per response, resource or conversion record.

``row`` is the byte of the file at which the record or its compressed member starts, as in a CDX index. Of
several records in one member, the second has the next number, and so on. Records of other types (warcinfo,
request, metadata, revisit) are not documents, so a WAT file has none. ``id`` is
WARC-Record-ID, ``url`` WARC-Target-URI, and ``source.columns`` is ignored. ``text`` is the page as sent,
usually HTML.
``source.metadata`` may name any of these; ``all`` keeps those that are known:

============ ===================================================================================
record       response, resource or conversion
date         WARC-Date
content_type as detected by the crawler, else as declared
status       HTTP status
charset      in which the text was decoded, by Python's name
languages    WARC-Identified-Content-Language of a WET file, such as ``eng,deu``
undecoded    number of U+FFFD characters, if there are any
truncated    WARC-Truncated: why the crawler stopped early, if it did
digest       WARC-Payload-Digest
damage       why the codings of the body (chunks, gzip, ...) could be undone in part only, if so
============ ===================================================================================

Documents without a text are rows with a reason: ``source.http_status`` (other than 2xx; Common Crawl
separates these too, under ``crawldiagnostics``), ``source.not_text``, ``source.undecodable`` (more than 1 %
of the characters), ``source.malformed`` (no HTTP header), ``source.too_large``, ``source.segmented`` (a
segment of a record that its crawler cut, also each ``continuation``), ``source.damaged`` (a stretch of the
file that cannot be read; reading continues after it, whatever ``source.damaged`` says).

A compressed file is cut between members that start with a record (see ``member_starts.py``), an uncompressed
one is not cut. Records that ``source.index`` lists are cut by their lengths. Memory holds one record, of at
most ``2 * max_text_bytes``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa

from etl import storage
from etl.errors import SourceError
from etl.sources import record_ranges
from etl.sources.formats import member_starts, whole_files
from etl.sources.formats.warc_payload import extract_payload
from etl.sources.formats.warc_records import Record, read_records
from etl.sources.layers.members import Members, detect_layer
from etl.sources.parts import KnownPart, cut_bytes
from etl.sources.records import RecordBuffer, to_json
from etl.sources.source_settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".warc", ".wet", ".wat")
COMPRESSIBLE: bool = True

count_records = whole_files.refuse_to_count  # row numbers do not depend on the records before

DOCUMENT_TYPES = ("response", "resource", "conversion")
"""The types of records that are documents."""

_METADATA_FIELDS = {
    "record": "warc-type",
    "date": "warc-date",
    "languages": "warc-identified-content-language",
    "truncated": "warc-truncated",
    "digest": "warc-payload-digest",
}


def cut(whole: Split, source: Source, known: Sequence[KnownPart]) -> list[Split]:
    """Cut a compressed file at multiples of ``split_bytes``; a piece has the members that start in it.

    Records that an index lists are cut by their lengths.
    """
    if whole.records is not None:
        starts = record_ranges.find_cuts(whole, source.split_bytes)
    else:
        starts = member_starts.find_cuts(whole, source.split_bytes, content=b"WARC/")
    pieces = cut_bytes(whole, starts, known)
    return [replace(piece, first_row=piece.start) for piece in pieces]


def read(split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the documents of a piece as tables of schema RAW; raise SourceError if a file has no record."""
    row, is_warc, buffer = -1, False, RecordBuffer(split.uri, max_bytes=batch_bytes)
    is_indexed = split.records is not None
    records = _read_listed(split, source) if is_indexed else _read_all(split, source)
    for record in records:
        is_warc = is_warc or is_indexed or bool(record.fields)
        kind = record.fields.get("warc-type", "").lower()
        if (
            record.problem != "damaged"
            and record.fields
            and kind not in (*DOCUMENT_TYPES, "continuation")
        ):
            continue
        row = max(row + 1, record.offset)
        _check_row(row, split)
        _add(record, row, source, buffer)
        if is_warc and buffer.is_full:
            yield from buffer.flush()
    if row >= 0 and not is_warc and split.is_whole:
        raise SourceError(
            "the file is not a WARC file: it has no record",
            where=split.uri,
            hint="unpack WACZ files and convert ARC files first (`warcio recompress`), or leave it out",
        )
    yield from buffer.flush()


def _read_all(split: Split, source: Source) -> Iterator[Record]:
    """Yield the records of a piece of a file."""
    with storage.open_input(split.uri) as file:
        content = Members(
            file,
            detect_layer(file, split.uri),
            uri=split.uri,
            start=split.start,
            stop=split.stop,
            content=b"WARC/",
        )
        yield from read_records(content, max_bytes=source.max_record_bytes)


def _read_listed(split: Split, source: Source) -> Iterator[Record]:
    """Yield the records that an index lists; a record that is not where the index says is damaged."""
    max_bytes = source.max_record_bytes
    with storage.open_input(split.uri) if split.compression == "zstd" else nullcontext() as whole:
        # Frames may need the dictionary at the start of the file.
        of_file = None if whole is None else detect_layer(whole, split.uri)
    for offset, length, packed in record_ranges.read_ranges(split, max_bytes=max_bytes):
        if packed is None:
            error = f"the record has {length} bytes by the index, but the limit is {max_bytes}"
            yield Record(problem="too_large", error=error, offset=offset)
            continue
        file = pa.BufferReader(packed)
        layer = of_file or detect_layer(file, split.uri)
        content = Members(file, layer, uri=split.uri, content=b"WARC/")
        found = False
        for record in read_records(content, max_bytes=max_bytes):
            if found and record.offset:  # the index lists it separately if it is to be read
                break
            found = True
            error = f"of the {length} bytes that the index lists: {record.error}"
            yield record._replace(offset=offset + record.offset, error=error)
        if not found:
            error = f"the index lists {length} bytes at byte {offset}, where no record is"
            yield Record(problem="damaged", error=error, offset=offset)


def _check_row(row: int, split: Split) -> None:
    """Raise SourceError if a row number may be that of a record in the next piece of the file."""
    if split.stop is not None and row >= split.stop:
        raise SourceError(
            f"the members before byte {split.stop} have more records than bytes",
            where=split.uri,
            hint="leave the file out",
        )


def _add(record: Record, row: int, source: Source, buffer: RecordBuffer) -> None:
    record_id, url = _id_and_url(record)
    if record.problem is not None:
        reason, error = record.problem, record.error
        return buffer.reject(row, reason, error, raw=record.header, id=record_id, url=url)
    if (segment := record.fields.get("warc-segment-number")) is not None:
        error = f"the record is segment {segment} of a longer one, and segments are not joined"
        return buffer.reject(row, "segmented", error, raw=record.header, id=record_id, url=url)
    page = extract_payload(record, max_bytes=source.max_record_bytes)
    if page.problem is not None:
        return buffer.reject(
            row, page.problem, page.error, raw=record.header, id=record_id, url=url
        )
    metadata, media_type = _metadata(record, page.facts, source), page.facts.get("content_type")
    return buffer.add(
        row, page.text, id=record_id, url=url, metadata=metadata, media_type=media_type or None
    )


def _id_and_url(record: Record) -> tuple[str | None, str | None]:
    """Return the record's id and URL; some writers put the URL in angle brackets."""
    url = record.fields.get("warc-target-uri")
    return record.fields.get("warc-record-id"), url.strip("<>") if url else None


def _metadata(record: Record, facts: Mapping[str, Any], source: Source) -> str | None:
    if not source.metadata:
        return None
    fields = {name: record.fields.get(header) for name, header in _METADATA_FIELDS.items()}
    known = {name: value for name, value in {**fields, **facts}.items() if value}
    names = known if source.metadata == "all" else source.metadata
    return to_json({name: known[name] for name in names if name in known})
