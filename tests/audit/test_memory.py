"""Commands that read whole logs hold little for each data file."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from etl import schemas
from etl.compact_collections import digest
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.table_specs import DOCUMENTS
from etl.parquet.data_file import DataFile, DataFileWriter

COMMANDS = {
    "vacuum": "etl.vacuum({lake!r})",
    "report": "etl.report({lake!r})",
    "verify --quick": "assert not etl.verify({lake!r}, quick=True)",
}
COUNTS = (10_000, 30_000)
MAX_BYTES_PER_FILE = 2000  # of process memory, with a wide margin
SCHEMA = schemas.documents([])


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Lakes with different numbers of data files."""
    return [make_lake(tmp_path_factory.mktemp("lake"), count) for count in COUNTS]


def make_lake(folder: Path, count: int) -> str:
    """Commit links to one data file of ``documents``, 250 at a time."""
    ledger = Ledger(f"file://{folder}/documents", fingerprint="f" * 64)
    ledger.create(SCHEMA, DOCUMENTS.layout)
    files = links(ledger.url, count)
    while batch := list(islice(files, 250)):
        ledger.commit([LedgerEntry(key, [file]) for key, file in batch], lambda *_: None)
    assert ledger.table is not None
    ledger.table.checkpoint()  # an open table holds the commits after its last checkpoint
    return str(folder)


def links(url: str, count: int) -> Iterator[tuple[str, DataFile]]:
    """Link one data file under many names; yield the key of each with its entry in the log."""
    columns: dict[str, list[object]] = {name: [None] for name in SCHEMA.names}
    columns |= {"source": ["s3://raw/a.parquet"], "row": [0], "verdict": ["kept"]}
    writer = DataFileWriter(
        url, SCHEMA, DOCUMENTS.layout, name="f" * 32, partition={"verdict": "kept"}
    )
    writer.append(pa.table(columns, schema=SCHEMA))
    [first] = writer.close()
    table = Path(url.removeprefix("file://"))
    for number in range(count):
        key = digest(str(number)).hex()
        path = first.path.replace("f" * 32, key)
        os.link(table / first.path, table / path)
        yield key, replace(first, path=path)


def peak_memory(code: str) -> int:
    """Return the most memory in bytes that a new process needs to run some code."""
    # Not ru_maxrss: a new process inherits its parent's.
    code = f"import etl; {code}; print(open('/proc/self/status').read())"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return int(result.stdout.split("VmHWM:")[1].split()[0]) << 10


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_memory_hardly_grows_with_the_number_of_data_files(command: str, lakes: list[str]) -> None:
    few, many = (peak_memory(COMMANDS[command].format(lake=lake)) for lake in lakes)
    growth = (many - few) / (COUNTS[1] - COUNTS[0])
    assert growth < MAX_BYTES_PER_FILE, f"{few >> 20} and {many >> 20} MiB"
