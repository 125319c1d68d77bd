"""Digests of rows against a naive reference: Python values, and the library xxhash."""

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from etl.parquet.data_file import DataFileWriter
from etl.parquet.layout import Layout
from etl.parquet.row_digests import add_digests, digest_rows, digests_by, from_hex, hash_column

NUMBERS = pa.list_(pa.field("element", pa.int32(), nullable=False))
NULLABLE = pa.list_(pa.int32())
STRINGS = pa.list_(pa.field("element", pa.string(), nullable=False))
PAIR = pa.struct([pa.field("b", pa.string()), pa.field("a", pa.float64())])
SCHEMA = pa.schema(
    {
        "text": pa.string(),
        "hash": pa.binary(),
        "row": pa.int64(),
        "small": pa.int8(),
        "score": pa.float64(),
        "half": pa.float32(),
        "flag": pa.bool_(),
        "tokens": NUMBERS,
        "maybe": NULLABLE,
        "names": STRINGS,
        "pair": PAIR,
        "id": pa.string(),
    }
)
NAMES = {
    "text": "string",
    "hash": "binary",
    "row": "int64",
    "small": "int8",
    "score": "double",
    "half": "float",
    "flag": "bool",
    "tokens": "list<int32>",
    "maybe": "list<int32?>",
    "names": "list<string?>",
    "pair": str(PAIR),
    "id": "string",
    "source": "string",
}


def naive_hash(data: bytes) -> bytes:
    return xxhash.xxh3_128_intdigest(data).to_bytes(16, "little")


def naive_float(form: str) -> Callable[[float], bytes]:
    return lambda value: struct.pack(form, math.nan if math.isnan(value) else value + 0.0)


def naive_value(name: str, value: Any) -> bytes:
    """Return the hash of a value that is not null."""
    encode: dict[str, Callable[[Any], bytes]] = {
        "text": str.encode,
        "id": str.encode,
        "source": str.encode,
        "hash": bytes,
        "row": lambda number: number.to_bytes(8, "little", signed=True),
        "small": lambda number: number.to_bytes(1, "little", signed=True),
        "score": naive_float("<d"),
        "half": naive_float("<f"),
        "flag": lambda flag: bytes([flag]),
        "tokens": lambda numbers: struct.pack(f"<{len(numbers)}i", *numbers),
        "maybe": lambda numbers: b"".join(
            bytes(16) if number is None else naive_hash(struct.pack("<i", number))
            for number in numbers
        ),
        "names": lambda names: b"".join(naive_hash(each.encode()) for each in names),
    }
    if name == "pair":
        kinds = {"a": ("double", "score"), "b": ("string", "text")}
        return naive_hash(
            b"".join(
                naive_hash(f"{key}:{kind}".encode()) + naive_value(like, value[key])
                for key, (kind, like) in kinds.items()
                if value[key] is not None
            )
        )
    return naive_hash(encode[name](value))


def naive_digest(rows: list[dict[str, Any]]) -> int:
    total = 0
    for row in rows:
        fields = (
            naive_hash(f"{name}:{NAMES[name]}".encode()) + naive_value(name, row[name])
            for name in sorted(row)
            if row[name] is not None
        )
        total += xxhash.xxh3_128_intdigest(b"".join(fields))
    return total % 2**128


texts = st.text(st.characters(codec="utf-8"), max_size=20)
floats = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan])
integers = st.integers(-(2**31), 2**31 - 1)
values = {
    "text": texts,
    "hash": st.binary(max_size=20),
    "row": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-128, 127),
    "score": floats,
    "half": floats,
    "flag": st.booleans(),
    "tokens": st.lists(integers, max_size=5),
    "maybe": st.lists(st.none() | integers, max_size=5),
    "names": st.lists(texts, max_size=3),
    "pair": st.fixed_dictionaries({"a": st.none() | floats, "b": st.none() | texts}),
    "id": st.none(),
}
tables = st.lists(
    st.fixed_dictionaries({name: st.none() | each for name, each in values.items()}), max_size=8
)


@given(tables, st.data())
def test_the_digest_is_that_of_the_reference_however_rows_are_stored(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    expected = naive_digest(rows)
    assert digest_rows(table) == expected
    mixed = data.draw(st.permutations(range(len(rows))))
    order = data.draw(st.permutations(SCHEMA.names))
    cut = data.draw(st.integers(0, len(rows)))
    other = table.take(pa.array(mixed, pa.int64())).select(order)
    assert digest_rows(pa.concat_tables([other[:cut], other[cut:]])) == expected
    assert add_digests(map(digest_rows, (other[:cut], other[cut:]))) == expected
    assert digest_rows(table.drop_columns(["id"])) == expected, "all of its values are null"
    assert digest_rows(table.cast(large(table.schema))) == expected
    assert digest_rows(table.drop_columns(["row"])) == digest_rows(table, without={"row"})
    if rows:
        assert digest_rows(table, values={"id": "x"}) == naive_digest(
            [{**r, "id": "x"} for r in rows]
        )


def large(schema: pa.Schema) -> pa.Schema:
    """Return a schema with strings and bytes whose offsets are 64-bit."""
    kinds = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return pa.schema([field.with_type(kinds.get(field.type, field.type)) for field in schema])


DISTINCT: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", None, "a", "ab", "A", "a\0"]),
    (pa.int64(), [0, None, 1, -1, 256, 2**32]),
    (pa.float64(), [0.0, None, 1.0, -1.0, math.nan, math.inf]),
    (NUMBERS, [[], None, [0], [0, 0], [1, 2], [2, 1]]),
    (NULLABLE, [[], None, [None], [0], [None, None], [0, None], [None, 0]]),
    (STRINGS, [[], None, [""], ["", ""], ["ab"], ["a", "b"]]),
    (pa.bool_(), [True, False, None]),
]


def test_different_rows_have_different_digests() -> None:
    tables = [
        pa.table({name: pa.array([value], kind)})
        for name in ("a", "b")
        for kind, values in DISTINCT
        for value in values
        if value is not None or kind == pa.string()
    ]
    tables += [pa.table({"a": pa.array(part)}) for part in (["a", "b"], ["ab", ""], ["a", "a"])]
    tables += [pa.table({"a": ["x"], "b": ["y"]}), pa.table({"a": ["y"], "b": ["x"]})]
    digests = [digest_rows(table) for table in tables]
    same = [digest for digest in digests if digests.count(digest) > 1]
    assert len(same) == 2, "only rows of nulls are the same, whatever their column"
    assert 0 not in digests


def test_columns_of_different_types_differ() -> None:
    kinds = (pa.int32(), pa.int64(), pa.uint64(), pa.float64(), pa.string(), pa.binary())
    digests = {digest_rows(pa.table({"a": pa.array([1]).cast(pa.string()).cast(k)})) for k in kinds}
    assert len(digests) == len(kinds)


@pytest.mark.parametrize(
    ("plain", "other", "values"),
    [
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), ["a", None, "b", "a"]),
        (pa.string(), pa.string_view(), ["a", None, "b" * 30]),
        (pa.binary(), pa.binary_view(), [b"a", None, b"b" * 30]),
        (NUMBERS, pa.list_(NUMBERS.value_field, 2), [[1, 2], None, [3, 4]]),
        (NULLABLE, pa.list_(pa.int32(), 2), [[1, None], None, [2, 3]]),
        (STRINGS, pa.large_list(STRINGS.value_field), [["a", "b"], None, []]),
    ],
    ids=str,
)
def test_the_layout_of_a_column_does_not_matter(
    plain: pa.DataType, other: pa.DataType, values: list[Any]
) -> None:
    tables = [pa.table({"a": pa.array([None, *values], kind)}) for kind in (plain, other)]
    assert digest_rows(tables[0]) == digest_rows(tables[1])
    assert digest_rows(tables[0][2:]) == digest_rows(tables[1][2:])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("b", None)], [("b", 1)], [], [("a", 1)]]),
        (pa.decimal128(9, 2), [Decimal("1.10"), Decimal("1.00"), Decimal("-1.10")]),
        (pa.timestamp("us", "UTC"), [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]),
        (pa.date32(), [date(2026, 1, day) for day in (1, 2, 3)]),
        (pa.list_(NULLABLE), [[[1], [2]], [[1, 2]], [[1], None], [None], []]),
        (pa.list_(PAIR), [[{"a": 1.0, "b": None}], [{"a": None, "b": "x"}], [None], []]),
    ],
    ids=str,
)
def test_values_of_other_types_are_told_apart(kind: pa.DataType, values: list[Any]) -> None:
    table = pa.table({"a": pa.array([*values, None], kind)})
    digests = {digest_rows(table[k : k + 1]) for k in range(table.num_rows)}
    assert len(digests) == table.num_rows
    assert add_digests(digests) == digest_rows(table)


def test_values_of_different_rows_do_not_mix() -> None:
    one = pa.table({"a": ["x", "y"], "b": ["u", "v"]})
    other = pa.table({"a": ["x", "y"], "b": ["v", "u"]})
    assert digest_rows(one) != digest_rows(other)


def test_rows_that_occur_twice_count_twice() -> None:
    row = pa.table({"a": ["x"]})
    twice = pa.concat_tables([row, row])
    assert digest_rows(twice) == 2 * digest_rows(row) % 2**128
    assert add_digests([digest_rows(twice), -digest_rows(row)]) == digest_rows(row)
    assert digest_rows(row[:0]) == 0


@pytest.mark.parametrize("num_rows", [1, 8191, 8192, 8193, 20_000])
def test_many_rows_are_digested_in_parts(num_rows: int) -> None:
    numbers = np.random.default_rng(num_rows)
    names = [f"s{number}" for number in numbers.integers(0, 7, num_rows).tolist()]
    lists = [[k] * (k % 3) for k in range(num_rows)]
    table = pa.table({"source": names, "tokens": pa.array(lists, NUMBERS)})
    parts = digests_by(table, "source")
    assert {*parts} == {*names}
    for name, (count, digest) in parts.items():
        part = table.filter(pa.compute.equal(table["source"], name))
        assert (count, digest) == (part.num_rows, digest_rows(part))
    assert digest_rows(table) == add_digests(digest for _, digest in parts.values())
    rows = table.to_pylist()
    assert digest_rows(table[num_rows // 2 :]) == naive_digest(rows[num_rows // 2 :])
    assert digests_by(table[:0], "source") == {}


def test_the_digests_of_data_files_leave_out_what_depends_on_the_files(tmp_path: Path) -> None:
    schema = pa.schema(
        {"row": pa.int64(), "tokens": NUMBERS, "count": pa.int32(), "end": pa.int64()}
        | {"kind": pa.string()}
    )
    layout = Layout(
        partition_by=("kind",),
        statistics=("row",),
        bulk="tokens",
        running=("count", "end"),
        not_digested=("end",),
        row_group_bytes=40,
        file_bytes=200,
    )
    rows = pa.table(
        {
            "row": range(100),
            "tokens": pa.array([[k] * (k % 5) for k in range(100)], NUMBERS),
            "count": pa.array([k % 5 for k in range(100)], pa.int32()),
        }
    )
    digests = set()
    for some in (layout, replace(layout, file_bytes=1 << 20)):
        writer = DataFileWriter(str(tmp_path), schema, some, name="a" * 32, partition={"kind": "x"})
        writer.append(rows[:33])
        writer.append(rows[33:])
        files = writer.close()
        assert (len(files) > 1) == (some is layout)
        digests.add(add_digests(from_hex(str(file.digest)) for file in files))
    assert digests == {digest_rows(rows, values={"kind": "x"})}
    assert digests != {digest_rows(rows, values={"kind": "y"})}


@given(values=st.lists(st.text(max_size=5) | st.none(), max_size=30), cut=st.integers(0, 30))
def test_a_hash_stands_for_each_value(values: list[str | None], cut: int) -> None:
    chunks = [pa.array(part, pa.string()) for part in (values[:cut], values[cut:])]
    hashes = hash_column(pa.chunked_array(chunks)).to_pylist()
    naive = (None if v is None else naive_hash(v.encode())[:8] for v in values)
    assert hashes == [
        None if v is None else int.from_bytes(v, "little", signed=True) for v in naive
    ]
