"""Write lists of files, and indexes of records as Common Crawl has them."""

import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.helpers.warc_archives import record, response

INDEX = pa.schema(
    [
        ("url", pa.string()),
        ("warc_filename", pa.string()),
        ("warc_record_offset", pa.int32()),
        ("warc_record_length", pa.int32()),
    ]
)

Row = tuple[Any, Any, Any]  # file name, offset, length


def crawl_file(numbers: Iterable[int], name: str) -> tuple[bytes, list[Row]]:
    """A WARC file with a request, a page and metadata for each number, and the index rows of the pages."""
    content, rows = b"", list[Row]()
    for number in numbers:
        request = record("request", number, b"GET / HTTP/1.1\r\n\r\n")
        metadata = record("metadata", number, b"fetchTimeMs: 1")
        body = f"<html><p>Page {number} of {name}".encode()
        content += gzip.compress(request, mtime=0)
        packed = gzip.compress(response(number, body), mtime=0)
        rows.append((name, len(content), len(packed)))
        content += packed + gzip.compress(metadata, mtime=0)
    return content, rows


def write_index(path: Path, rows: Sequence[Row], schema: pa.Schema = INDEX) -> Path:
    """Write rows of an index as a Parquet file."""
    columns = [["https://example.org/"] * len(rows), *map(list, zip(*rows, strict=True))]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns, schema=schema), path)
    return path


def write_list(path: Path, names: Iterable[str]) -> Path:
    """Write a list of paths; as gzip if it is named so."""
    content = "".join(f"{name}\n" for name in names).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
