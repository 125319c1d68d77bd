"""Samples have the right size, are reproducible, and larger samples contain smaller ones."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import RecipeError
from etl.stages import Sample
from etl.stages.apply import apply
from etl.stages.filters.sample import hash_positions
from tests.helpers.raw_rows import raw


def table(num_rows: int) -> pa.Table:
    hosts = [None if k % 10 == 0 else f"https://h{k % 7}.example/{k}" for k in range(num_rows)]
    return pa.table(
        {
            "id": [f"id-{k}" for k in range(num_rows)],
            "source": ["file:///a"] * num_rows,
            "row": range(num_rows),
            "url": pa.array(hosts, pa.string()),
            "text": [f"text {k % 50}" for k in range(num_rows)],
        }
    )


def kept(stage: Sample, rows: pa.Table) -> set[int]:
    measured = stage.measure(rows.select([n for n in stage.signals() if n in rows.column_names]))
    reasons = stage.reasons(measured).to_pylist()
    assert set(reasons) <= {None, "sample.out"}
    numbers = rows["row"].to_pylist()
    return {number for number, reason in zip(numbers, reasons, strict=True) if reason is None}


@pytest.mark.parametrize("by", ["row", "id", "url"])
@pytest.mark.parametrize("fraction", [0.0, 0.01, 0.2, 0.5, 1.0])
def test_the_number_of_rows_is_close_to_the_fraction(by, fraction):
    num_kept = len(kept(Sample(fraction=fraction, by=by), table(20_000)))
    deviation = (20_000 * fraction * (1 - fraction)) ** 0.5
    assert abs(num_kept - 20_000 * fraction) <= 4 * deviation


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**64 - 1))
def test_a_larger_sample_contains_the_smaller(one, other, seed):
    small, large = (
        kept(Sample(fraction=fraction, seed=seed), table(50)) for fraction in sorted((one, other))
    )
    assert small <= large


@given(st.permutations(range(12)), st.integers(0, 12))
def test_the_sample_does_not_depend_on_order_and_batches(order, cut):
    stage, rows = Sample(fraction=0.5), table(12).take(pa.array(order))
    assert kept(stage, rows[:cut]) | kept(stage, rows[cut:]) == kept(stage, table(12))


def test_positions_are_pinned():
    """Positions must not change between releases."""
    measured = Sample(fraction=0.5).measure(table(3))["sample_position"].to_pylist()
    assert measured == hash_positions(["file:///a\n0", "file:///a\n1", "file:///a\n2"], 0).tolist()
    assert [round(position, 6) for position in measured] == [0.793887, 0.83218, 0.851045]


def test_another_seed_gives_another_sample():
    one, other = (kept(Sample(fraction=0.5, seed=seed), table(2000)) for seed in (0, 1))
    assert 400 < len(one & other) < 600


@pytest.mark.parametrize(("by", "column"), [("host", "url"), ("content", "text")])
def test_rows_with_the_same_key_are_kept_or_rejected_together(by, column):
    rows = table(700)
    in_sample = kept(Sample(fraction=0.5, by=by), rows)
    keys = rows[column].to_pylist()
    if by == "host":
        keys = [key if key is None else key.partition("/")[2].split("/")[1] for key in keys]
    inside = {keys[k] for k in in_sample} - {None}
    outside = {keys[k] for k in range(700) if k not in in_sample} - {None}
    assert inside
    assert outside
    assert not inside & outside


def test_rows_with_a_null_key_are_sampled_by_address():
    rows = table(2000)
    nulls = {k for k in range(2000) if k % 10 == 0}
    in_sample = kept(Sample(fraction=0.5, by="host"), rows) & nulls
    assert in_sample == kept(Sample(fraction=0.5), rows) & nulls
    assert 60 < len(in_sample) < 140


@pytest.mark.parametrize("by", ["row", "id", "url", "host", "content"])
def test_rows_without_text_have_no_position(by):
    result = apply(raw(["one", None, "two"]), [Sample(fraction=1.0, by=by)])
    assert result["reason"].to_pylist() == [None, "source.null_text", None]
    first, null, last = result["sample_position"].to_pylist()
    assert null is None
    assert 0 <= min(first, last) <= max(first, last) < 1


def test_a_position_equal_to_the_fraction_is_rejected():
    stage = Sample(fraction=0.25)
    rows = pa.table({"sample_position": [np.nextafter(0.25, 0), 0.25, np.nextafter(0.25, 1)]})
    assert stage.reasons(rows).to_pylist() == [None, "sample.out", "sample.out"]


@pytest.mark.parametrize("fraction", [-0.1, 1.1, "half", None])
def test_invalid_fractions_are_rejected(fraction):
    with pytest.raises(RecipeError):
        Sample(fraction=fraction)
