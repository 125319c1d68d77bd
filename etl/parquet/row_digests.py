"""Compute the digest of rows: a sum of hashes, which depends neither on their order nor on their files.

- A value is hashed by XXH3-128: the bytes of a number as Arrow stores it, or of a string in UTF-8. ``-0.0``
  counts as ``0.0``, and all NaN are the same.
- A list of numbers that are not nullable is hashed as the bytes of its numbers; any other list as the hashes
  of its elements, with 16 zero bytes for a null; a struct as a row.
- A row is hashed by XXH3-128, too: for each column, by name, the hash of ``NAME:TYPE`` and that of the value.
  Nulls are left out, so a column that is missing is the same as a column of nulls.
- A hash is 16 bytes, the lowest first. The digest is the sum of the hashes of all rows modulo 2^128.

Rows that differ have different digests, except with a probability of 2^-128. XXH3 is not cryptographic: a
digest shows faults, not forgeries.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_MODULUS: Final = 1 << 128
_BATCH_ROWS: Final = 1 << 13  # the hashes of 30 columns take 4 MB
_NO_VALUES: Final[Mapping[str, str | None]] = MappingProxyType({})

_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"large_string": "string", "large_binary": "binary"}
)
_Hashes = NDArray[np.uint64]  # (n, 2), the low half first


def add_digests(digests: Iterable[int]) -> int:
    """Return the digest of the rows of all digests; the negative of a digest takes its rows away.

    >>> add_digests([1 << 127, 1 << 127, 5, -3])
    2
    """
    return sum(digests) % _MODULUS


def to_hex(digest: int) -> str:
    """Return a digest as 32 hexadecimal digits."""
    return f"{digest:032x}"


def from_hex(digits: str) -> int:
    """Return the digest that ``to_hex`` has converted."""
    return int(digits, 16)


def digest_rows(
    rows: pa.Table,
    *,
    without: Collection[str] = (),
    values: Mapping[str, str | None] = _NO_VALUES,
) -> int:
    """Return the digest of rows, without some columns; ``values`` are columns with one value each.

    >>> table = pa.table({"id": ["a", "b"], "tokens": [[1, 2], [3]]})
    >>> digest_rows(table) == digest_rows(table.take([1, 0])) != digest_rows(table[:1])
    True
    >>> digest_rows(table) == add_digests([digest_rows(table[:1]), digest_rows(table[1:])])
    True
    """
    batches = _hash_batches(rows, without, values)
    return add_digests(digest for hashes in batches for digest in _sums(hashes, [0]))


def hash_column(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the lower half of the hash of each value, as int64; null for null.

    >>> hash_column(pa.chunked_array([["a", None, "a"]])).to_pylist()
    [-1817709641818812897, None, -1817709641818812897]
    """
    halves = [
        pa.array(_hash_values(chunk)[:, 0].view(np.int64), mask=~_is_valid(chunk))
        for chunk in values.chunks
    ]
    return pa.chunked_array(halves, pa.int64())


def digests_by(
    rows: pa.Table,
    column: str,
    *,
    without: Collection[str] = (),
    values: Mapping[str, str | None] = _NO_VALUES,
) -> dict[str, tuple[int, int]]:
    """Return the number of rows, and the digest as of ``digest_rows``, for each value of a column.

    >>> table = pa.table({"source": ["b", "a", "b"], "row": [0, 0, 1]})
    >>> parts = digests_by(table, "source")
    >>> parts["a"] == (1, digest_rows(table[1:2])), parts["b"][0]
    (True, 2)
    """
    if not rows.num_rows:
        return {}
    hashes = np.concatenate([*_hash_batches(rows, without, values)])
    encoded = rows[column].combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    counts = np.bincount(codes)
    sums = _sums(hashes[np.argsort(codes)], (np.cumsum(counts) - counts).tolist())
    parts = zip(counts.tolist(), sums, strict=True)
    return dict(zip(encoded.dictionary.to_pylist(), parts, strict=True))


def _sums(hashes: _Hashes, starts: list[int]) -> list[int]:
    """Return the sum of the hashes from each start to the next."""
    quarters = np.add.reduceat(hashes.view(np.uint32), starts, axis=0, dtype=np.uint64)
    return [
        sum(quarter << 32 * k for k, quarter in enumerate(row)) % _MODULUS
        for row in quarters.tolist()
    ]


def _hash_batches(
    rows: pa.Table, without: Collection[str], values: Mapping[str, str | None]
) -> Iterator[_Hashes]:
    """Yield the hashes of some rows at a time."""
    rows = rows.select([name for name in rows.column_names if name not in without])
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, value in values.items():
            columns[name] = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows)
        if batch.num_rows:
            yield _hash_rows(columns, batch.num_rows)


def _hash_rows(columns: Mapping[str, pa.Array], num_rows: int) -> _Hashes:
    """Return the hash of each row."""
    # Numba takes 0.3 s to load: only programs that write or compare rows need it.
    from etl.kernels.hashing.xxh3 import LANES, hash_records

    names = sorted(columns)
    fields = np.empty((len(names), num_rows, 2), np.uint64)
    valid = np.ones((len(names), num_rows), np.bool_)
    for k, name in enumerate(names):
        fields[k] = _hash_values(columns[name])
        if columns[name].null_count:
            valid[k] = _is_valid(columns[name])
    labels = [f"{name}:{_type_name(columns[name].type)}" for name in names]
    record, hashes = np.empty(4 * len(names), np.uint64), np.empty((num_rows, 2), np.uint64)
    scratch = record, record.view(np.uint8), np.empty(LANES, np.uint64)
    hash_records(fields, valid, _hash_values(pa.array(labels, pa.string())), *scratch, hashes)
    return hashes


def _hash_values(values: pa.Array) -> _Hashes:
    """Return the hash of each value; that of a null has no meaning."""
    from etl.kernels.bytes.utf8 import frozen
    from etl.kernels.hashing.xxh3 import LANES, hash_values

    kind, count = _plain_type(values.type), len(values)
    if values.null_count == count:
        return np.zeros((count, 2), np.uint64)
    values = values if kind == values.type else values.cast(kind)
    if pa.types.is_struct(kind):
        names = [kind.field(k).name for k in range(kind.num_fields)]
        return _hash_rows(dict(zip(names, values.flatten(), strict=True)), count)
    data, offsets = _bytes_of(values)
    assert len(offsets) == count + 1  # the kernel does not check it
    hashes = np.empty((count, 2), np.uint64)
    hash_values(frozen(data), frozen(offsets), np.empty(LANES, np.uint64), hashes)
    return hashes


def _bytes_of(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of values, and where the bytes of each begin and end."""
    kind = values.type
    if _is_list(kind):
        offsets = values.offsets.to_numpy().astype(np.int64)
        elements = values.values.slice(offsets[0], offsets[-1] - offsets[0])
        data = _numbers(elements) if _has_numbers(kind) else _hash_elements(elements)
        return data, (offsets - offsets[0]) * (len(data) // max(len(elements), 1))
    if _type_name(kind) in ("string", "binary"):
        values = values.cast(pa.large_binary())  # copies offsets, no bytes
        _, ends, content = values.buffers()
        offsets = np.frombuffer(ends, np.int64)[values.offset : values.offset + len(values) + 1]
        return np.frombuffer(content or b"", np.uint8), offsets
    data = _numbers(values)
    return data, np.arange(len(values) + 1, dtype=np.int64) * (len(data) // len(values))


def _numbers(values: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes of numbers, the same for equal ones."""
    values = values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values
    width = values.type.bit_width // 8
    content = np.frombuffer(values.buffers()[1] or b"", np.uint8)
    content = content[values.offset * width : (values.offset + len(values)) * width]
    if not pa.types.is_floating(values.type):
        return content
    numbers = content.view(f"f{width}") + 0.0  # makes -0.0 0.0
    numbers[np.isnan(numbers)] = np.nan
    return numbers.view(np.uint8)


def _hash_elements(values: pa.Array) -> NDArray[np.uint8]:
    """Return the bytes of the hashes of elements of lists."""
    hashes = _hash_values(values)
    hashes[~_is_valid(values)] = 0
    return hashes.view(np.uint8).reshape(-1)


def _is_valid(values: pa.Array) -> NDArray[np.bool_]:
    is_valid: NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return is_valid


@cache  # asked for each column of each batch
def _is_list(kind: pa.DataType) -> bool:
    return any(is_(kind) for is_ in (pa.types.is_list, pa.types.is_large_list, pa.types.is_map))


@cache
def _has_numbers(kind: pa.DataType) -> bool:
    """Return whether the elements of lists are numbers that are not nullable."""
    is_map = pa.types.is_map(kind)
    return not is_map and not kind.value_field.nullable and pa.types.is_primitive(kind.value_type)


@cache
def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with the plainest layout of the same values."""
    is_ = pa.types
    if is_.is_dictionary(kind):
        return kind.value_type
    if is_.is_fixed_size_list(kind):
        return pa.list_(kind.value_field)
    if is_.is_string_view(kind):
        return pa.string()
    return pa.binary() if is_.is_binary_view(kind) else kind


@cache
def _type_name(kind: pa.DataType) -> str:
    """Return the name of a type, the same for all layouts of equal values."""
    kind = _plain_type(kind)
    if _is_list(kind):
        element = kind.field(0)
        return f"list<{_type_name(element.type)}{'' if _has_numbers(kind) else '?'}>"
    return _NAMES.get(str(kind), str(kind))
