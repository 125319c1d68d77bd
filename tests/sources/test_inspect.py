"""Inspecting files of any format and column names."""

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from etl.errors import SourceError
from etl.sources.inspect import choose_columns, inspect_source

TEXTS = [f"Page {n} has a text that is longer than its title." for n in range(30)]
ROWS = [
    {"Title": "One", "body": text, "DocId": f"d{n}", "link": f"https://example.org/{n}", "n": n}
    for n, text in enumerate(TEXTS)
]


def write_parquet(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "a.parquet")
    return folder / "a.parquet"


def write_arrow(folder: Path) -> Path:
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    return folder / "a.arrow"


def write_stream(folder: Path) -> Path:
    table = pa.Table.from_pylist(ROWS)
    with pa.ipc.new_stream(folder / "s.arrow", table.schema) as writer:
        writer.write_table(table)
    return folder / "s.arrow"


def write_jsonl(folder: Path) -> Path:
    lines = ["not JSON", *(json.dumps(row) for row in ROWS)]
    (folder / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder / "a.jsonl.gz"


def write_csv(folder: Path) -> Path:
    with (folder / "a.tsv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(ROWS)
    return folder / "a.tsv"


def write_delta(folder: Path) -> Path:
    write_deltalake(folder / "table", pa.Table.from_pylist(ROWS))
    return folder / "table"


def write_unnamed(folder: Path) -> Path:
    """JSON Lines in a file without an extension."""
    (folder / "part-0").write_text("\n".join(json.dumps(row) for row in ROWS))
    return folder / "part-0"


@pytest.mark.parametrize(
    "write",
    [
        write_parquet,
        write_arrow,
        write_stream,
        write_jsonl,
        write_csv,
        write_delta,
        write_unnamed,
    ],
)
def test_the_columns_of_every_format_are_found(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    facts = inspect_source([str(write(tmp_path))])
    columns = facts.source.columns
    assert (columns.text, columns.id, columns.url) == ("body", "DocId", "link")
    assert facts.other_columns == ("Title", "n")
    assert set(facts.documents["text"].to_pylist()) - {None} == set(TEXTS)
    assert facts.errors == ()


def test_files_without_columns_need_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A text.")
    facts = inspect_source([str(tmp_path)])
    assert facts.formats[0].columns == ()
    assert facts.documents["text"].to_pylist() == ["A text."]


def test_a_format_that_lacks_the_text_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    (tmp_path / "b.jsonl").write_text('{"content": "x"}\n')
    facts = inspect_source([str(tmp_path)])
    assert facts.source.columns.text == "body"
    assert [each.format for each in facts.lacking_text] == ["jsonl"]


def test_a_damaged_file_is_left_out(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 damaged")
    facts = inspect_source([str(tmp_path)])
    assert facts.formats[0].files == 2
    assert [error.where for error in facts.errors] == [f"file://{tmp_path}/b.parquet"]
    assert len(facts.documents) == len(ROWS)


def test_values_that_python_lacks_are_no_error(tmp_path: Path) -> None:
    numbers = pa.array([2**62, 1], pa.int64())
    table = pa.table(
        {
            "text": pa.array([b"\xff", TEXTS[0].encode()]).view(pa.string()),
            "date": pa.array([10**7, 1], pa.int32()).view(pa.date32()),
            "time": numbers.view(pa.timestamp("us")),
            "duration": numbers.view(pa.duration("us")),
            "zone": numbers.view(pa.timestamp("us", tz="Mars/Phobos")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    facts = inspect_source([str(tmp_path)])
    assert facts.source.columns.text == "text"
    assert facts.formats[0].columns == tuple(table.column_names)


def test_files_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "b.parquet").write_bytes(b"PAR1 damaged")
    with pytest.raises(SourceError, match=r"b\.parquet: cannot be read as parquet"):
        inspect_source([str(tmp_path)])
    (tmp_path / "n.jsonl").write_text('{"a": 1, "b": 2}\n')
    with pytest.raises(SourceError, match="no column holds text") as error:
        inspect_source([str(tmp_path / "n.jsonl")])
    assert error.value.hint == "the columns are: a, b"


def test_names_and_lengths_choose_the_text() -> None:
    long, short = "long " * 50, "short"
    assert choose_columns([{"text": short, "abstract": long}]).text == "abstract"
    assert choose_columns([{"text": long, "content": long + long}]).text == "text"
    assert choose_columns([{"id": None, "CONTENT": long}, {"id": "1", "CONTENT": long}]).id is None
    both = [{"id": n, "text": long} for n in range(2)]
    assert choose_columns(both).id == "id"
    assert choose_columns([{**row, "id": 1} for row in both]).id is None, "it is not unique"
