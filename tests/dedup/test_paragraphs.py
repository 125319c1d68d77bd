"""Deduplication of paragraphs, lines and sentences in whole runs, against a naive loop."""

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from upath import UPath

from etl.audit.verify.verify import verify
from etl.compute import frame_shuffles
from etl.compute.cluster import Cluster
from etl.dedup import file_groups
from etl.dedup import paragraphs as job
from etl.dedup.numbered_files import address
from etl.dedup.short_documents import DECIDED, DECIDED_SHORT, without_short
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.stages import DedupParagraphs, DedupSubstrings
from tests.helpers.cluster import cluster
from tests.helpers.dying_reader import DieOnce
from tests.helpers.killed_runs import end_run, outcome, start_run, version_of
from tests.helpers.lake_rows import rows
from tests.helpers.near_duplicates import Record, make, write
from tests.helpers.paths import at

Fate = tuple[str, tuple[int, ...]]  # cut or short, and the ordinals of the cut units
SEPARATORS = {"paragraphs": "\n\n", "lines": "\n", "sentences": " "}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start a cluster inside this process, which is faster for many small runs."""
    with cluster(threads=2) as client:
        yield client


def corpus(seed: int, separator: str, size: int = 60) -> list[Record]:
    """Return documents of unique units, common units, and runs of units from an earlier document."""
    rng = random.Random(seed)
    common = [f"Notice {k} of all pages of the site." for k in range(6)]
    texts: list[list[str]] = []
    for number in range(size):
        units: list[str] = []
        for k in range(rng.randrange(1, 7)):
            fate = rng.random()
            if fate < 0.4:
                units.append(f"Only page {number} has this line {k}.")
            elif fate < 0.7 or not texts:
                units.append(rng.choice(common))
            elif fate < 0.8:
                units.append("Short.")
            else:
                units += rng.choice(texts)[rng.randrange(3) :]
        texts.append(units[:9])
    return [
        {"doc_id": f"{k}", "body": separator.join(units) or "Empty.", "link": None}
        for k, units in enumerate(texts)
    ]


def naive(records: Sequence[Record], stage: DedupParagraphs) -> dict[str, Fate]:
    """Return the fates of the documents that lose units, by id."""
    units = {str(r["doc_id"]): stage.pieces(str(r["body"])) for r in records}
    first = _cuts(units, stage)
    short = {
        name: goes
        for name, goes in first.items()
        if goes and _rest(units[name], goes) < max(stage.min_rest_chars, 1)
    }
    remaining = {name: parts for name, parts in units.items() if name not in short}
    cut = {name: goes for name, goes in _cuts(remaining, stage).items() if goes}
    assert all(_rest(units[name], goes) >= stage.min_rest_chars for name, goes in cut.items())
    return {name: ("short", tuple(sorted(goes))) for name, goes in short.items()} | {
        name: ("cut", tuple(sorted(goes))) for name, goes in cut.items()
    }


def _cuts(units: dict[str, list[str]], stage: DedupParagraphs) -> dict[str, set[int]]:
    seen: set[tuple[str, ...]] = set()
    cuts: dict[str, set[int]] = {name: set() for name in units}
    for name, parts in units.items():
        for k in range(len(parts) - stage.joint + 1):
            span = tuple(parts[k : k + stage.joint])
            if sum(map(len, span)) < max(stage.min_chars, 1):
                continue
            if span in seen:
                cuts[name] |= {*range(k, k + stage.joint)}
            seen.add(span)
    return cuts


def _rest(parts: list[str], goes: set[int]) -> int:
    return sum(len(part) for k, part in enumerate(parts) if k not in goes)


def fates(recipe: Recipe) -> dict[str, Fate]:
    """Return the fates recorded in the lake, by id."""
    recorded = {}
    for row in rows(recipe.lake, "duplicates"):
        assert isinstance(row["cut"], list)
        recorded[str(row["id"])] = (str(row["kind"]), tuple(row["cut"]))
    return recorded


def texts(recipe: Recipe, tokenizer: Path) -> dict[str, str]:
    """Return the tokenized texts, by id."""
    decode = Tokenizer.from_file(str(tokenizer)).decode
    return {str(row["id"]): decode(row["tokens"]) for row in rows(recipe.lake, "tokens")}


@pytest.mark.parametrize(
    ("files", "unit"),
    [
        (7, "lines"),
        (1, "paragraphs"),
        *(
            pytest.param(files, unit, marks=pytest.mark.slow)
            for files, unit in ((1, "lines"), (50, "lines"), (7, "sentences"))
        ),
    ],
)
def test_cut_units_match_a_naive_loop(
    client: Client,
    place: UPath,
    monkeypatch: pytest.MonkeyPatch,
    files: int,
    unit: Any,
    tiny_tokenizer: Path,
) -> None:
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", 10**6 if files == 1 else 90)
    monkeypatch.setattr(file_groups, "FILES_PER_DUPLICATES_FILE", 4)
    records = corpus(files, SEPARATORS[unit])
    stage = DedupParagraphs(unit=unit, min_chars=12, span=2, min_rest_chars=40)
    source = write(place / "in", records, files)
    recipe = make(place / "lake", source, stage, {"tokenize": str(tiny_tokenizer)})
    report = run(recipe, cluster=client)
    assert report.ok
    expected = naive(records, stage)
    assert fates(recipe) == expected
    kinds = [kind for kind, _ in expected.values()]
    assert (report.cut, report.duplicates) == (kinds.count("cut"), kinds.count("short"))
    assert min(report.cut, report.duplicates) > 3
    assert verify(str(recipe.lake)) == []
    tokenized = texts(recipe, tiny_tokenizer)
    for record in records:
        name, body = str(record["doc_id"]), str(record["body"])
        kind, goes = expected.get(name, ("", ()))
        if kind == "short":
            assert name not in tokenized
            continue
        remaining = [part for k, part in enumerate(stage.pieces(body)) if k not in goes]
        assert stage.pieces(tokenized[name]) == remaining
        assert goes or tokenized[name] == body


@pytest.mark.parametrize(
    ("unit", "min_rest_chars"),
    [
        ("lines", 40),
        ("sentences", 0),
        pytest.param("lines", 0, marks=pytest.mark.slow),
        pytest.param("sentences", 40, marks=pytest.mark.slow),
    ],
)
def test_several_runs_give_the_lake_of_one_run(
    client: Client, place: UPath, unit: Any, min_rest_chars: int, tiny_tokenizer: Path
) -> None:
    records = corpus(min_rest_chars + len(unit), SEPARATORS[unit])
    for k in (7, 30, 50):  # equal documents
        records[k] = {**records[k - 5], "doc_id": f"{k}"}
    stage = DedupParagraphs(unit=unit, min_chars=12, min_rest_chars=min_rest_chars)
    stages = ["dedup_exact", stage, {"tokenize": str(tiny_tokenizer)}]
    source = place / "in"
    grown = make(place / "grown", source, *stages)
    for first in (0, 20, 40):
        write(source, records[first : first + 20], 2, first)
        run(grown, cluster=client)
    whole = make(place / "whole", source, *stages)
    run(whole, cluster=client)
    assert {row["kind"] for row in rows(whole.lake, "duplicates")} == {"exact", "cut", "short"}
    for table in ("documents", "duplicates", "tokens"):
        assert rows(grown.lake, table) == rows(whole.lake, table)
    assert verify(str(grown.lake)) == []


def test_tokenized_documents_are_not_cut(
    client: Client, place: UPath, tiny_tokenizer: Path
) -> None:
    """A file that is added later loses the units of earlier ones, even if it sorts before them."""
    source = place / "in"
    stage = DedupParagraphs(min_chars=5, min_rest_chars=5)
    recipe = make(place / "lake", source, stage, {"tokenize": str(tiny_tokenizer)})
    body = "A long paragraph.\n\nOnly in {}"
    for number in (5, 1):
        record: Record = {"doc_id": f"{number}", "body": body.format(number), "link": None}
        write(source, [record], 1, number)
        run(recipe, cluster=client)
    assert fates(recipe) == {"1": ("cut", (0,))}
    assert texts(recipe, tiny_tokenizer) == {"5": body.format(5), "1": "Only in 1"}


def test_a_new_min_rest_chars_reads_no_documents_again(client: Client, place: UPath) -> None:
    source = write(place / "in", corpus(1, "\n\n"), 2)
    stage = DedupParagraphs(min_chars=12, min_rest_chars=0)
    run(make(place / "lake", source, stage), cluster=client)
    stricter = stage.model_copy(update={"min_rest_chars": 60})
    recipe = make(place / "lake", source, stricter)
    report = run(recipe, cluster=client, rebuild=True)
    assert report.rows == 0
    assert fates(recipe) == naive(corpus(1, "\n\n"), stricter)


@st.composite
def units(draw: st.DrawFn) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
    """Return the ordinal of each decided document, and (hash, document, ordinal) of units."""
    states = dict.fromkeys(range(10), 0) | draw(
        st.dictionaries(st.integers(0, 9), st.sampled_from([DECIDED, DECIDED_SHORT]))
    )
    some = st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 3))
    rows = draw(st.lists(some, unique=True))
    return states, [(key, n, states[n] or ordinal) for key, n, ordinal in rows]


@given(units(), st.frozensets(st.integers(0, 9)), st.randoms())
def test_repeats_match_a_naive_loop(
    drawn: tuple[dict[int, int], list[tuple[int, int, int]]],
    short: frozenset[int],
    rng: random.Random,
) -> None:
    """Documents are compared twice: all of them, then those that stay."""
    states, keys = drawn
    short = frozenset(n for n in short if not states[n])
    rng.shuffle(keys)
    numbers = np.array(keys, np.int64).reshape(-1, 3)
    documents = address(numbers[:, 1] // 3, numbers[:, 1] % 3)
    frame = pd.DataFrame({"hash": numbers[:, 0], "document": documents, "ordinal": numbers[:, 2]})
    number = {int(address(np.int64(k // 3), np.array([k % 3]))[0]): k for k in range(10)}
    goes = pd.DataFrame({"document": [a for a, k in number.items() if k in short]}, dtype="int64")
    shared = job.shared_units(frame)
    for stays, left in (
        (shared, keys),
        (
            without_short(shared, goes),
            [unit for unit in keys if unit[1] not in short and unit[2] != DECIDED_SHORT],
        ),
    ):
        expected = []
        for value in range(4):
            same = sorted((document, ordinal) for key, document, ordinal in left if key == value)
            expected += [(*unit, same[0][0]) for unit in same[1:] if unit[1] >= 0]
        repeats = job.repeats_of(stays)
        columns = [repeats[name] for name in ("document", "ordinal", "keeper")]
        repeated = [(number[d], o, number[k]) for d, o, k in zip(*columns, strict=True)]
        assert sorted(repeated) == sorted(expected)
        assert repeats["bucket"].eq(0).all()


@pytest.mark.slow  # the shuffle restarts: 20 s and more
def test_the_result_is_correct_after_a_worker_dies_in_the_shuffle(
    place: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", 60)
    monkeypatch.setattr(job, "_read_units", DieOnce(tmp_path / "died", job._read_units))
    records = corpus(3, "\n\n")
    stage = DedupParagraphs(min_chars=12, min_rest_chars=40)
    recipe = make(place / "lake", write(place / "in", records, 7), stage)
    with Cluster(workers=2).connect() as client:
        report = run(recipe, cluster=client)
    assert (tmp_path / "died").exists()
    assert report.ok
    assert fates(recipe) == naive(records, stage)


@pytest.fixture(
    params=[
        DedupParagraphs(unit="lines", min_chars=12, min_rest_chars=40),
        DedupSubstrings(min_bytes=40, min_chars=60),
    ],
    ids=["paragraphs", "substrings"],
)
def cutting(request: pytest.FixtureRequest, place: UPath, tiny_tokenizer: Path) -> Recipe:
    """Return a recipe that drops equal documents and cuts repeated passages."""
    records = corpus(5, "\n", 120)
    records[9] = {**records[4], "doc_id": "9"}
    source = write(place / "in", records, 6)
    stages = ["dedup_exact", request.param, {"tokenize": str(tiny_tokenizer)}]
    return make(place / "lake", source, *stages)


@pytest.mark.slow  # each case starts its own clusters
@pytest.mark.parametrize("drivers", [1, 2])
def test_a_killed_driver_and_concurrent_drivers_give_the_same_lake(
    client: Client, place: UPath, tmp_path: Path, cutting: Recipe, drivers: int
) -> None:
    """One driver is killed after its first uncommitted fragment of ``duplicates``, and runs again."""
    whole = cutting.model_copy(update={"lake": str(place / "whole")})
    run(whole, cluster=client)
    file = tmp_path / "recipe.yaml"
    file.write_text(cutting.to_yaml())
    started = [start_run(file) for _ in range(drivers)]
    try:
        if drivers == 1:
            folder = at(cutting.lake) / "duplicates"
            while started[0].poll() is None and not list(folder.glob("*.parquet")):
                time.sleep(0.01)
            started[0].kill()
            started[0].wait()
            assert version_of(cutting, "duplicates") == 0
            run(cutting, cluster=client)
        else:
            assert [driver.wait(timeout=300) for driver in started] == [0, 0]
    finally:
        for driver in started:
            end_run(driver)
    assert outcome(cutting) == outcome(whole)
    assert verify(str(cutting.lake)) == []
