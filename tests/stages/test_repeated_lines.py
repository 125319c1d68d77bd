"""Remove repeated lines and paragraphs: compare with a naive version; unchanged text is not copied."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.stages import RepeatedLines, RepeatedParagraphs
from tests.helpers.naive_repeats import naive, texts

STAGES = [(RepeatedLines, "line"), (RepeatedParagraphs, "paragraph")]


def table(documents) -> pa.Table:
    return pa.table({"text": pa.array(documents, pa.string())})


@pytest.mark.parametrize(("kind", "unit"), STAGES)
@given(documents=st.lists(st.none() | texts, max_size=4), min_chars=st.integers(0, 3))
def test_text_and_counts_agree_with_a_naive_version(kind, unit, documents, min_chars):
    stage = kind.model_validate({f"min_{unit}_chars": min_chars})
    result = stage.apply(table(documents))
    assert result.column_names == ["text", *stage.columns()]
    for text, row in zip(documents, result.to_pylist(), strict=True):
        expected: list[object] = [None] * 4
        if text is not None:
            paragraphs = unit == "paragraph"
            rest, number = naive(text, paragraphs=paragraphs, min_chars=min_chars, ignore=0)
            expected = [rest, number, len(text) - len(rest), len(rest)]
        assert [*row.values()] == expected


@pytest.mark.parametrize(("kind", "unit"), STAGES)
def test_text_without_repeats_is_not_copied(kind, unit):
    before = table(["home\n\n" + "news " * 12, None, ""])  # fewer than 64 bytes would be copied
    after = kind().apply(before)
    assert buffers(after["text"]).data.ctypes.data == buffers(before["text"]).data.ctypes.data


def test_the_counts_of_real_documents_add_up(data):
    documents = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["text"]).slice(0, 1500)
    for stage in (RepeatedLines(), RepeatedParagraphs(ignore=("case", "space", "digits"))):
        result = stage.apply(documents)
        columns = [result[name].to_pylist() for name in stage.columns()]
        for before, after, units, removed_chars, chars_left in zip(
            documents["text"].to_pylist(), result["text"].to_pylist(), *columns, strict=True
        ):
            assert removed_chars == len(before) - len(after)
            assert chars_left == len(after)
            assert (units > 0) == (before != after)
        assert sum(columns[0]) > 500
