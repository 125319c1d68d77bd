"""Merges of the data files of ``keys``: look-ups open few files and find all keys."""

import random
from collections.abc import Iterator
from math import log

import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl.audit.verify.verify import verify
from etl.dedup import key_merger
from etl.dedup.key_merger import RUNS_PER_LEVEL, files_to_merge
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.job.run import run
from etl.lake.commit_info import fields_of
from etl.lake.keys_table import KeyFile, list_key_files
from etl.lake.ledger import key_of
from etl.recipe.recipe import Recipe
from etl.stages import DedupMinhash, DedupParagraphs
from tests.helpers.cluster import cluster
from tests.helpers.lake_rows import rows
from tests.helpers.near_duplicates import make, tangled, write

NEAR = DedupMinhash(verify="exact", bands=28, rows=4, min_similarity=0.7)
LINES = DedupParagraphs(unit="lines", min_chars=12, min_rest_chars=60)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start a cluster inside this process, which is faster for many small runs."""
    with cluster(threads=2) as client:
        yield client


def key_file(run: int, part: int, num_rows: int) -> KeyFile:
    file = LogicalFile(f"kind=exact/{run:032}-{part:012}-0.parquet")
    return KeyFile("keys", file, "exact", 0, 9, num_rows)


@given(st.integers(1, 400), st.integers(1, 50), st.integers(1, 3))
def test_runs_stay_few_and_keys_are_rewritten_rarely(
    num_runs: int, num_rows: int, parts: int
) -> None:
    """Every run adds about as many keys, in one file or in several."""
    rng = random.Random(num_runs)
    files: list[KeyFile] = []
    added = rewritten = 0
    for number in range(num_runs):
        sizes = [rng.randint(num_rows, 2 * num_rows) for _ in range(parts)]
        files += [key_file(2 * number, part, size) for part, size in enumerate(sizes)]
        added += sum(sizes)
        if merged := files_to_merge(files):
            total = sum(file.rows for file in merged)
            files = [file for file in files if file not in merged]
            files.append(key_file(2 * number + 1, 0, total))
            rewritten += total
        assert sum(file.rows for file in files) == added
        levels = 2 + log(number + 1, RUNS_PER_LEVEL)
        assert len({file.file.path[:45] for file in files}) <= (RUNS_PER_LEVEL - 1) * levels
        assert rewritten <= added * levels


def key_rows(recipe: Recipe) -> list[tuple[object, ...]]:
    """Return the rows of ``keys`` without the ids of data files, which are other ones in each lake."""
    table = Table.open(f"{recipe.lake}/keys").dataset().to_table().drop_columns(["unit"])
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.slow
def test_merges_change_no_keys_and_no_decisions(
    client: Client, place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, source = tangled(4, 40), place / "in"
    for k, record in enumerate(records):
        record["body"] = str(record["body"]).replace(" ", "\n" if k % 2 else " ", 20)
    stages = ["dedup_exact", NEAR, LINES]
    merged, whole = (make(place / name, source, *stages) for name in ("merged", "whole"))
    monkeypatch.setattr(key_merger, "RUNS_PER_LEVEL", 2)
    monkeypatch.setattr(key_merger, "_KEYS_PER_FILE", 300)
    for first in range(0, 40, 8):
        write(source, records[first : first + 8], 1, first)
        run(merged, cluster=client)
    run(whole, cluster=client)
    table = Table.open(f"{merged.lake}/keys")
    files = list_key_files(table)
    runs = {(file.kind, key_of(file.file.path)) for file in files}
    assert len(runs) < 3 * 5
    assert len(files) > len(runs)  # a file for each range of keys
    actions = [entry["action"] for e in table.history() if (entry := fields_of(e))]
    assert actions.count("optimize") > 1
    assert key_rows(merged) == key_rows(whole)
    assert rows(merged.lake, "duplicates") == rows(whole.lake, "duplicates")
    assert verify(str(merged.lake)) == []
