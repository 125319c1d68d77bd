"""Convert columns of any type to strings, so that distinct values stay distinct.

Ids become strings, and nested ids and metadata JSON. Binary values become hexadecimal digits, UUIDs their
usual form, points in time UTC. A value that cannot be converted without loss, such as a string that is not
UTF-8, is an error of its row.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from etl.errors import error_line
from etl.sources import batches
from etl.sources.records import to_json

_DASHES = (8, 13, 18, 23)  # the positions in a UUID


class BadValue(NamedTuple):
    """Why a value cannot be converted, and the value as far as it can be shown."""

    reason: str
    error: str
    value: str


Converted = tuple[Sequence[Any], dict[int, BadValue]]
"""The values as Python objects or an Arrow array, and by index the bad ones, which are null."""


def to_strings(array: pa.Array) -> Converted:
    """Return ids as strings: an Arrow array unless there are bad values."""
    return _convert(array, _strings)


def to_urls(array: pa.Array) -> Converted:
    """Return URLs as ``to_strings`` does, but bytes as UTF-8."""
    if is_binary(array.type):
        array = array.cast(pa.large_binary()).view(pa.large_string())
    return to_strings(array)


def to_objects(array: pa.Array) -> Converted:
    """Return values as Python objects for ``to_json``."""
    return _convert(array, lambda values: _simplify(values).to_pylist())


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type has strings or bytes of any length."""
    tests = (types.is_string, types.is_large_string, types.is_string_view)
    return is_binary(kind) or any(test(kind) for test in tests)


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type has bytes of any length."""
    tests = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return any(test(kind) for test in tests)


def to_binary(array: pa.Array, max_bytes: int) -> tuple[pa.Array, list[int]]:
    """Return the values with 32-bit offsets, null where over ``max_bytes``, and the indices of those."""
    if types.is_string(array.type) or types.is_binary(array.type):
        if array.nbytes <= max_bytes:
            return array.cast(pa.binary()), []
        array = array.cast(pa.binary())
        long = pc.fill_null(pc.greater(pc.binary_length(array), max_bytes), False)
        indices = np.flatnonzero(long).tolist()
        return batches.replace_with_null(array, long) if indices else array, indices
    wide = array.cast(pa.large_binary())
    long = pc.fill_null(pc.greater(pc.binary_length(wide), max_bytes), False)
    # Always copy: a slice of a large array keeps offsets that do not fit into 32 bits.
    return batches.replace_with_null(wide, long).cast(pa.binary()), np.flatnonzero(long).tolist()


def _convert(array: pa.Array, convert: Callable[[pa.Array], Sequence[Any]]) -> Converted:
    """Convert all values; if that fails, one by one, to find the bad ones."""
    try:
        return convert(array), {}
    except (ValueError, OverflowError, KeyError):  # the last one: of an unknown time zone
        pass
    values: list[Any] = []
    bad: dict[int, BadValue] = {}
    for index in range(len(array)):
        value = None
        try:
            [value] = convert(array.slice(index, 1))
        except UnicodeDecodeError as error:
            start = error.object[:1000].decode("utf-8", "backslashreplace")
            what = f"byte 0x{error.object[error.start]:02x} at byte {error.start} is not UTF-8"
            bad[index] = BadValue("source.invalid_utf8", what, start)
        except (ValueError, OverflowError, KeyError) as error:
            bad[index] = BadValue("source.malformed", error_line(error), "")
        values.append(value.as_py() if isinstance(value, pa.Scalar) else value)
    return values, bad


def _strings(array: pa.Array) -> Sequence[Any]:
    array = _simplify(array)
    if types.is_nested(array.type) or types.is_interval(array.type):
        return [None if value is None else to_json(value) for value in array.to_pylist()]
    if is_text(array.type):
        array, _ = to_binary(array, 1 << 30)  # the next cast then checks that it is UTF-8
    try:
        strings: Sequence[Any] = array.cast(pa.string())
    except pa.ArrowInvalid:
        strings = [None if value is None else value.decode() for value in array.to_pylist()]
    return strings


def _simplify(array: pa.Array) -> pa.Array:
    """Return the values in a type that Python and JSON have; strings may not be UTF-8."""
    kind = array.type
    if types.is_dictionary(kind):
        return _simplify(array.dictionary_decode())
    if types.is_run_end_encoded(kind):
        rows = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(array.run_ends, rows, "right")
        return _simplify(array.values).take(pa.array(runs))
    if isinstance(kind, pa.UuidType):
        return _with_dashes(_hexadecimal(array.storage))
    if isinstance(kind, pa.BaseExtensionType):
        return _simplify(array.storage)
    if is_binary(kind) or types.is_fixed_size_binary(kind):
        return _hexadecimal(array)
    for leaf in (_in_utc, _as_string):
        target = _map_leaves(array.type, leaf)
        array = array if target == array.type else array.cast(target)
    return array


def _map_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with other leaves.

    Raises ValueError for unions, whose values may be equal in JSON, and for list views with such leaves:
    Arrow 26 loses values when it casts these.
    """
    is_view = types.is_list_view(kind) or types.is_large_list_view(kind)
    if types.is_union(kind) or (is_view and _map_leaves(kind.value_type, leaf) != kind.value_type):
        raise ValueError(f"values of type {kind} cannot be kept without loss")
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([field.with_type(_map_leaves(field.type, leaf)) for field in fields])
    if types.is_map(kind):
        return pa.map_(_map_leaves(kind.key_type, leaf), _map_leaves(kind.item_type, leaf))
    if types.is_fixed_size_list(kind):
        return pa.list_(_map_leaves(kind.value_type, leaf), kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        make_list = pa.list_ if types.is_list(kind) else pa.large_list
        return make_list(_map_leaves(kind.value_type, leaf))
    if types.is_dictionary(kind):
        return _map_leaves(kind.value_type, leaf)
    return leaf(kind)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if types.is_string_view(kind):  # Arrow 26 cannot take values of it
        return pa.large_string()
    if types.is_date64(kind):  # milliseconds, which need not be whole days
        return pa.timestamp("ms")
    return pa.timestamp(kind.unit, "UTC") if types.is_timestamp(kind) and kind.tz else kind


def _as_string(kind: pa.DataType) -> pa.DataType:
    has_no_json = types.is_temporal(kind) and not types.is_interval(kind)
    return pa.string() if has_no_json or types.is_decimal(kind) else kind


def _hexadecimal(array: pa.Array) -> pa.Array:
    """Return bytes as hexadecimal digits (1 GB/s)."""
    array = array.cast(pa.large_binary())
    offsets = np.frombuffer(array.buffers()[1], np.int64)[array.offset :][: len(array) + 1]
    content = array.buffers()[2]
    digits = (
        b"" if content is None else memoryview(content)[offsets[0] : offsets[-1]].hex().encode()
    )
    buffers = pa.py_buffer(2 * (offsets - offsets[0])), pa.py_buffer(digits)
    strings = pa.LargeStringArray.from_buffers(len(array), *buffers)
    return strings if not array.null_count else pc.if_else(array.is_valid(), strings, None)


def _with_dashes(digits: pa.Array) -> pa.Array:
    for position in _DASHES:
        digits = pc.utf8_replace_slice(digits, position, position, "-")
    return digits
