"""Rows have the same number if and only if they are equal."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.lake.row_numbers import number_rows

WHOLE = st.sampled_from([-(2**63), -1, 0, 1, 5, 2**40, 2**63 - 1])
COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): WHOLE,
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    pa.string(): st.sampled_from(["", "a", "b", "ab"]),
    pa.binary(): st.binary(max_size=2),
    pa.bool_(): st.booleans(),
}


@given(data=st.data(), types=st.lists(st.sampled_from([*COLUMNS]), min_size=1, max_size=5))
def test_equal_rows_have_equal_numbers(data: st.DataObject, types: list[pa.DataType]) -> None:
    values = [
        COLUMNS[kind] if data.draw(st.booleans()) else COLUMNS[kind] | st.none() for kind in types
    ]
    rows = data.draw(st.lists(st.tuples(*values), max_size=12))
    half = data.draw(st.integers(0, len(rows)))
    schema = pa.schema([(str(number), kind) for number, kind in enumerate(types)])
    parts = [
        pa.table([pa.array([row[n] for row in part], kind) for n, kind in enumerate(types)], schema)
        for part in (rows[:half], rows[half:])
    ]
    numbers = number_rows(pa.concat_tables(parts)).tolist()
    assert all(number >= 0 for number in numbers)
    pairs = {*zip(rows, numbers, strict=True)}
    assert len(pairs) == len({*rows}) == len({*numbers})


@pytest.mark.parametrize("rows", [pa.table({}), pa.table({"a": pa.array([], pa.string())})])
def test_no_rows_have_no_numbers(rows: pa.Table) -> None:
    assert number_rows(rows).tolist() == []


def test_many_columns_of_large_integers_do_not_overflow() -> None:
    low, high = -(2**61), 2**61 - 1
    rows = [(a, b, c) for a in (low, 0, high) for b in (low, high) for c in (low, 1, high)]
    columns = {str(n): pa.array([row[n] for row in rows], pa.int64()) for n in range(3)}
    assert len({*number_rows(pa.table(columns)).tolist()}) == len(rows)
