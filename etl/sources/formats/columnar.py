"""Conversion of columnar batches, with columns of any type, to tables of schema RAW."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from etl.errors import SourceError
from etl.sources import batches
from etl.sources.records import explain_invalid_utf8, make_raw_table, replace_surrogates, to_json
from etl.sources.settings import Source
from etl.sources.split import Split

_MAX_BATCH_ROWS = 1024  # limits memory when a small dictionary decodes to long texts


def choose_batch_rows(bytes_per_row: float, batch_bytes: int) -> int:
    """Return how many rows to read at a time, given the bytes per row.

    >>> choose_batch_rows(100, 1 << 20), choose_batch_rows(1 << 30, 1 << 20)
    (1024, 1)
    """
    return min(max(int(batch_bytes / max(bytes_per_row, 1)), 1), _MAX_BATCH_ROWS)


def convert_batch(batch: pa.RecordBatch, split: Split, source: Source, first_row: int) -> pa.Table:
    """Return the batch as a table of schema RAW whose rows are numbered from ``first_row``.

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
        original: list[str | None] = [*metadata] if metadata else [None] * len(batch)
        pairs = [bad.get(index, (None, value)) for index, value in enumerate(original)]
        arrays["reason"] = pa.array([reason for reason, _ in pairs], pa.string())
        arrays["metadata"] = pa.array([value for _, value in pairs], pa.string())
    return make_raw_table(split.uri, arrays)


def _column(batch: pa.RecordBatch, name: str, split: Split) -> pa.Array:
    """Return a column in its plain storage type; one that the file lacks as a constant.

    The constant is the column's value in the Delta log, or null.
    """
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
    """Return the text as Arrow strings, and the reason and metadata of each bad value by index."""
    if types.is_null(array.type):
        return array.cast(pa.string()), {}
    if not _is_text(array.type):
        raise SourceError(
            f"column {source.columns.text!r} has type {array.type}, not text",
            where=split.uri,
            hint="set source.columns.text to the column that holds the text",
        )
    binary, long = _binary(array, source.max_text_bytes)
    text, errors = _decoded(binary)
    bad: dict[int, tuple[str, str | None]] = dict.fromkeys(long, ("source.too_large", None))
    bad |= {index: ("source.invalid_utf8", error) for index, error in errors.items()}
    return text, bad


def _strings(array: pa.Array) -> pa.Array:
    """Return ids or URLs as strings: numbers in decimal, fixed-size binary in hexadecimal."""
    kind = array.type
    if _is_text(kind):
        return _decoded(_binary(array, 1 << 30)[0])[0]
    if types.is_fixed_size_binary(kind):
        values = [None if value is None else value.hex() for value in array.to_pylist()]
    elif types.is_nested(kind):
        values = [None if value is None else to_json(value) for value in array.to_pylist()]
    else:
        return array.cast(pa.string())
    return pa.array(values, pa.string())


def _metadata(batch: pa.RecordBatch, split: Split, source: Source) -> list[str] | None:
    """Return one JSON object per row; None if the recipe keeps no metadata.

    The values pass through Python objects, so the cost grows with the number of columns.
    """
    if not source.metadata:
        return None
    names = source.metadata
    if names == "all":
        columns = source.columns
        taken = (columns.text, columns.id, columns.url)
        known = [*batch.schema.names, *(name for name, _ in split.partition)]
        names = tuple(name for name in known if name not in taken)
    values = [_python_values(_column(batch, name, split)) for name in names]
    records = zip(*values, strict=True) if values else [()] * len(batch)
    return [to_json(dict(zip(names, record, strict=True))) for record in records]


def _python_values(array: pa.Array) -> list[Any]:
    kind = array.type
    not_json = types.is_temporal(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    values: list[Any] = (_strings(array) if not_json or _is_text(kind) else array).to_pylist()
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
    """Return the values with 32-bit offsets, null where over ``max_bytes``, and the indices of those.

    Values that have 32-bit offsets already are not compared with ``max_bytes``.
    """
    if types.is_string(array.type) or types.is_binary(array.type):
        return array.cast(pa.binary()), []
    wide = array.cast(pa.large_binary())
    long = pc.fill_null(pc.greater(pc.binary_length(wide), max_bytes), False)
    # Always copy: a slice of a large array keeps offsets that do not fit into 32 bits.
    return batches.replace_with_null(wide, long).cast(pa.binary()), np.flatnonzero(long).tolist()


def _decoded(binary: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """Return the values as UTF-8, and the error metadata by index.

    Bytes that are not UTF-8 become replacement characters.
    """
    try:
        return binary.cast(pa.string()), {}
    except pa.ArrowInvalid:  # a value is not UTF-8: decode one by one
        values = [
            v if v is None else v.decode("utf-8", "surrogateescape") for v in binary.to_pylist()
        ]
    errors = {
        index: error
        for index, value in enumerate(values)
        if value is not None and (error := explain_invalid_utf8(value)) is not None
    }
    return pa.array(
        [v if v is None else replace_surrogates(v) for v in values], pa.string()
    ), errors
