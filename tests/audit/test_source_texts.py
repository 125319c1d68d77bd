"""Texts read again from the input equal those that a run reads, whatever the format and the pieces."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from etl import schemas
from etl.audit.source_texts import read_texts
from etl.sources import Source
from etl.sources.list_splits import list_splits, number_splits
from etl.sources.read_split import count_records, read_split

TEXTS = [f"text {number} " + "x" * (number % 50) for number in range(400)]
TABLE = pa.table({"text": TEXTS})


def write(folder: Path, name: str) -> None:
    folder.mkdir()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    match name:
        case "parquet":
            pq.write_table(TABLE, folder / "a.parquet", row_group_size=30)
        case "jsonl":
            (folder / "a.jsonl").write_text(lines)
        case "gzip":
            (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        case "csv":
            pyarrow.csv.write_csv(TABLE, folder / "a.csv")
        case "arrow":
            pyarrow.feather.write_feather(TABLE, str(folder / "a.arrow"), chunksize=30)
        case "delta":
            write_deltalake(str(folder), TABLE)


@pytest.mark.parametrize("name", ["parquet", "jsonl", "gzip", "csv", "arrow", "delta"])
def test_the_texts_are_those_that_a_run_reads(name: str, tmp_path: Path) -> None:
    write(tmp_path / "in", name)
    source = Source(path=str(tmp_path / "in"), split_bytes=2000)
    splits = list(list_splits(source))
    assert len(splits) > 1 or name in ("gzip", "csv", "delta")
    numbered = number_splits(splits, [count_records(s) if len(splits) > 1 else 0 for s in splits])
    expected = {
        row: text
        for split in numbered
        for batch in read_split(split, source)
        for row, text in zip(batch["row"].to_pylist(), batch["text"].to_pylist(), strict=True)
    }
    first = splits[0]
    file = schemas.InputFile(
        uri=first.uri,
        size=first.size,
        fingerprint=first.fingerprint,
        rows=len(TEXTS),
        version=first.version,
    )
    wanted = {0, 29, 30, 31, 200, 399}
    assert read_texts([file], file.uri, wanted, source) == (
        {row: expected[row] for row in wanted},
        None,
    )
    texts, why = read_texts([file], file.uri, {5, 400}, source)
    assert texts == {5: expected[5]}
    assert why == "the record has no text"


def test_a_file_that_the_log_does_not_name_gives_no_text() -> None:
    _, why = read_texts([], "a.jsonl", {1}, Source(path="a.jsonl"))
    assert why == "no lineage record lists its input file a.jsonl"
