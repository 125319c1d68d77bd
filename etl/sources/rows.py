"""Rows read from a file: tables of schema RAW, reasons for bad rows, batches of bounded size.

Nothing is dropped: a record without a usable text becomes a row with a ``reason`` and a null text.

==================== ==============================================================================
source.malformed     not a record of the format, or a text that is not a string; ``metadata`` has the error
source.no_text       a JSON object without the key of the text
source.null_text     the text is null
source.empty_text    the text is empty or only white space
source.invalid_utf8  the text is not Unicode; ``metadata`` has the error and the readable characters
source.too_large     the text is longer than ``max_text_bytes``
source.damaged       a stretch of a WARC file that cannot be read; ``metadata`` has the error
source.http_status   a page of a WARC file with an HTTP status other than 2xx
source.not_text      a record of a WARC file that is an image, a program, or similar
source.undecodable   a page of a WARC file that fits no known character set
==================== ==============================================================================
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas import RAW

MAX_ROWS = 8192
"""The maximum number of rows in a batch."""

_RAW_PREFIX_CHARS = 1000  # of a bad record, stored in ``metadata``
_GATHER_BYTES = 1 << 20  # of Python strings, before they are converted to a table
_SURROGATES = re.compile("[\ud800-\udfff]")
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=str
).encode


def json_text(value: Any) -> str:
    """Return a value as JSON with sorted keys; values that JSON lacks (NaN, dates) become strings.

    >>> json_text({"b": float("nan"), "a": [1, None]})
    '{"a":[1,null],"b":"nan"}'
    """
    try:
        return _encode(value)
    except ValueError:  # NaN or infinity
        return _encode(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def scalar_text(value: Any) -> str | None:
    """Return an id or URL as text: numbers in decimal, nested values as JSON."""
    return value if value is None or isinstance(value, str) else json_text(value).strip('"')


def readable(text: str) -> str:
    """Return text with U+FFFD for each surrogate, such as a byte that could not be decoded."""
    return _SURROGATES.sub("\ufffd", text)


def complaint(error: str, raw: str) -> str:
    """Return the ``metadata`` of a bad record: the error and the start of the record."""
    return json_text({"error": readable(error), "raw": readable(raw[:_RAW_PREFIX_CHARS])})


def not_unicode(text: str) -> str | None:
    """Return the ``metadata`` of a text decoded with ``surrogateescape``; None if the text is valid."""
    match = _SURROGATES.search(text)
    if match is None:
        return None
    code = ord(match[0])
    kind = f"byte 0x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"surrogate U+{code:04X}"
    return complaint(f"{kind} at character {match.start()} is not UTF-8", text)


def table(uri: str, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return a table of schema RAW from ``row``, ``text`` and other columns; missing columns are null."""
    count = len(columns["row"])
    given = {"source": pa.repeat(pa.scalar(uri), count), **columns}
    arrays = [given[f.name] if f.name in given else pa.nulls(count, f.type) for f in RAW]
    return pa.Table.from_arrays(arrays, schema=RAW)


class Gathered:
    """A buffer of records as Python values, to be converted to tables of about ``max_bytes`` of text.

    A table is seldom larger.
    """

    def __init__(self, uri: str, *, max_bytes: int = _GATHER_BYTES) -> None:
        self._uri = uri
        self._max = max_bytes - (max_bytes >> 4)  # leaves room for the record that fills it
        self._records: list[tuple[int, str | bytes | None, str | None, str | None, str | None]] = []
        self._reasons: list[str | None] = []
        self._size = 0

    @property
    def full(self) -> bool:
        """Whether there are enough records for a table."""
        return self._size >= self._max or len(self._reasons) >= MAX_ROWS

    def add(
        self,
        row: int,
        text: str | bytes | None,
        *,
        key: str | None = None,
        url: str | None = None,
        metadata: str | None = None,
    ) -> None:
        """Add a record; ``key`` is its id. In a str, bytes that are not UTF-8 are surrogates."""
        self._records.append((row, text, key, url, metadata))
        self._reasons.append(None)
        self._size += len(text or b"") + len(metadata or "")

    def reject(
        self,
        row: int,
        reason: str,
        error: str,
        *,
        raw: str,
        key: str | None = None,
        url: str | None = None,
    ) -> None:
        """Add a bad record: its content, the error, and its id and URL if it has them."""
        self._records.append((row, None, key, url, complaint(error, raw)))
        self._reasons.append(f"source.{reason}")

    def take(self) -> Iterator[pa.Table]:
        """Yield the table of the gathered records, if there are any, and clear the buffer."""
        records, self._records = self._records, []
        reasons, self._reasons = self._reasons, []
        self._size = 0
        if not records:
            return
        row, text, key, url, metadata = map(list, zip(*records, strict=True))
        strings = {"text": text, "id": key, "url": url, "metadata": metadata}
        try:
            # As binary, because encoded text is valid UTF-8 and need not be checked again.
            arrays = {
                name: pa.array(values, pa.binary()).view(pa.string())
                for name, values in strings.items()
            }
        except UnicodeEncodeError:
            arrays = _without_surrogates(strings, reasons)
        arrays |= {"row": pa.array(row, pa.int64()), "reason": pa.array(reasons, pa.string())}
        yield table(self._uri, arrays)


def _without_surrogates(
    strings: dict[str, list[Any]], reasons: list[str | None]
) -> dict[str, pa.Array]:
    """Return the columns as arrays without surrogates; a text that has any gets a reason instead."""
    for index, text in enumerate(strings["text"]):
        if text is not None and (error := not_unicode(text)) is not None:
            strings["text"][index] = None
            strings["metadata"][index] = error
            reasons[index] = "source.invalid_utf8"
    return {
        name: pa.array([v if v is None else readable(v) for v in values], pa.string())
        for name, values in strings.items()
    }


def checked(table: pa.Table, max_text_bytes: int) -> pa.Table:
    """Return the table with a reason in each row whose text is null, blank or too large.

    Rows with a reason have a null text, including those that had a reason before.
    """
    text, given = table["text"], table["reason"]
    missing = pc.is_null(text)
    length = pc.binary_length(text)
    long = pc.greater(length, max_text_bytes)
    blank = is_blank(text)
    bad = pc.or_(missing, pc.fill_null(pc.or_(long, blank), False))
    if given.null_count == len(given) and not pc.any(bad).as_py():
        return table
    null = pa.scalar(None, pa.string())
    detected = pc.if_else(blank, "source.empty_text", pc.if_else(long, "source.too_large", null))
    detected = pc.if_else(missing, "source.null_text", detected)
    reason = pc.coalesce(given, detected)
    text = without(text, pc.is_valid(reason))
    table = table.set_column(RAW.get_field_index("text"), RAW.field("text"), text)
    return table.set_column(RAW.get_field_index("reason"), RAW.field("reason"), reason)


def is_blank(texts: pa.StringArray) -> pa.BooleanArray:
    r"""Return which texts are empty or only white space; null for a null text.

    >>> is_blank(pa.array([" a", "\n ", "", None])).to_pylist()
    [False, True, True, None]
    """
    return pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts))


def without(values: pa.Array, mask: pa.Array) -> pa.Array:
    """Return the values with null where ``mask`` is true; uses memory only for the other values."""
    return values.take(pa.array(np.arange(len(values)), mask=np.asarray(mask)))


def bounded(tables: Iterable[pa.Table], batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the same rows in batches of at most ``batch_bytes`` of text and metadata and MAX_ROWS rows.

    A larger document is the only row of its batch. Each column of a batch is one chunk.
    """
    held: list[pa.Table] = []
    held_rows, held_bytes = 0, 0
    for table in tables:
        for piece, size in _pieces(table, batch_bytes):
            rows = piece.num_rows
            if held and (held_rows + rows > MAX_ROWS or held_bytes + size > batch_bytes):
                yield pa.concat_tables(held).combine_chunks()
                held, held_rows, held_bytes = [], 0, 0
            held.append(piece)
            held_rows, held_bytes = held_rows + rows, held_bytes + size
    if held:
        yield pa.concat_tables(held).combine_chunks()


def _pieces(table: pa.Table, batch_bytes: int) -> Iterator[tuple[pa.Table, int]]:
    """Yield pieces of the table that fit into a batch, with the size of each in bytes."""
    lengths = [pc.fill_null(pc.binary_length(table[name]), 0) for name in ("text", "metadata")]
    ends = np.cumsum(np.add(*(np.asarray(length, np.int64) for length in lengths)))
    start, before = 0, 0
    while start < table.num_rows:
        fits = int(np.searchsorted(ends, before + batch_bytes, side="right"))
        stop = min(max(fits, start + 1), start + MAX_ROWS)
        size = int(ends[stop - 1]) - before
        yield table.slice(start, stop - start), size
        start, before = stop, before + size
