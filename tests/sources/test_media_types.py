"""The media type that a container gives its texts."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import feather
from pyarrow import parquet as pq

from etl.errors import SourceError
from etl.sources import Columns, Source
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from tests.helpers.warc_archives import conversion, http, record, response

ROWS = [{"text": "a<br>b", "mime": "text/html"}, {"text": "c", "mime": "text/plain; charset=utf-8"}]


def _write_csv(table: pa.Table, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, table.column_names)
        writer.writeheader()
        writer.writerows(table.to_pylist())


WRITERS = {
    "a.parquet": pq.write_table,
    "a.arrow": lambda table, path: feather.write_feather(table, path, "uncompressed"),
    "a.jsonl": lambda table, path: path.write_text("\n".join(map(json.dumps, table.to_pylist()))),
    "a.csv": _write_csv,
    "delta": lambda table, path: write_deltalake(path, table, partition_by=["mime"]),
}


def _media_types(source: Source) -> list[tuple[str | None, str | None]]:
    tables = [table for split in list_splits(source) for table in read_split(split, source)]
    return sorted(zip(*(pa.concat_tables(tables)[name].to_pylist() for name in _READ), strict=True))


_READ = ("text", "media_type")


@pytest.mark.parametrize("name", WRITERS)
def test_a_column_may_hold_the_media_type(tmp_path, name: str) -> None:
    WRITERS[name](pa.Table.from_pylist(ROWS), tmp_path / name)
    source = Source(path=str(tmp_path / name), columns=Columns(media_type="mime"))
    assert _media_types(source) == [(row["text"], row["mime"]) for row in ROWS]
    assert _media_types(Source(path=str(tmp_path / name))) == [("a<br>b", None), ("c", None)]


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "delta"])
def test_a_missing_column_is_an_error(tmp_path, name: str) -> None:
    WRITERS[name](pa.Table.from_pylist(ROWS), tmp_path / name)
    source = Source(path=str(tmp_path / name), columns=Columns(media_type="mimes"))
    with pytest.raises(SourceError, match="no column 'mimes'\n.*mime"):
        _media_types(source)


def test_a_record_has_the_type_of_its_response_or_its_own(tmp_path) -> None:
    detected = record(
        "response",
        3,
        http(b"three", Content_Type="image/png"),
        Content_Type="application/http; msgtype=response",
        WARC_Identified_Payload_Type="application/xhtml+xml",
    )
    records = [
        response(1, b"one", Content_Type='Text/HTML; charset="utf-8"'),
        response(2, b"two", Content_Type=None),
        detected,
        record("resource", 4, b"four", Content_Type="text/markdown"),
        conversion(5, "five"),
    ]
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    assert dict(_media_types(Source(path=str(tmp_path / "a.warc")))) == {
        "one": "text/html",
        "two": None,
        "three": "application/xhtml+xml",
        "four": "text/markdown",
        "five": "text/plain",
    }
