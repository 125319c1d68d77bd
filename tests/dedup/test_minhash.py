"""Near-duplicates in whole runs: the same documents stay for any files, order and increments."""

import math
import os
import random
import signal
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl import schemas, storage
from etl.audit.verify.verify import verify
from etl.compute import frame_shuffles
from etl.compute.cluster import Cluster
from etl.dedup import candidates
from etl.dedup import minhash as job
from etl.dedup.candidates import pair_candidates
from etl.dedup.document_reader import DocumentReader
from etl.dedup.keeper_choice import choose_among
from etl.dedup.numbered_files import NumberedFile, address, file_of, row_of
from etl.job.run import run
from etl.stages import DedupMinhash
from tests.helpers.document_files import write_documents
from tests.helpers.lake_rows import rows
from tests.helpers.near_duplicates import (
    Record,
    expected,
    make,
    pairs,
    planted,
    tangled,
    words,
    write,
)

EXACT, NEAR = map(schemas.WHOLE.index, ("exact", "near"))


@pytest.mark.parametrize(
    ("files", "verify_by"),
    [
        (7, "exact"),
        *(
            pytest.param(files, verify_by, marks=pytest.mark.slow)
            for files, verify_by in product((1, 3, 7), ("estimate", "near_limit", "exact"))
            if (files, verify_by) != (7, "exact")
        ),
    ],
)
def test_near_duplicates_of_each_family_are_found(
    client: Client,
    place: UPath,
    monkeypatch: pytest.MonkeyPatch,
    files: int,
    verify_by: Any,
) -> None:
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", 10**6 if files == 1 else 300)
    records = planted()
    stages = ["dedup_exact"] if files > 1 else []
    near = DedupMinhash(verify=verify_by, bands=28, rows=4, min_similarity=0.75)
    recipe = make(place / "lake", write(place / "in", records, files), *stages, near)
    report = run(recipe, cluster=client)
    assert report.ok
    assert pairs(recipe) == expected(records, has_exact=bool(stages))
    assert report.duplicates == len(pairs(recipe))
    assert verify(str(recipe.lake)) == []


def test_a_chain_does_not_collapse(client: Client, place: UPath) -> None:
    """Only neighbours in the chain are similar, and every duplicate is similar to its keeper."""
    text = words(5, 200)
    chain = []
    # Each step replaces 16 words: 0.84 of the 5-grams remain after one step, 0.69 after two.
    for step in range(12):
        chain.append(list(text))
        text[16 * step : 16 * step + 16] = words(1000 + step, 16)
    records = [
        {"doc_id": f"{step:02}", "body": " ".join(body), "link": None}
        for step, body in enumerate(chain)
    ]
    near = DedupMinhash(verify="exact", bands=28, rows=4)
    recipe = make(place / "lake", write(place / "in", records, 2), near)
    run(recipe, cluster=client)
    assert pairs(recipe) == {(f"{k:02}", f"{k - 1:02}", "near") for k in range(1, 12, 2)}
    assert all(
        0.8 <= float(str(row["similarity"])) < 0.9 for row in rows(recipe.lake, "duplicates")
    )


@pytest.mark.parametrize(("verify_by", "gone"), [("containment", 2), ("exact", 0)])
def test_excerpts_go_for_the_document_that_contains_them(
    client: Client, place: UPath, verify_by: str, gone: int
) -> None:
    text = words(5, 200)
    texts = [text[20:150], text, text[:110], [*text[:100], *words(6, 100)]]
    records: list[Record] = [
        {"doc_id": str(number), "body": " ".join(body), "link": None}
        for number, body in enumerate(texts)
    ]
    near = {"verify": verify_by, "bands": 50, "rows": 2, "keep": "longest"}
    source = write(place / "in", records, 2)
    recipe = make(place / "lake", source, {"length": {}}, {"dedup_minhash": near})
    run(recipe, cluster=client)
    assert pairs(recipe) == {(number, "1", "near") for number in ("0", "2")[:gone]}
    assert {row["similarity"] for row in rows(recipe.lake, "duplicates")} == {1.0} or not gone
    assert verify(str(recipe.lake)) == []


@pytest.mark.parametrize("keep", ["longest", {"highest": "num_words"}, {"lowest": "num_words"}])
def test_the_preferred_document_stays(client: Client, place: UPath, keep: Any) -> None:
    texts = [words(family)[: 100 + size] for family in range(4) for size in (3, 9, 0, 9, 5)]
    records: list[Record] = [
        {"doc_id": f"{k // 5}-{k % 5}", "body": " ".join(text), "link": None}
        for k, text in enumerate(texts)
    ]
    near = {"dedup_minhash": {"verify": "exact", "bands": 28, "rows": 4, "keep": keep}}
    source = write(place / "in", records, 3)
    recipe = make(place / "lake", source, {"length": {"min_words": 5}}, "dedup_exact", near)
    run(recipe, cluster=client)
    best = 2 if keep == {"lowest": "num_words"} else 1  # the first of equals
    assert {keeper for _, keeper, _ in pairs(recipe)} == {f"{family}-{best}" for family in range(4)}
    assert len(pairs(recipe)) == 16


def test_the_document_of_a_preferred_source_stays(client: Client, place: UPath) -> None:
    for folder in ("a-web", "b-wiki", "c-other"):
        record: Record = {"doc_id": folder, "body": " ".join(words(1)), "link": None}
        write(place / "in" / folder, [record], 1)
    keep = {"keep": {"sources": ["*/b-wiki/*", "*/c-*"]}}
    source = place / "in" / "*" / "*.parquet"
    recipe = make(place / "lake", source, {"dedup_minhash": keep})
    run(recipe, cluster=client)
    assert pairs(recipe) == {(name, "b-wiki", "near") for name in ("a-web", "c-other")}


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_several_runs_give_the_lake_of_one_run(
    client: Client, place: UPath, seed: int, tiny_tokenizer: Path
) -> None:
    """The texts are chains, families and equal texts; the files are added over several runs."""
    records = tangled(seed)
    stages = ["dedup_exact"] if seed else []
    near = DedupMinhash(verify="exact", bands=28, rows=4, min_similarity=0.7)
    tokenize = {"tokenize": str(tiny_tokenizer)}
    source = place / "in"
    grown = make(place / "grown", source, *stages, near, tokenize)
    step = len(records) // 3
    for first in range(0, len(records), step):
        write(source, records[first : first + step], 2, first)
        run(grown, cluster=client)
    whole = make(place / "whole", source, *stages, near, tokenize)
    run(whole, cluster=client)
    assert len(pairs(whole)) > 10
    for table in ("documents", "duplicates", "tokens"):
        assert rows(grown.lake, table) == rows(whole.lake, table)
    assert verify(str(grown.lake)) == []


def test_a_tokenized_document_stays(client: Client, place: UPath, tiny_tokenizer: Path) -> None:
    """A longer document that is added later is a duplicate of the one with tokens."""
    source, text = place / "in", words(1)
    near = DedupMinhash(keep="longest")
    recipe = make(place / "lake", source, near, {"tokenize": str(tiny_tokenizer)})
    for number, body in enumerate((text[:-2], text)):
        record: Record = {"doc_id": f"{number}", "body": " ".join(body), "link": None}
        write(source, [record], 1, number)
        run(recipe, cluster=client)
    assert pairs(recipe) == {("1", "0", "near")}
    assert [row["id"] for row in rows(recipe.lake, "tokens")] == ["0"]


class _DieOnce:
    """Reader of bands that kills the first worker to reach file 5 during the shuffle."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker
        self._read = job._read_bands

    def __call__(self, file: NumberedFile, **settings: Any) -> pd.DataFrame:
        if file.number == 5 and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._read(file, **settings)


@pytest.mark.slow  # the shuffle restarts: 20 s and more
def test_the_result_is_correct_after_a_worker_dies_in_the_shuffle(
    place: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", 300)
    monkeypatch.setattr(job, "_read_bands", _DieOnce(tmp_path / "died"))
    records = planted()
    near = DedupMinhash(verify="exact", bands=28, rows=4, min_similarity=0.75)
    recipe = make(place / "lake", write(place / "in", records, 7), "dedup_exact", near)
    with Cluster(workers=2).connect() as client:
        report = run(recipe, cluster=client)
    assert (tmp_path / "died").exists()
    assert report.ok
    assert pairs(recipe) == expected(records, has_exact=True)


some_members = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 30), st.sampled_from([-np.inf, 0.0, 1.0])),
    unique_by=lambda row: row[:2],
    max_size=30,
)


@given(some_members, st.randoms())
def test_all_documents_of_a_small_key_are_compared(
    members: list[tuple[int, int, float]], rng: random.Random
) -> None:
    ranks = {row: rank for _, row, rank in members}  # a document has one rank
    rng.shuffle(members)
    bands = pd.DataFrame(
        {
            "key": pd.Series([key for key, _, _ in members], dtype="int64"),
            "address": pd.Series([row for _, row, _ in members], dtype="int64"),
            "rank": pd.Series([ranks[row] for _, row, _ in members], dtype="float64"),
        }
    )
    naive = set()
    for key in range(4):
        rows_of_key = sorted((ranks[row], row) for k, row, _ in members if k == key)
        naive |= {
            (better, worse)
            for (_, better), (rank, worse) in combinations(rows_of_key, 2)
            if rank > -np.inf
        }
    compared = pair_candidates(bands)
    ends = list(zip(compared["better"], compared["worse"], strict=True))
    assert set(ends) == naive
    assert len(ends) == len(naive)
    assert all(compared["better_rank"] == [ranks[row] for row in compared["better"]])
    assert all(compared["worse_rank"] == [ranks[row] for row in compared["worse"]])


@pytest.mark.parametrize("size", [64, 1024, 1025, 70_000])
def test_documents_of_a_large_key_are_compared_with_the_best(size: int) -> None:
    rows = np.arange(size, dtype=np.int64)
    bands = pd.DataFrame({"key": np.ones(size, np.int64), "address": rows, "rank": -rows / 1.0})
    compared = pair_candidates(bands)
    limits = [min(better, 64, max(1, 65_536 // (better + 1))) for better in range(size)]
    assert compared.groupby("worse").size().sort_index(ascending=False).tolist() == limits[1:]
    best_first = size - 1 - compared["better"]
    assert all(best_first < np.array(limits)[size - 1 - compared["worse"]])
    assert len(compared) < 65_536 * (1 + max(0, math.log(size / 1024))) + size


@given(some_members, st.integers(0, 30))
def test_the_pairs_of_a_document_do_not_depend_on_worse_ones(
    members: list[tuple[int, int, float]], prefix: int
) -> None:
    """Limits of 3 documents and 9 pairs let keys of few documents exceed both."""
    ranks = {row: rank for _, row, rank in members}  # a document has one rank
    bands = pd.DataFrame(
        [(key, row, ranks[row]) for key, row, _ in members], columns=["key", "address", "rank"]
    ).astype({"key": "int64", "address": "int64", "rank": "float64"})
    better = {row for _, row in sorted((rank, row) for row, rank in ranks.items())[:prefix]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_MAX_BEST", 3)
        patch.setattr(candidates, "_MAX_PAIRS", 9)
        all_pairs = pair_candidates(bands)
        some_pairs = pair_candidates(bands[bands["address"].isin(better)])
    ends = ["better", "worse"]
    of_prefix = all_pairs[all_pairs["worse"].isin(better)]
    assert of_prefix[ends].values.tolist() == some_pairs[ends].values.tolist()


@given(st.integers(0, 2**23 - 1), st.integers(0, 2**40 - 1))
def test_addresses_encode_file_and_row(file: int, row: int) -> None:
    addresses = address(np.array([file]), np.array([row]))
    assert (file_of(addresses)[0], row_of(addresses)[0]) == (file, row)
    assert addresses[0] >= 0


similarities = st.dictionaries(
    st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda pair: pair[0] != pair[1]),
    st.sampled_from([0.8, 0.9]),
    max_size=25,
)


@given(
    similarities,
    st.lists(st.sampled_from([-1.0, 0.0]), min_size=10, max_size=10),
    st.randoms(),
)
def test_keepers_match_a_naive_choice(
    similar: dict[tuple[int, int], float], ranks: list[float], rng: random.Random
) -> None:
    """The order of the pairs does not matter, and addresses may be far apart."""
    order = sorted(range(10), key=lambda k: (ranks[k], k))
    table: list[tuple[int, int, float]] = []
    for (one, other), similarity in similar.items():
        if (other, one) not in similar or one < other:
            better, worse = sorted((one, other), key=order.index)
            table.append((better, worse, similarity))
    stays: list[int] = []
    expected = {}
    for k in order:
        better_ones = {better: value for better, worse, value in table if worse == k}
        keepers = [keeper for keeper in stays if keeper in better_ones]
        if keepers:
            expected[k << 45] = keepers[0] << 45, better_ones[keepers[0]]
        else:
            stays.append(k)
    rng.shuffle(table)
    pairs = pd.DataFrame(
        {
            "better": pd.Series([better << 45 for better, _, _ in table], dtype="int64"),
            "worse": pd.Series([worse << 45 for _, worse, _ in table], dtype="int64"),
            "better_rank": pd.Series([ranks[better] for better, _, _ in table], dtype="float64"),
            "worse_rank": pd.Series([ranks[worse] for _, worse, _ in table], dtype="float64"),
            "similarity": pd.Series([value for _, _, value in table], dtype="float64"),
            "is_estimate": False,
        }
    )
    chosen = choose_among(pairs)
    rows = zip(chosen["document"], chosen["keeper"], chosen["similarity"], strict=True)
    assert {document: (keeper, value) for document, keeper, value in rows} == expected


@pytest.mark.parametrize(
    ("keep", "earlier", "expected"),
    [
        ("first", False, [0, 0, 0]),
        ("first", True, [-np.inf] * 3),
        ({"highest": "lang_score"}, False, [np.inf, -0.5, np.finfo(float).min]),
        ({"lowest": "lang_score"}, False, [np.inf, 0.5, np.inf]),
        ({"lowest": "lang_score"}, True, [-np.inf] * 3),
        ({"sources": ["*/001", "*/00*"]}, False, [1, 1, 1]),
        ({"sources": ["*/001"]}, False, [1, 1, 1]),
        ({"sources": ["*/000"]}, False, [0, 0, 0]),
    ],
)
def test_ranks(place: UPath, keep: Any, earlier: bool, expected: list[float]) -> None:
    """A lower rank is better; null is worst, and documents of earlier arrivals are best."""
    url = storage.normalize(str(place))
    unit = write_documents(url, 0, [1, 2, 3], lang_score=[None, 0.5, np.inf])
    stage = DedupMinhash.model_validate({"keep": keep})
    file = NumberedFile(
        0, unit.source, unit.key, unit.files, unit.rows, earlier, earlier, (), judged=unit.judged
    )
    table = DocumentReader(url, (stage,)).read_ranked(file, ["content_hash"])
    assert table.column_names == ["row", "rank", "content_hash"]
    assert table["rank"].to_pylist() == expected
