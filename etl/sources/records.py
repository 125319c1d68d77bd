"""Collect records into batches, and give bad records a reason."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from etl.schemas import RAW

MAX_ROWS = 8192
"""The maximum number of rows in a batch."""

TABLE_BYTES = 1 << 20
"""The size of Python strings that readers of lines and records convert to a table at a time."""

LONG_RECORD_CHARS = 1 << 20
"""A record that is not longer cannot take much memory when it is parsed; chosen here."""

MAX_PARSED_BYTES = 192 << 20
"""The maximum size of a record as Python objects, besides its characters; chosen here."""

_BLOCK_BYTES = 1 << 20
_MAX_EXACT = 2**53  # floats below it are exact if they are whole numbers
_RAW_PREFIX_CHARS = 1000  # of a bad record, stored in ``metadata``
_SURROGATES = re.compile("[\ud800-\udfff]")


def _as_string(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_as_string
).encode


def to_json(value: Any) -> str:
    r"""Return a value as JSON with sorted keys.

    Values that JSON lacks become strings: NaN, dates, and bytes as hexadecimal digits.

    >>> to_json({"b": float("nan"), "a": [1, None, b"\xff"]})
    '{"a":[1,null,"ff"],"b":"nan"}'
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


def json_chars(text: str) -> int:
    r"""Return the number of characters of a text in JSON, without its quotes; at most six times as many.

    >>> json_chars('a"\0')
    9
    """
    escaped = sum(text.count(chr(code)) for code in range(32))
    return len(text) + 5 * escaped + text.count('"') + text.count("\\")


def to_text(value: Any) -> str | None:
    """Return an id or URL as text: numbers in decimal, nested values as JSON.

    Raises ValueError for a float that other numbers were rounded to, or that is not a number.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and not abs(value) < _MAX_EXACT:
        raise ValueError(f"the number {value} is not exact: write it as a string or an integer")
    return to_json(value)


def replace_surrogates(text: str) -> str:
    """Return text with U+FFFD for each surrogate, such as a byte that could not be decoded."""
    return _SURROGATES.sub("\ufffd", text)


def count_outside_quotes(content: bytes, marks: bytes) -> int:
    r"""Return how many of the bytes outside double quotes are among ``marks`` (0.4 GB/s).

    >>> count_outside_quotes(b'[1,"a,b",2]', b"[,")
    3
    """
    is_mark = np.isin(np.arange(256), list(marks))
    count, quotes_before = 0, 0
    for start in range(0, len(content), _BLOCK_BYTES):
        block = np.frombuffer(content[start : start + _BLOCK_BYTES], np.uint8)
        quotes = np.cumsum(block == ord('"')) + quotes_before
        count += int(np.count_nonzero(is_mark[block] & (quotes % 2 == 0)))
        quotes_before = int(quotes[-1])
    return count


def find_excess(record: str, max_bytes: int) -> str | None:
    """Return which limit a JSON record exceeds, or None."""
    # A character has at most four bytes, so only long lines need the exact length.
    if 4 * len(record) <= min(max_bytes, LONG_RECORD_CHARS):
        return None
    content = record.encode("utf-8", "surrogateescape")
    if len(content) > max_bytes:
        return f"the record is larger than {max_bytes} bytes"
    too_many = len(content) > LONG_RECORD_CHARS and _parsed_bytes(content) > MAX_PARSED_BYTES
    return "the record has too many values" if too_many else None


def _parsed_bytes(record: bytes) -> int:
    """Return an upper bound of the size of a record as Python objects, besides its characters.

    The sizes are measured in CPython 3.11 to 3.13, including pointers and the unused part of containers.
    """
    content = record.replace(b"\\\\", b"").replace(b'\\"', b"")
    values, objects = count_outside_quotes(content, b"[,:"), count_outside_quotes(content, b"{")
    return 112 * values + 264 * objects


def encode_error(error: str, raw: str) -> str:
    """Return the ``metadata`` of a bad record: the error and the start of the record."""
    start = replace_surrogates(raw[:_RAW_PREFIX_CHARS])
    return to_json({"error": replace_surrogates(error), "raw": start})


def explain_invalid_utf8(text: str, name: str = "text") -> str | None:
    """Return the ``metadata`` of a row with a string decoded with ``surrogateescape``; None if that is valid.

    ``name`` is the field of the string.
    """
    match = _SURROGATES.search(text)
    if match is None:
        return None
    code = ord(match[0])
    kind = f"byte 0x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"surrogate U+{code:04X}"
    where = "" if name == "text" else f" of the {name}"
    return encode_error(f"{kind} at character {match.start()}{where} is not UTF-8", text)


def make_raw_table(uri: str, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return a table of schema RAW from ``row``, ``text`` and other columns; missing columns are null."""
    count = len(columns["row"])
    given = {"source": pa.repeat(pa.scalar(uri), count), **columns}
    arrays = [given[f.name] if f.name in given else pa.nulls(count, f.type) for f in RAW]
    return pa.Table.from_arrays(arrays, schema=RAW)


class RecordBuffer:
    """A buffer of records as Python values, to be converted to tables of about ``max_bytes``.

    A table is seldom larger.
    """

    def __init__(self, uri: str, *, max_bytes: int) -> None:
        self._uri = uri
        self._max = max_bytes - (max_bytes >> 4)  # leaves room for the record that fills it
        self._records: list[tuple[int, str | bytes | None, *tuple[str | None, ...]]] = []
        self._reasons: list[str | None] = []
        self._size = self._flushed = 0

    @property
    def rows(self) -> int:
        """The number of records that have been added."""
        return self._flushed + len(self._reasons)

    @property
    def is_full(self) -> bool:
        """Whether there are enough records for a table."""
        return self._size >= self._max or len(self._reasons) >= MAX_ROWS

    def add(
        self,
        row: int,
        text: str | bytes | None,
        *,
        id: str | None = None,
        url: str | None = None,
        metadata: str | None = None,
        media_type: str | None = None,
    ) -> None:
        """Add a record. In a str, bytes that are not UTF-8 are surrogates."""
        self._records.append((row, text, id, url, metadata, media_type))
        self._reasons.append(None)
        self._size += len(text or b"") + len(metadata or "") + len(id or "") + len(url or "")
        self._size += len(media_type or "")

    def reject(
        self,
        row: int,
        reason: str,
        error: str,
        *,
        raw: str,
        id: str | None = None,
        url: str | None = None,
    ) -> None:
        """Add a bad record: its content, the error, and its id and URL if it has them."""
        self.add(row, None, id=id, url=url, metadata=encode_error(error, raw))
        self._reasons[-1] = f"source.{reason}"

    def flush(self) -> Iterator[pa.Table]:
        """Yield the table of the gathered records, if there are any, and clear the buffer."""
        records, self._records = self._records, []
        reasons, self._reasons = self._reasons, []
        self._flushed += len(records)
        self._size = 0
        if not records:
            return
        row, *values = map(list, zip(*records, strict=True))
        names = ("text", "id", "url", "metadata", "media_type")
        strings: dict[str, list[Any]] = dict(zip(names, values, strict=True))
        try:
            # As binary, because encoded text is valid UTF-8 and need not be checked again.
            arrays = {
                name: pa.array(values, pa.binary()).view(pa.string())
                for name, values in strings.items()
            }
        except UnicodeEncodeError:
            arrays = _without_surrogates(strings, reasons)
        arrays |= {"row": pa.array(row, pa.int64()), "reason": pa.array(reasons, pa.string())}
        yield make_raw_table(self._uri, arrays)


def _without_surrogates(
    strings: dict[str, list[Any]], reasons: list[str | None]
) -> dict[str, pa.Array]:
    """Return the columns as arrays; a row with a surrogate in any of them gets a reason.

    Its text becomes null, and so does the string with the surrogate.
    """
    for name, values in strings.items():
        for index, value in enumerate(values):
            is_string = isinstance(value, str)
            if not is_string or (error := explain_invalid_utf8(value, name)) is None:
                continue
            values[index] = strings["text"][index] = None
            if reasons[index] is None:
                strings["metadata"][index] = error
                reasons[index] = "source.invalid_utf8"
    return {name: pa.array(values, pa.string()) for name, values in strings.items()}
