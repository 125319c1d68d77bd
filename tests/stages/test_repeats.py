"""Repeated lines and paragraphs cut by their stages: what is fine is not copied, no number is lost."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.stages import RepeatedLines, RepeatedParagraphs
from tests.kernels.test_repeats import naive, texts

STAGES = [(RepeatedLines, "line"), (RepeatedParagraphs, "paragraph")]


def table(documents) -> pa.Table:
    return pa.table({"text": pa.array(documents, pa.string())})


@pytest.mark.parametrize(("kind", "unit"), STAGES)
@given(documents=st.lists(st.none() | texts, max_size=4), shortest=st.integers(0, 3))
def test_text_and_numbers(kind, unit, documents, shortest):
    stage = kind.model_validate({f"min_{unit}_chars": shortest})
    result = stage.apply(table(documents))
    assert result.column_names == ["text", *stage.columns()]
    for text, row in zip(documents, result.to_pylist(), strict=True):
        expected: list[object] = [None] * 4
        if text is not None:
            paragraphs = unit == "paragraph"
            rest, number = naive(text, paragraphs=paragraphs, min_chars=shortest, ignore=0)
            expected = [rest, number, len(text) - len(rest), len(rest)]
        assert [*row.values()] == expected


@pytest.mark.parametrize(("kind", "unit"), STAGES)
def test_what_is_fine_is_not_copied(kind, unit):
    before = table(["home\n\n" + "news " * 12, None, ""])  # fewer than 64 bytes would be
    after = kind().apply(before)
    assert buffers(after["text"]).data.ctypes.data == buffers(before["text"]).data.ctypes.data


def test_the_numbers_of_real_documents_add_up(data):
    documents = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["text"]).slice(0, 1500)
    for stage in (RepeatedLines(), RepeatedParagraphs(ignore=("case", "space", "digits"))):
        result = stage.apply(documents)
        cut, chars, left = (result[name].to_pylist() for name in stage.columns())
        for before, after, *numbers in zip(
            documents["text"].to_pylist(), result["text"].to_pylist(), cut, chars, left, strict=True
        ):
            assert numbers[1] == len(before) - len(after)
            assert numbers[2] == len(after)
            assert (numbers[0] > 0) == (before != after)
        assert sum(cut) > 500
