"""Exact deduplication against a naive reference, with one partition and with a real shuffle."""

import random

import pyarrow as pa
import pytest
from distributed import Client
from upath import UPath

from etl.compute import frame_shuffles
from etl.dedup import file_groups, run_passes
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import NumberedFile
from etl.stages import DedupExact
from tests.helpers.document_files import write_documents
from tests.helpers.paths import opened

Address = tuple[int, int]


@pytest.fixture(scope="module")
def client(process_client: Client) -> Client:
    """Send the tasks to other processes; the other tests of this folder use one in this process."""
    return process_client


def naive(files: list[list[int]], earlier: list[bool]) -> dict[Address, Address]:
    """Map each duplicate to its keeper: rows that arrived earlier come first, then rows by address."""
    order = sorted(range(len(files)), key=lambda number: (not earlier[number], number))
    keepers: dict[int, Address] = {}
    duplicates = {}
    for number in order:
        for row, value in enumerate(files[number]):
            keeper = keepers.setdefault(value, (number, row))
            if keeper != (number, row) and not earlier[number]:
                duplicates[number, row] = keeper
    return duplicates


@pytest.mark.parametrize("rows_per_partition", [10**6, 60])
def test_duplicates_match_the_naive_reference(
    client: Client, place: UPath, monkeypatch: pytest.MonkeyPatch, rows_per_partition: int
) -> None:
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", rows_per_partition)
    monkeypatch.setattr(file_groups, "FILES_PER_DUPLICATES_FILE", 3)
    rng = random.Random(7)
    files = [[rng.randrange(90) << rng.choice([0, 70]) for _ in range(20)] for _ in range(10)]
    earlier = [number % 3 == 1 for number in range(10)]
    units = [write_documents(str(place), number, hashes) for number, hashes in enumerate(files)]
    data_files = [
        NumberedFile(
            number, unit.source, unit.key, unit.files, unit.rows, is_earlier, is_earlier, ()
        )
        for number, (unit, is_earlier) in enumerate(zip(units, earlier, strict=True))
    ]
    lake = DocumentReader(str(place), (DedupExact(),))
    fragments = run_passes.find_duplicates(client, data_files, lake, name="f" * 32)
    written = [opened(place / "duplicates" / fragment.path).read() for fragment in fragments]
    rows = pa.concat_tables(written).to_pylist()
    keepers = {
        (int(row["source"][-3:]), row["row"]): (int(row["keeper_source"][-3:]), row["keeper_row"])
        for row in rows
    }
    assert keepers == naive(files, earlier)
    assert len(rows) == len(keepers)
    assert all(row["id"] == f"{int(row['source'][-3:])}-{row['row']}" for row in rows)
    assert {row["unit"] for row in rows} <= {unit.key for unit in units}
