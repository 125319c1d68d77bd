"""Decisions that are made again: after some were lost, they equal the decisions of the first time."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.verify.verify import verify
from etl.job.run import run
from tests.helpers.arrivals import LINES, LONGEST, NEAR, corpus, forget
from tests.helpers.cluster import cluster
from tests.helpers.lake_rows import Row, rows
from tests.helpers.near_duplicates import make, write


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start a cluster inside this process, which is faster for many small runs."""
    with cluster(threads=2) as client:
        yield client


STAGES: dict[str, list[Any]] = {
    "exact": ["dedup_exact"],
    "near": [NEAR],
    "longest": ["dedup_exact", LONGEST],
    "lines": [LINES],
    "all": ["dedup_exact", NEAR, LINES],
}
SLOW = [
    pytest.param(stages, seed, marks=pytest.mark.slow)  # each takes four runs
    for seed in range(5)
    for stages in STAGES
    if seed or stages != "all"
]


@pytest.mark.parametrize(("stages", "seed"), [("all", 0), *SLOW])
def test_forgotten_decisions_are_made_again_as_before(
    client: Client, place: UPath, stages: str, seed: int
) -> None:
    """Files of several arrivals are decided; the decisions on any of them are lost."""
    rng = random.Random(f"{stages} {seed}")
    records, source = corpus(rng, 60), place / "in"
    recipe = make(place / "lake", source, *STAGES[stages])
    sources: list[str] = []
    numbers = rng.sample(range(12), 12)  # so that later files may come first by address
    for _ in range(3):
        for _ in range(4):
            number = numbers.pop()
            write(source, records[5 * number : 5 * number + 5], 1, number)
            sources.append(storage.join(storage.normalize(str(source)), f"{number:03}.parquet"))
        run(recipe, cluster=client)
    before = rows(recipe.lake, "duplicates")
    assert len(before) > 5
    forgotten = {uri for uri in sources if rng.random() < 0.5} | {rng.choice(before)["source"]}
    forget(recipe, forgotten.__contains__, with_keys=seed % 2 == 0)
    assert len(rows(recipe.lake, "duplicates")) < len(before)
    assert run(recipe, cluster=client).ok
    assert sorted(map(_row, rows(recipe.lake, "duplicates"))) == sorted(map(_row, before))
    assert verify(str(recipe.lake)) == []


def _row(row: Row) -> str:
    return str(sorted(row.items()))


def test_a_file_that_comes_back_after_others_were_decided_arrives_later(
    client: Client, tmp_path: Path
) -> None:
    """The others were compared without it, so they stay, and its rows are their duplicates."""
    source = tmp_path / "in"
    recipe = make(tmp_path / "lake", source, "dedup_exact")
    texts = ["one text", "another text", "a third text"]
    for number in range(2):
        records = [{"doc_id": f"{number}-{text}", "body": text, "link": None} for text in texts]
        write(source, records, 1, number)
    run(recipe, cluster=client)
    first = source / "000.parquet"
    saved = shutil.copy2(first, tmp_path / "saved.parquet")
    first.write_bytes(b"damaged")
    assert not run(recipe, cluster=client, replace_changed=True).ok
    shutil.copy2(saved, first)  # also its time, so that it is the same content as before
    assert run(recipe, cluster=client).ok
    duplicates = rows(recipe.lake, "duplicates")
    assert [row["source"] for row in duplicates] == [storage.normalize(str(first))] * len(texts)
    assert verify(str(recipe.lake)) == []
