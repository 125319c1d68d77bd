"""Decisions that are made again: after some were lost, they are those of the first time."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.verify.verify import verify
from etl.delta.data_file import DataFileWriter
from etl.delta.table import Table
from etl.job.run import run
from etl.lake.epochs import drop_all, open_lake, start_epoch
from etl.lake.ledger import Drop, LedgerEntry, find_ledger
from etl.lake.table_specs import DUPLICATES
from etl.lake.work_units import kept_units
from etl.recipe.recipe import Recipe
from etl.stages import DedupMinhash, DedupParagraphs
from tests.helpers.cluster import cluster
from tests.helpers.lake_rows import Row, rows
from tests.helpers.near_duplicates import Record, make, tangled, words, write

NEAR = DedupMinhash(verify="exact", bands=28, rows=4, min_similarity=0.7)
LONGEST = NEAR.model_copy(update={"keep": "longest"})
LINES = DedupParagraphs(unit="lines", min_chars=12, min_rest_chars=60)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start a cluster inside this process, which is faster for many small runs."""
    with cluster(threads=2) as client:
        yield client


def corpus(rng: random.Random, size: int) -> list[Record]:
    """Return documents that are similar to others, equal to others, or have lines of others."""
    records = tangled(rng.randrange(10**9), size)
    lines = [" ".join(words(1000 + k, 4)) for k in range(8)]
    for k, record in enumerate(records):
        fate = rng.random()
        if fate < 0.3:
            record["body"] = rng.choice(records)["body"]
        elif fate < 0.6:
            own = [" ".join(words(2000 + 10 * k + j, 4)) for j in range(rng.randrange(4))]
            body = [*rng.choices(lines, k=rng.randrange(1, 5)), *own]
            rng.shuffle(body)
            record["body"] = "\n".join(body)
    return records


def forget(recipe: Recipe, is_forgotten: Callable[[str], bool], *, with_keys: bool) -> None:
    """Drop the decisions on the rows of some sources, and the keys, as a repair does."""
    lake = open_lake(str(recipe.lake))
    duplicates = find_ledger(Table.open(recipe.table_url("duplicates")))
    documents = Table.open(recipe.table_url("documents"))
    assert duplicates is not None
    assert duplicates.table is not None
    keys = {duplicates.key(u.key) for u in kept_units(documents) if is_forgotten(u.source)}
    table = duplicates.table.dataset().to_table()
    remaining = [not is_forgotten(source) for source in table["source"].to_pylist()]
    name = duplicates.key("forget", *sorted(keys))
    writer = DataFileWriter(duplicates.url, table.schema, DUPLICATES.layout, name=name)
    writer.append(table.filter(remaining))
    paths = [file["path"] for file in duplicates.table.files("path")]
    drops = {"duplicates": Drop(paths=paths, keys=keys, add=[LedgerEntry(name, writer.close())])}
    if with_keys:
        drops["keys"] = drop_all(lake["keys"])
    start_epoch({**lake, "duplicates": duplicates}, drops, lambda *_: {})


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
