"""Marks in footers equal the pages that a reader finds, or there are none."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.parquet.page_marks import MarkedOutput, find_marks, parse_marks
from etl.parquet.plain_pages import Pages, plain_chunk

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=40)


def write(path: Path, groups: list[list[int]], **options: object) -> None:
    """Write row groups of lists of these lengths, with marks in the footer."""
    with pa.OSFile(str(path), "wb") as file:
        output = MarkedOutput(file)
        element = pa.field("element", pa.int32(), nullable=False)
        schema = pa.schema(
            [
                pa.field("id", pa.string()),
                pa.field("tokens", pa.list_(element), nullable=False),
                pa.field("n", pa.int64()),
            ]
        )
        settings = {"use_dictionary": ["id"], "data_page_size": 64, "write_batch_size": 2}
        with pq.ParquetWriter(output, schema, **(settings | options)) as writer:
            for lengths in groups:
                rows = [{"id": "a", "tokens": list(range(n)), "n": n} for n in lengths]
                table = pa.Table.from_pylist(rows, schema=schema)
                writer.write_table(table, row_group_size=len(rows))
                output.end_row_group(table, "tokens")
            writer.add_key_value_metadata(output.metadata())


@given(st.lists(LENGTHS, min_size=1, max_size=3), st.sampled_from(["none", "lz4", "zstd"]))
def test_marks_are_where_pages_begin(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[int]], compression: str
) -> None:
    path = tmp_path_factory.mktemp("file") / "a.parquet"
    write(path, groups, compression=compression)
    footer, content = pq.read_metadata(path), path.read_bytes()
    marks = parse_marks(find_marks(footer.metadata))
    assert len(marks) == len(groups)
    for number, (firsts, offsets) in enumerate(marks):
        chunk = plain_chunk(footer.row_group(number).column(1))
        assert chunk is not None
        if not offsets.size:  # another column may have as many values
            assert max(groups[number]) < 2 or len(groups[number]) > 1
            continue
        assert offsets[0] == chunk.start
        begins = [first for first, _ in Pages(lambda a, n, _: content[a : a + n], chunk)]
        assert firsts.tolist() == begins
        for first, offset in zip(firsts.tolist(), offsets.tolist(), strict=True):
            rest = chunk._replace(start=offset, size=chunk.start + chunk.size - offset)
            values = [page for _, page in Pages(lambda a, n, _: content[a : a + n], rest)]
            tokens = [token for length in groups[number] for token in range(length)]
            assert np.concatenate(values).tolist() == tokens[first:]


@pytest.mark.parametrize(
    ("lengths", "options"),
    [
        ([30] * 20, {"data_page_version": "2.0"}),
        ([1, 0, 1] * 9, {}),
        ([1] * 9, {"use_dictionary": False}),
    ],
)
def test_pages_that_cannot_be_told_apart_have_no_marks(
    tmp_path: Path, lengths: list[int], options: dict[str, Any]
) -> None:
    path = tmp_path / "a.parquet"
    write(path, [lengths], **options)
    (marks,) = parse_marks(find_marks(pq.read_metadata(path).metadata))
    assert marks.size == 0
    assert parse_marks(find_marks(None)) == []
