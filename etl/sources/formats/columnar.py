"""Conversion of columnar batches, with columns of any type, to tables of schema RAW."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from etl.errors import SourceError
from etl.sources.formats.column_values import (
    Converted,
    is_text,
    to_binary,
    to_objects,
    to_strings,
    to_urls,
)
from etl.sources.records import (
    MAX_ROWS,
    encode_error,
    explain_invalid_utf8,
    make_raw_table,
    to_json,
)
from etl.sources.source_settings import Source
from etl.sources.split import Split

MAX_DECODED_BYTES = 256 << 20
"""The maximum size of what is decoded at a time. Chosen here: with the copies of builders and conversions, a
process grows by less than 1 GB."""

MAX_REJECTED_ROWS = 1_000_000
"""The maximum number of rows that are rejected together, each by a row with a reason; chosen here."""

MAX_BATCH_ROWS = 1024
"""The maximum number of rows that are decoded at a time."""

_GATHERED_BYTES = 4 << 20  # chosen here: in the caches of a processor
_MAX_CONVERTED_BYTES = 448 << 20  # as Python objects and JSON; chosen here


def choose_batch_rows(bytes_per_row: float, batch_bytes: int) -> int:
    """Return how many rows to read at a time, given the bytes per row.

    >>> choose_batch_rows(100, 1 << 20), choose_batch_rows(1 << 30, 1 << 20)
    (1024, 1)
    """
    return min(max(int(batch_bytes / max(bytes_per_row, 1)), 1), MAX_BATCH_ROWS)


def gather(batches: Iterable[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows without top-level dictionaries, in batches of a similar size.

    Small batches are merged, and values of dictionaries are copied to at most ``batch_bytes`` at a time.
    """
    held: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        for piece in _decode_dictionaries(batch, batch_bytes):
            piece_bytes = piece.get_total_buffer_size()  # of a slice, that of the whole batch
            if held and (
                size + piece_bytes > _GATHERED_BYTES or rows + len(piece) > MAX_BATCH_ROWS
            ):
                yield pa.concat_batches(held) if len(held) > 1 else held[0]
                held, size, rows = [], 0, 0
            held.append(piece)
            size, rows = size + piece_bytes, rows + len(piece)
    if held:
        yield pa.concat_batches(held) if len(held) > 1 else held[0]


def _decode_dictionaries(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    if not any(map(_is_dictionary, batch.schema.types)):
        yield batch
        return
    columns = [_storage(array) if _is_dictionary(array.type) else array for array in batch.columns]
    dictionaries = [array for array in columns if types.is_dictionary(array.type)]
    ends = np.cumsum(sum(_decoded_lengths(array) for array in dictionaries))
    start = before = 0
    while start < len(batch):
        stop = max(int(np.searchsorted(ends, before + max_bytes, side="right")), start + 1)
        arrays = [
            array[start:stop].dictionary_decode()
            if types.is_dictionary(array.type)
            else array[start:stop]
            for array in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
        start, before = stop, int(ends[stop - 1])


def _decoded_lengths(array: pa.DictionaryArray) -> Any:
    """Return the size of each value after decoding; of nested values, the size of the whole dictionary."""
    values = array.dictionary
    if not is_text(values.type):
        return np.full(
            len(array), max(int(values.nbytes), 1) if types.is_nested(values.type) else 16
        )
    lengths = pc.binary_length(values.cast(pa.large_binary()))
    return pc.fill_null(pc.take(lengths, array.indices), 0).to_numpy(zero_copy_only=False)


def _is_dictionary(kind: pa.DataType) -> bool:
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return bool(types.is_dictionary(storage))


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def convert(
    batch: pa.RecordBatch, split: Split, source: Source, first_row: int
) -> Iterator[pa.Table]:
    """Yield the rows of a batch as tables of schema RAW, numbered from ``first_row``.

    A row that would take too much memory has a reason. Raises SourceError if the text column does not hold
    text.
    """
    size = _converted_bytes(batch, split, source)
    if size <= _MAX_CONVERTED_BYTES or not len(batch):
        yield convert_batch(batch, split, source, first_row)
    elif len(batch) == 1:
        error = f"the row takes {size >> 20} MB of memory, but the limit is {_MAX_CONVERTED_BYTES >> 20} MB"
        yield from reject_rows(range(first_row, first_row + 1), error, split)
    else:
        half = len(batch) // 2
        yield from convert(batch.slice(0, half), split, source, first_row)
        yield from convert(batch.slice(half), split, source, first_row + half)


def is_damage(error: Exception) -> bool:
    """Return whether an error is Arrow's for content that it cannot read; not one of the storage."""
    return isinstance(error, pa.ArrowException) or (type(error) is OSError and error.errno is None)


def reject_rows(
    rows: range, error: str, split: Split, reason: str = "too_large"
) -> Iterator[pa.Table]:
    """Yield rows with a reason; raise SourceError if they are too many."""
    if len(rows) > MAX_REJECTED_ROWS:
        raise SourceError(
            error, where=split.uri, hint="write the rows in smaller row groups or record batches"
        )
    metadata = pa.scalar(encode_error(error, ""))
    for start in range(rows.start, rows.stop, MAX_ROWS):
        numbers = np.arange(start, min(start + MAX_ROWS, rows.stop), dtype=np.int64)
        yield make_raw_table(
            split.uri,
            {
                "row": pa.array(numbers),
                "text": pa.nulls(len(numbers), pa.string()),
                "metadata": pa.repeat(metadata, len(numbers)),
                "reason": pa.repeat(pa.scalar(f"source.{reason}"), len(numbers)),
            },
        )


def _converted_bytes(batch: pa.RecordBatch, split: Split, source: Source) -> int:
    """Return an upper bound of the size of the rows as strings, Python objects and JSON."""
    columns = source.columns
    size = 0
    for name in batch.schema.names:
        if name == columns.text:
            array = batch[name]
            size += _TEXT_FACTOR * _string_bytes(array) if is_text(array.type) else 0
        else:
            size += _python_bytes(batch[name])
    for name, value in split.partition:
        factor = _TEXT_FACTOR if name == columns.text else _STRING_FACTOR
        size += len(batch) * (100 + factor * len(str(value)))
    return size


_TEXT_FACTOR = 3  # copies of a text
_STRING_FACTOR = 26
"""Bytes per byte of a string: up to 6 characters in JSON, of 4 bytes each, and its own of up to 2."""


def _python_bytes(array: pa.Array) -> int:  # noqa: PLR0911 - a case per kind of type
    """Return an upper bound of the size of an array as Python objects and JSON.

    The sizes are measured in CPython 3.11 to 3.13.
    """
    kind, count = array.type, len(array)
    if isinstance(array, pa.ExtensionArray):
        return _python_bytes(array.storage)
    if is_text(kind):
        return 80 * count + _STRING_FACTOR * _string_bytes(array)
    if types.is_fixed_size_binary(kind):
        return count * (80 + 6 * int(kind.byte_width))
    # As Python objects, rows do not share an entry of the dictionary.
    if types.is_dictionary(kind):
        if not is_text(kind.value_type):
            return count * (80 + _python_bytes(array.dictionary))
        lengths = pc.take(pc.binary_length(array.dictionary), array.indices)
        return 80 * count + _STRING_FACTOR * int(pc.sum(lengths).as_py() or 0)
    if types.is_struct(kind):
        return 320 * count + sum(map(_python_bytes, array.flatten()))
    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        return 100 * count + _python_bytes(array.flatten())
    if types.is_map(kind):
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        items = array.keys[start:end], array.items[start:end]
        return 100 * count + sum(map(_python_bytes, items))
    if types.is_nested(kind) or types.is_run_end_encoded(kind):
        return count * (100 + sum(_python_bytes(each) for each in _children(array)))
    return 160 * count


def _string_bytes(array: pa.Array) -> int:
    """Return the size of strings, several of which may share their bytes in a view."""
    if not (types.is_string_view(array.type) or types.is_binary_view(array.type)):
        return int(array.nbytes)
    views = array.buffers()[1]
    lengths = np.frombuffer(views, np.int32)[::4][array.offset : array.offset + len(array)]
    return int(np.maximum(lengths, 0).sum(dtype=np.int64))


def _children(array: pa.Array) -> list[pa.Array]:
    """Return the values of a list view, a union or a run-end encoded array, which rows may share."""
    if types.is_union(array.type):
        return [array.field(index) for index in range(array.type.num_fields)]
    return [array.values]


def convert_batch(batch: pa.RecordBatch, split: Split, source: Source, first_row: int) -> pa.Table:
    """Return the batch as a table of schema RAW whose rows are numbered from ``first_row``.

    Raises SourceError if the text column does not hold text.
    """
    count = len(batch)
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, constant in split.partition:  # in the Delta log; the data file lacks the column
        arrays.setdefault(name, pa.repeat(pa.scalar(constant), count))
    missing = pa.nulls(count)
    text, bad = _text(arrays.get(source.columns.text, missing), split, source)
    numbers = np.arange(first_row, first_row + count, dtype=np.int64)
    result = {"row": pa.array(numbers), "text": text}
    for use, column in source.columns.known.items():
        if use != "text":
            convert = to_urls if use == "url" else to_strings
            values = _take_good(column, convert(arrays.get(column, missing)), bad)
            result[use] = pa.array(values, pa.string())
    metadata = _metadata(arrays, source, count, bad)
    if bad:
        pairs = [bad.get(index, (None, value)) for index, value in enumerate(metadata)]
        result["reason"] = pa.array([reason for reason, _ in pairs], pa.string())
        metadata = [value for _, value in pairs]
    if bad or source.metadata:
        result["metadata"] = pa.array(metadata, pa.string())
    return make_raw_table(split.uri, result)


_Bad = dict[int, tuple[str, str | None]]  # the reason and the metadata of bad rows, by index


def _text(array: pa.Array, split: Split, source: Source) -> tuple[pa.Array, _Bad]:
    """Return the text as Arrow strings, and the rows where it is bad."""
    array = _storage(array)
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_null(array.type):
        return array.cast(pa.string()), {}
    if not is_text(array.type):
        raise SourceError(
            f"column {source.columns.text!r} has type {array.type}, not text",
            where=split.uri,
            hint="set source.columns.text to the column that holds the text",
        )
    binary, long = to_binary(array, source.max_text_bytes)
    text, errors = _decoded(binary)
    bad: _Bad = dict.fromkeys(long, ("source.too_large", None))
    bad |= {index: ("source.invalid_utf8", error) for index, error in errors.items()}
    return text, bad


def _take_good(column: str, converted: Converted, bad: _Bad) -> Sequence[Any]:
    """Return the converted values of a column, and add the rows where it is bad."""
    values, errors = converted
    for index, error in errors.items():
        what = encode_error(f"column {column!r}: {error.error}", error.value)
        bad.setdefault(index, (error.reason, what))
    return values


def _metadata(
    arrays: Mapping[str, pa.Array], source: Source, count: int, bad: _Bad
) -> list[str | None]:
    """Return one JSON object per row, and add the rows where it is bad.

    The values pass through Python objects, so the cost grows with the number of columns.
    """
    if not source.metadata:
        return [None] * count
    columns = source.columns
    taken = (columns.text, columns.id, columns.url)
    is_all = source.metadata == "all"
    names = sorted(name for name in arrays if name not in taken) if is_all else source.metadata
    missing = pa.nulls(count)
    values = [_take_good(n, to_objects(arrays.get(n, missing)), bad) for n in names]
    records = zip(*values, strict=True) if values else [()] * count
    return [to_json(dict(zip(names, record, strict=True))) for record in records]


def _decoded(binary: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """Return the values as UTF-8, null where they are not, and the error metadata of these by index."""
    with suppress(pa.ArrowInvalid):
        return binary.cast(pa.string()), {}
    errors: dict[int, str] = {}
    values: list[bytes | None] = []
    for index, scalar in enumerate(binary):  # a value is not UTF-8: decode one by one
        value: bytes | None = scalar.as_py()
        if value is not None:
            text = value.decode("utf-8", "surrogateescape")
            if (error := explain_invalid_utf8(text)) is not None:
                errors[index], value = error, None
        values.append(value)
    return pa.array(values, pa.binary()).cast(pa.string()), errors
