"""The passes on the workers, with real shuffles, write the rows that the naive passes in memory write."""

import os
import random
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl.compute import compute_frames, frame_shuffles
from etl.compute.cluster import Cluster
from etl.compute.compute_frames import compute_frame
from etl.dedup import file_groups, pairs, short_documents
from etl.dedup.dedup_pass import PassResult
from etl.dedup.numbered_files import address, file_of
from etl.dedup.pair_rows import PAIRS, replace_dropped_keepers
from etl.job import dedup_step
from etl.job.run import run
from etl.stages import DedupExact
from etl.stages.against import Reference
from tests.helpers.arrivals import LINES, LONGEST, NEAR, corpus, forget
from tests.helpers.cluster import cluster
from tests.helpers.lake_rows import rows
from tests.helpers.listeners import Recorder
from tests.helpers.naive_passes import checked, join_in_memory
from tests.helpers.near_duplicates import make, write
from tests.helpers.shuffle_faults import Fault, install

STAGES: dict[str, list[Any]] = {
    "exact": ["dedup_exact"],
    "near": [NEAR],
    "longest": ["dedup_exact", LONGEST],
    "estimate": ["dedup_exact", NEAR.model_copy(update={"verify": "estimate"})],
    "near_limit": [NEAR.model_copy(update={"verify": "near_limit"})],
    "lines": [LINES],
    "exact-lines": ["dedup_exact", LINES],
    "near-lines": [NEAR, LINES],
    "all": ["dedup_exact", NEAR, LINES],
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start a cluster inside this process, which is faster for many small runs."""
    with cluster(threads=2) as client:
        yield client


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Check all passes of the test; return the numbers of rows that they write."""
    found: list[int] = []
    find = checked(dedup_step.find_duplicates, found)
    monkeypatch.setattr(dedup_step, "find_duplicates", find)
    return found


def shrink(monkeypatch: pytest.MonkeyPatch, rows_per_partition: int) -> None:
    """Split few documents into many partitions and files."""
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", rows_per_partition)
    monkeypatch.setattr(file_groups, "FILES_PER_DUPLICATES_FILE", 2)


SLOW = [
    pytest.param(stages, seed, marks=pytest.mark.slow) for seed in range(1, 4) for stages in STAGES
]


LAST = 2**23 - 1  # the last number of a file: addresses are beyond 2^53, where float64 is not exact
some_documents = st.integers(0, 15).map(
    lambda k: int(address(np.int64(LAST - 3 + k // 4), np.array([k % 4]))[0])
)
some_pairs = st.lists(st.tuples(some_documents, some_documents), unique_by=lambda pair: pair[0])
some_partitions = st.integers(1, 5)


def table(pairs: list[tuple[int, int]], kind: int) -> pd.DataFrame:
    """Return pairs with the columns of ``PAIRS``."""
    documents, keepers = np.array(pairs, np.int64).reshape(-1, 2).T
    similarity = 0.5 + (documents * 7 + keepers) % 20 / 40
    frame = pd.DataFrame({"document": documents, "keeper": keepers, "similarity": similarity})
    return frame.assign(is_estimate=documents % 3 == 0, kind=kind).astype(PAIRS.dtypes)


def values(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(frame.itertuples(index=False, name=None))


@given(some_pairs, some_pairs, some_partitions)
def test_pairs_joined_in_partitions_are_those_joined_in_memory(
    first: list[tuple[int, int]], second: list[tuple[int, int]], partitions: int
) -> None:
    dropped = {document for document, _ in first}
    earlier = table(first, 0)
    later = table([pair for pair in second if pair[0] not in dropped], 1)
    joined = [
        replace_dropped_keepers(
            earlier[earlier["keeper"] % partitions == k], later[later["document"] % partitions == k]
        )
        for k in range(partitions)
    ]
    assert all(frame.dtypes.equals(PAIRS.dtypes) for frame in joined)
    assert values(pd.concat(joined)) == values(join_in_memory(earlier, later))


@given(
    st.lists(st.tuples(st.integers(-4, 3), some_documents, st.integers(-2, 3)), unique=True),
    st.sets(some_documents),
    some_partitions,
    st.integers(2, 5),
)
def test_partitions_of_units_learn_which_documents_are_short(
    rows: list[tuple[int, int, int]], documents: set[int], homes: int, partitions: int
) -> None:
    """Each partition asks for its documents, and gets the answers by one of its ranges."""
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    columns[0] <<= 61  # hashes in several ranges
    units = pd.DataFrame(dict(zip(("hash", "document", "ordinal"), columns, strict=True)))
    is_decided = units[units["ordinal"] < 0]["document"]
    short = pd.DataFrame({"document": sorted(documents - {*is_decided})}, dtype="int64")
    place = frame_shuffles.range_of(units["hash"], partitions) % partitions
    parts = [units[place == k] for k in range(partitions)]
    ask = partial(short_documents.questions, asks=short_documents.undecided, partitions=partitions)
    asked = pd.concat(map(ask, parts))
    home_of = file_of(short["document"].to_numpy()) // file_groups.FILES_PER_DUPLICATES_FILE
    answered = pd.concat(
        [
            short_documents.answers(
                short[home_of % homes == k], asked[asked["bucket"] % homes == k]
            )
            for k in range(homes)
        ]
    )
    remaining = [
        short_documents.without_short(part, answered[answered["range"] % partitions == k])
        for k, part in enumerate(parts)
    ]
    assert values(pd.concat(remaining)) == values(short_documents.without_short(units, short))


@pytest.mark.parametrize("partitions", [1, 3])
def test_dropped_documents_are_left_out_of_each_part(client: Client, partitions: int) -> None:
    documents = address(np.repeat(np.arange(9), 20), np.tile(np.arange(20), 9))
    dropped = np.random.default_rng(0).choice(documents, 70, replace=False).tolist()
    pairs = dd.from_pandas(table([(k, 0) for k in dropped], 0), npartitions=partitions, sort=False)
    parts = [np.arange(2, 3), np.arange(3, 7), np.arange(8, 9)]  # files 0, 1 and 7 are not read
    read = documents[np.isin(file_of(documents), np.concatenate(parts))]
    frame = dd.from_map(
        lambda part: pd.DataFrame({"address": read[np.isin(file_of(read), part)]}), parts
    )
    left = PassResult(pairs).leave_out(frame, parts, "address")
    assert left.npartitions == len(parts)
    rows = compute_frame(client, left, label="test")
    assert rows["address"].tolist() == [k for k in read.tolist() if k not in dropped]


class _DieOnce:
    """Join of two passes that kills the first worker to reach it."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker
        self._join = replace_dropped_keepers

    def __call__(self, earlier: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
        if not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._join(earlier, later)


@pytest.mark.slow  # the shuffles restart: 20 s and more
def test_pairs_that_a_dead_worker_held_are_found_again(
    place: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: list[int]
) -> None:
    shrink(monkeypatch, 60)
    monkeypatch.setattr(pairs, "replace_dropped_keepers", _DieOnce(tmp_path / "died"))
    records = corpus(random.Random(3), 60)
    recipe = make(place / "lake", write(place / "in", records, 7), "dedup_exact", NEAR, LINES)
    with Cluster(workers=2).connect() as processes:
        assert run(recipe, cluster=processes).ok
    assert (tmp_path / "died").exists()
    assert sum(found) > 20


def test_rows_that_shuffles_lose_or_double_do_not_change_the_result(
    client: Client,
    place: UPath,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: list[int],
) -> None:
    shrink(monkeypatch, 60)
    monkeypatch.setattr(compute_frames, "_PAUSE", 0.01)
    kinds = ["lost shard", "doubled rows", "lost partition"]
    undo = [install(Fault(kind, tmp_path / kind)) for kind in kinds]
    records, listener = corpus(random.Random(3), 40), Recorder()
    recipe = make(place / "lake", write(place / "in", records, 7), "dedup_exact", NEAR, LINES)
    try:
        assert run(recipe, cluster=client, listener=listener).ok
    finally:
        for remove in reversed(undo):
            remove()
    assert all((tmp_path / kind).exists() for kind in kinds)
    assert any("starting again (1 of 3)" in line for line in listener.lines)
    assert sum(found) > 10


@pytest.mark.parametrize(("stages", "seed"), [("all", 0), *SLOW])
def test_rows_are_those_of_the_naive_passes(
    client: Client,
    place: UPath,
    monkeypatch: pytest.MonkeyPatch,
    found: list[int],
    stages: str,
    seed: int,
) -> None:
    """Also in later arrivals, against another lake, and when lost decisions are made again."""
    rng = random.Random(f"{stages} {seed}")
    shrink(monkeypatch, 200 if seed == 0 else 100 if seed == 0 else 60 if seed < 3 else 10**6)
    records, source = corpus(rng, 60), place / "in"
    settings = STAGES[stages]
    if seed % 2:
        other = make(place / "other", write(place / "before", records[45:], 2), "dedup_exact", NEAR)
        run(other, cluster=client)
        against = {"against": (Reference(lake=str(other.lake)),)}
        settings = [DedupExact() if stage == "dedup_exact" else stage for stage in settings]
        settings = [
            stage if stage is LINES else stage.model_copy(update=against) for stage in settings
        ]
    recipe = make(place / "lake", source, *settings)
    for number in rng.sample(range(3), 3) if seed else (0,):
        write(source, records[15 * number : 15 * number + 15], 4, 4 * number)
        run(recipe, cluster=client)
    if seed:
        sources = sorted({str(row["source"]) for row in rows(recipe.lake, "documents")})
        forgotten = set(rng.sample(sources, 5))
        forget(recipe, forgotten.__contains__, with_keys=rng.random() < 0.5)
        assert run(recipe, cluster=client).ok
    assert sum(found) > 3
