"""Bounds of strings in the log: short, never wrong, and understood by other readers."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.parquet.statistics_collector import StatisticsCollector, prefix_bounds
from tests.helpers.delta_engines import READERS
from tests.helpers.hostile_strings import (
    HOSTILE,
    comparisons,
    find_wrong_counts,
    write_hostile_table,
)
from tests.helpers.paths import at

LAST = "\U0010ffff"
EDGES = st.sampled_from(["a", "b", "\x00", "\x7f", "\ud7ff", "\ue000", "\U0010fffe", LAST])
STRINGS = st.text(EDGES, max_size=40) | st.text(max_size=40) | st.sampled_from(HOSTILE)


@given(st.lists(STRINGS, min_size=1, max_size=8))
def test_bounds_include_all_values_in_the_order_of_bytes(values: list[str]) -> None:
    low, high = prefix_bounds(min(values), max(values))
    assert all(low.encode() <= value.encode() <= high.encode() for value in values)
    if low == high:
        assert set(values) == {low}


@given(STRINGS)
def test_bounds_do_not_contain_the_value(value: str) -> None:
    low, high = prefix_bounds(value, value)
    assert len(low) <= min(16, len(value) // 2)
    if value.strip(LAST):
        assert value not in (low, high)
    if LAST not in value:
        assert len(high) <= max(1, min(16, len(value) // 2))


def test_only_a_lookup_column_has_whole_strings() -> None:
    collector = StatisticsCollector(("id", "source", "row"), lookup=("source",))
    ids, source = ["maria@mail.test", "peter@mail.test"], "s3://raw/" + "x" * 1000
    collector.update(pa.table({"id": ids, "source": [source] * 2, "row": [3, 7]}))
    statistics = json.loads(collector.to_json())
    assert statistics["minValues"] == {"id": "maria@m", "source": source, "row": 3}
    assert statistics["maxValues"] == {"id": "peter@n", "source": source, "row": 7}


@pytest.mark.parametrize("reader", ["pyarrow", "datafusion", "polars"])
def test_every_id_is_found_by_other_readers(tmp_path: Path, reader: str) -> None:
    write_hostile_table(at(tmp_path), 1)
    asked = comparisons("=", ["id"])  # `make test-engines` asks more
    assert find_wrong_counts(asked, READERS[reader](str(tmp_path), asked)) == []
