"""Batches of the columnar formats: columns of any type -> rows of schema RAW."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from etl.errors import SourceError
from etl.sources import rows
from etl.sources.source import Source, Split

_MAX_BATCH_ROWS = 1024  # few enough that long texts behind a small dictionary do not add up


def batch_rows(bytes_per_row: float, batch_bytes: int) -> int:
    """How many rows to read at a time when a row has so many bytes.

    >>> batch_rows(100, 1 << 20), batch_rows(1 << 30, 1 << 20)
    (1024, 1)
    """
    return min(max(int(batch_bytes / max(bytes_per_row, 1)), 1), _MAX_BATCH_ROWS)


def raw(batch: pa.RecordBatch, split: Split, source: Source, first_row: int) -> pa.Table:
    """The batch as a table of schema RAW, whose first row has the ordinal ``first_row``.

    Raises SourceError if the text column does not hold text.
    """
    columns = source.columns
    text, bad = _text(_column(batch, columns.text, split), split, source)
    numbers = np.arange(first_row, first_row + len(batch), dtype=np.int64)
    arrays = {"row": pa.array(numbers), "text": text}
    for name, column in (("id", columns.id), ("url", columns.url)):
        if column is not None:
            arrays[name] = _strings(_column(batch, column, split))
    metadata = _metadata(batch, split, source)
    if metadata is not None:
        arrays["metadata"] = pa.array(metadata, pa.string())
    if bad:
        kept: list[str | None] = [*metadata] if metadata else [None] * len(batch)
        found = [bad.get(position, (None, value)) for position, value in enumerate(kept)]
        arrays["reason"] = pa.array([reason for reason, _ in found], pa.string())
        arrays["metadata"] = pa.array([value for _, value in found], pa.string())
    return rows.table(split.uri, arrays)


def _column(batch: pa.RecordBatch, name: str, split: Split) -> pa.Array:
    """A column in its plain storage; one that is in Delta's log, or nowhere, as a constant."""
    if name not in batch.schema.names:
        constant: Any = dict(split.partition).get(name)
        return pa.repeat(pa.scalar(constant), len(batch))
    array = batch[name]
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if types.is_dictionary(array.type) else array


def _text(
    array: pa.Array, split: Split, source: Source
) -> tuple[pa.Array, dict[int, tuple[str, str | None]]]:
    """The text as Arrow strings; by position the reason and metadata of what is no such string."""
    if types.is_null(array.type):
        return array.cast(pa.string()), {}
    if not _is_text(array.type):
        raise SourceError(
            f"column {source.columns.text!r} is {array.type}, not text",
            where=split.uri,
            hint="name the column that holds the text under source.columns.text",
        )
    binary, long = _binary(array, source.max_text_bytes)
    text, complaints = _decoded(binary)
    bad: dict[int, tuple[str, str | None]] = dict.fromkeys(long, ("source.too_large", None))
    bad |= {i: ("source.invalid_utf8", complaint) for i, complaint in complaints.items()}
    return text, bad


def _strings(array: pa.Array) -> pa.Array:
    """An id or URL as strings: numbers in decimal, keys of a fixed size in hexadecimal."""
    kind = array.type
    if _is_text(kind):
        return _decoded(_binary(array, 1 << 30)[0])[0]
    if types.is_fixed_size_binary(kind):
        values = [None if value is None else value.hex() for value in array.to_pylist()]
    elif types.is_nested(kind):
        values = [None if value is None else rows.json_text(value) for value in array.to_pylist()]
    else:
        return array.cast(pa.string())
    return pa.array(values, pa.string())


def _metadata(batch: pa.RecordBatch, split: Split, source: Source) -> list[str] | None:
    """One JSON object a row: Python objects in between, so as slow as the columns are many."""
    if not source.metadata:
        return None
    names = source.metadata
    if names == "all":
        columns = source.columns
        taken = (columns.text, columns.id, columns.url)
        known = [*batch.schema.names, *(name for name, _ in split.partition)]
        names = tuple(name for name in known if name not in taken)
    values = [_values(_column(batch, name, split)) for name in names]
    records = zip(*values, strict=True) if values else [()] * len(batch)
    return [rows.json_text(dict(zip(names, record, strict=True))) for record in records]


def _values(array: pa.Array) -> list[Any]:
    kind = array.type
    foreign = types.is_temporal(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    values: list[Any] = (_strings(array) if foreign or _is_text(kind) else array).to_pylist()
    return values


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
        )
    )


def _binary(array: pa.Array, max_bytes: int) -> tuple[pa.Array, list[int]]:
    """The values with 32-bit offsets; those over ``max_bytes`` as null, and their positions."""
    if types.is_string(array.type) or types.is_binary(array.type):
        return array.cast(pa.binary()), []
    wide = array.cast(pa.large_binary())
    long = pc.fill_null(pc.greater(pc.binary_length(wide), max_bytes), False)
    # A copy in any case: a slice of a large array keeps offsets that do not fit into 32 bits.
    return rows.without(wide, long).cast(pa.binary()), np.flatnonzero(long).tolist()


def _decoded(binary: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """The values as UTF-8, made readable where they are not, with the complaints by position."""
    try:
        return binary.cast(pa.string()), {}
    except pa.ArrowInvalid:  # some value is not UTF-8: look at each
        values = [
            v if v is None else v.decode("utf-8", "surrogateescape") for v in binary.to_pylist()
        ]
    complaints = {
        position: complaint
        for position, value in enumerate(values)
        if value is not None and (complaint := rows.not_unicode(value)) is not None
    }
    return pa.array([v if v is None else rows.readable(v) for v in values], pa.string()), complaints
