"""Conversion of columns to strings: distinct values stay distinct, or are refused."""

import json
import struct
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from pyarrow import feather

from etl.sources import Columns, Source
from etl.sources.formats.column_values import to_objects, to_strings, to_urls
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from etl.sources.records import to_json

_INT64 = st.integers(-(2**63), 2**63 - 1)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_BYTES = st.binary(max_size=5) | st.sampled_from([b"ab", b"6162", b"\xab", b"\xff", b"\xfe"])


def _viewed(kind: pa.DataType, storage: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda values: pa.array(values, storage).view(kind)


def _typed(kind: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda values: pa.array(values, kind)


_LEAVES: dict[str, tuple[st.SearchStrategy[Any], Callable[[list[Any]], pa.Array]]] = {
    "int64": (_INT64, _typed(pa.int64())),
    "uint64": (st.integers(0, 2**64 - 1), _typed(pa.uint64())),
    "bool": (st.booleans(), _typed(pa.bool_())),
    "float64": (st.floats(allow_nan=False), _typed(pa.float64())),
    "float32": (st.floats(allow_nan=False, width=32), _typed(pa.float32())),
    "float16": (st.floats(allow_nan=False, width=16), _typed(pa.float16())),
    "decimal128": (st.decimals(-(10**9), 10**9, places=3), _typed(pa.decimal128(20, 3))),
    "decimal256": (st.decimals(-(10**9), 10**9, places=3), _typed(pa.decimal256(60, 3))),
    "date32": (_INT32, _viewed(pa.date32(), pa.int32())),
    "date64": (_INT64, _viewed(pa.date64(), pa.int64())),
    "time32": (_INT32, _viewed(pa.time32("s"), pa.int32())),
    "time64": (_INT64, _viewed(pa.time64("ns"), pa.int64())),
    "duration": (_INT64, _viewed(pa.duration("us"), pa.int64())),
    "interval": (
        st.tuples(_INT32, _INT32, _INT64).map(pa.MonthDayNano),
        _typed(pa.month_day_nano_interval()),
    ),
    "string": (st.text(max_size=5), _typed(pa.string())),
    "string not in UTF-8": (_BYTES, _viewed(pa.string(), pa.binary())),
    "large_string not in UTF-8": (_BYTES, _viewed(pa.large_string(), pa.large_binary())),
    "string_view not in UTF-8": (_BYTES, _viewed(pa.string_view(), pa.binary_view())),
    "binary": (_BYTES, _typed(pa.binary())),
    "large_binary": (_BYTES, _typed(pa.large_binary())),
    "binary_view": (_BYTES, _typed(pa.binary_view())),
    "fixed_size_binary": (st.binary(min_size=3, max_size=3), _typed(pa.binary(3))),
    "uuid": (st.uuids().map(lambda value: value.bytes), _typed(pa.uuid())),
}
for _unit in ("s", "ms", "us", "ns"):
    for _zone in (None, "UTC", "America/New_York", "Europe/Berlin", "No/Where"):
        _leaf = _INT64, _viewed(pa.timestamp(_unit, _zone), pa.int64())
        _LEAVES[f"timestamp {_unit} {_zone}"] = _leaf
# Clocks show the hour before 2023-11-05 06:00 UTC twice in New York.
_LEAVES["twice"] = (
    st.integers(1699160400, 1699167600),
    _viewed(pa.timestamp("s", "America/New_York"), pa.int64()),
)


def _offsets(values: pa.Array) -> pa.Array:
    return pa.array(range(len(values) + 1), pa.int32())


_CONTAINERS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "value": lambda values: values,
    "list": lambda values: pa.ListArray.from_arrays(_offsets(values), values),
    "large list": lambda values: pa.LargeListArray.from_arrays(
        _offsets(values).cast(pa.int64()), values
    ),
    "fixed-size list": lambda values: pa.FixedSizeListArray.from_arrays(values, 1),
    "list view": lambda values: pa.ListViewArray.from_arrays(
        _offsets(values)[:-1], pa.array([1] * len(values), pa.int32()), values
    ),
    "struct": lambda values: pa.StructArray.from_arrays([values], ["a"]),
    "map": lambda values: pa.MapArray.from_arrays(_offsets(values), values, values),
    "slice": lambda values: pa.concat_arrays([values, values]).slice(len(values)),
    "run ends": lambda values: pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, len(values) + 1), pa.int32()), values
    ),
}


@pytest.mark.parametrize("leaf", _LEAVES)
@given(data=st.data(), container=st.sampled_from([*_CONTAINERS]))
def test_distinct_values_stay_distinct_or_are_refused(leaf: str, container: str, data) -> None:
    drawn, build = _LEAVES[leaf]
    raw = data.draw(st.lists(drawn, min_size=1, max_size=6, unique_by=repr))
    try:
        values = _CONTAINERS[container](build(raw))
    except pa.ArrowInvalid:  # runs of values that are not valid
        reject()
    for convert in (to_strings, to_urls, to_objects):
        converted, bad = convert(values)
        strings = converted.to_pylist() if isinstance(converted, pa.Array) else converted
        texts = [to_json(v) for index, v in enumerate(strings) if index not in bad]
        assert len(converted) == len(raw)
        assert len({*texts}) + len(bad) == len(raw)
        assert all(strings[index] is None for index in bad)
        if "not in UTF-8" not in leaf and convert is not to_urls:
            assert not bad or container == "list view"
        for text in texts:
            text.encode()
            assert "\ufffd" not in text or leaf == "string"


def test_nulls_stay_null() -> None:
    for kind in (pa.binary(), pa.binary(2), pa.uuid(), pa.timestamp("s", "UTC"), pa.null()):
        for convert in (to_strings, to_objects):
            converted, bad = convert(pa.nulls(2, kind))
            assert pa.array(converted, pa.string()).to_pylist() == [None, None]
            assert bad == {}


def test_values_of_several_types_are_refused() -> None:
    """The bytes and the string would both become "ab"."""
    children = [pa.array([b"\xab"]), pa.array(["ab"])]
    types, offsets = pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32())
    union = pa.UnionArray.from_dense(types, offsets, children)
    converted, bad = to_strings(union)
    assert converted == [None, None]
    assert [(each.reason, each.error[:27]) for each in bad.values()] == [
        ("source.malformed", "values of type dense_union<")
    ] * 2


_UUID = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")


@pytest.mark.parametrize("name", ["a.parquet", "plain.parquet", "a.feather"])
def test_binary_ids_and_metadata_become_hexadecimal(tmp_path, name: str) -> None:
    digests = [struct.pack(">I", number * 0x01010101) for number in range(256)]
    table = pa.table(
        {
            "text": [f"text {number}".encode() for number in range(256)],
            "id": digests,
            "url": [f"http://a/{number}".encode() for number in range(256)],
            "nested": [{"a": [digest]} for digest in digests],
            "dictionary": pa.array(digests).dictionary_encode(),
            "uuid": pa.array([_UUID.bytes] * 256, pa.uuid()),
            "uuids": pa.array([[_UUID.bytes]] * 256, pa.list_(pa.binary(16))),
            "fixed": pa.array([_UUID.bytes] * 256, pa.binary(16)),
        }
    )
    if name == "a.feather":
        feather.write_feather(table, tmp_path / name)
    else:
        pq.write_table(table, tmp_path / name, store_schema=name == "a.parquet")
    source = Source(path=str(tmp_path / name), columns=Columns(id="id", url="url"), metadata="all")
    [split] = list_splits(source)
    rows = [row for part in read_split(split, source) for row in part.to_pylist()]
    assert {row["reason"] for row in rows} == {None}
    assert [row["id"] for row in rows] == [digest.hex() for digest in digests]
    assert [row["text"] for row in rows] == [f"text {number}" for number in range(256)]
    assert [row["url"] for row in rows] == [f"http://a/{number}" for number in range(256)]
    assert [json.loads(row["metadata"]) for row in rows] == [
        {
            "nested": {"a": [digest.hex()]},
            "dictionary": digest.hex(),
            "uuid": str(_UUID),
            "uuids": [_UUID.hex],
            "fixed": _UUID.hex,
        }
        for digest in digests
    ]


def test_a_row_with_a_value_that_is_not_utf8_is_rejected(tmp_path) -> None:
    good, bad = pa.array([b"a", b"b", b"c"]), pa.array([b"a", b"x\xff", b"c"])
    for column in ("id", "url", "more"):
        columns = {"text": good, "id": good, "url": good, "more": good, column: bad}
        table = pa.table({name: values.view(pa.string()) for name, values in columns.items()})
        pq.write_table(table, tmp_path / "a.parquet")
        source = Source(
            path=str(tmp_path / "a.parquet"), columns=Columns(id="id", url="url"), metadata="all"
        )
        [split] = list_splits(source)
        rows = [row for part in read_split(split, source) for row in part.to_pylist()]
        assert [row["reason"] for row in rows] == [None, "source.invalid_utf8", None]
        assert [row["id"] for row in rows] == ["a", None if column == "id" else "b", "c"]
        assert json.loads(rows[1]["metadata"]) == {
            "error": f"column '{column}': byte 0xff at byte 1 is not UTF-8",
            "raw": "x\\xff",
        }
