"""Deduplication of substrings in whole runs, against a dictionary of all windows."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from distributed import Client
from tokenizers import Tokenizer
from upath import UPath

from etl.audit.verify.verify import verify
from etl.compute import frame_shuffles
from etl.compute.cluster import Cluster
from etl.dedup import file_groups, substrings
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.stages import DedupSubstrings
from etl.stages.dedup_substrings import Snap
from tests.helpers.cluster import cluster
from tests.helpers.dying_reader import DieOnce
from tests.helpers.lake_rows import rows
from tests.helpers.naive_substrings import corpus, cut_masks, runs, snapped
from tests.helpers.near_duplicates import Record, make, write

Fate = tuple[str, tuple[int, ...], int]  # cut or short, the bytes cut, and the characters in them


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Start a cluster inside this process, which is faster for many small runs."""
    with cluster(threads=2) as client:
        yield client


def records(seed: int, size: int = 32) -> list[Record]:
    """Return documents of several corpora, so that many have windows in common and many have none."""
    rng = random.Random(seed)
    texts = [text for _ in range(5) for text in corpus(rng, size)]
    words = " ".join("".join(rng.choices("abcdefghij", k=5)) for _ in range(200))
    for _ in range(10):  # passages between words of their own, and a notice on all pages
        start = rng.randrange(900)
        own = " ".join(str(rng.random()) for _ in range(rng.randrange(9)))
        texts.append(
            f"{own} {words[start : start + rng.randrange(2 * size)]} {own[::-1]}\n{words[:50]}"
        )
    rng.shuffle(texts)
    return [  # a text of white space alone would be rejected
        {"doc_id": f"{k}", "body": text if text.strip() else "Empty.", "link": None}
        for k, text in enumerate(texts)
    ]


def naive(found: Sequence[Record], stage: DedupSubstrings) -> dict[str, Fate]:
    """Return the fates of the documents that lose passages, by id."""
    texts = {str(record["doc_id"]): str(record["body"]) for record in found}
    least = max(stage.min_chars, 1)
    first = _cuts(texts, stage)
    short = {
        name: ("short", cut, chars)
        for name, (_, cut, chars) in first.items()
        if len(texts[name]) - chars < least
    }
    remaining = {name: text for name, text in texts.items() if name not in short}
    cut = _cuts(remaining, stage)
    assert all(len(texts[name]) - chars >= least for name, (_, _, chars) in cut.items())
    return short | cut


def _cuts(texts: dict[str, str], stage: DedupSubstrings) -> dict[str, Fate]:
    masks = cut_masks([text.encode() for text in texts.values()], stage.min_bytes)
    fates: dict[str, Fate] = {}
    for (name, text), mask in zip(texts.items(), masks, strict=True):
        moved = (snapped(text, a, b, words=stage.snap == "words") for a, b in runs(mask))
        ranges = [(a, b) for a, b in moved if a < b]
        if ranges:
            chars = sum(len(text.encode()[a:b].decode()) for a, b in ranges)
            fates[name] = ("cut", tuple(at for both in ranges for at in both), chars)
    return fates


def fates(recipe: Recipe) -> dict[str, Fate]:
    """Return the fates recorded in the lake, by id."""
    found = {}
    for row in rows(recipe.lake, "duplicates"):
        assert isinstance(row["cut"], list)
        assert isinstance(row["cut_chars"], int)
        found[str(row["id"])] = (str(row["kind"]), tuple(row["cut"]), row["cut_chars"])
    return found


def in_small_parts(monkeypatch: pytest.MonkeyPatch, chunks_per_key: int) -> None:
    monkeypatch.setattr(frame_shuffles, "ROWS_PER_PARTITION", 200)
    monkeypatch.setattr(file_groups, "FILES_PER_DUPLICATES_FILE", 2)
    monkeypatch.setattr(substrings, "_SNIPPET_BYTES", 1000)
    monkeypatch.setattr(substrings, "CHUNKS_PER_KEY", chunks_per_key)


@pytest.mark.parametrize(
    "case",
    [
        (1, "characters", 10**6),
        (7, "words", 3),
        pytest.param((7, "characters", 0), marks=pytest.mark.slow),
        pytest.param((30, "words", 10**6), marks=pytest.mark.slow),
    ],
)
def test_the_same_bytes_are_cut_as_with_all_windows(
    client: Client,
    place: UPath,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[int, Snap, int],
    tiny_tokenizer: Path,
) -> None:
    files, snap, chunks_per_key = case
    if files > 1:
        in_small_parts(monkeypatch, chunks_per_key)
    found = records(files)
    stage = DedupSubstrings(min_bytes=32, min_chars=60, snap=snap)
    source = write(place / "in", found, files)
    recipe = make(place / "lake", source, stage, {"tokenize": str(tiny_tokenizer)})
    report = run(recipe, cluster=client)
    assert report.ok
    expected = naive(found, stage)
    assert fates(recipe) == expected
    kinds = [kind for kind, _, _ in expected.values()]
    assert (report.cut, report.duplicates) == (kinds.count("cut"), kinds.count("short"))
    assert min(report.cut, report.duplicates) > 3
    assert verify(str(recipe.lake)) == []
    decode = Tokenizer.from_file(str(tiny_tokenizer)).decode
    tokenized = {str(row["id"]): decode(row["tokens"]) for row in rows(recipe.lake, "tokens")}
    bodies = {str(record["doc_id"]): str(record["body"]) for record in found}
    stays = {name for name in bodies if expected.get(name, ("cut",))[0] == "cut"}
    assert tokenized.keys() == stays
    for name in stays:
        data = bodies[name].encode()
        bounds = [0, *(expected[name][1] if name in expected else ()), len(data)]
        assert tokenized[name].encode() == b"".join(
            data[a:b] for a, b in zip(bounds[::2], bounds[1::2], strict=True)
        )


@pytest.mark.parametrize("chunks_per_key", [10**6, pytest.param(2, marks=pytest.mark.slow)])
def test_several_runs_give_the_lake_of_one_run(
    client: Client, place: UPath, monkeypatch: pytest.MonkeyPatch, chunks_per_key: int
) -> None:
    in_small_parts(monkeypatch, chunks_per_key)
    found = records(chunks_per_key)
    for k in (7, 20, 31):  # equal documents
        found[k] = {**found[k - 5], "doc_id": f"{k}"}
    stages = ["dedup_exact", DedupSubstrings(min_bytes=32, min_chars=60)]
    source = place / "in"
    grown = make(place / "grown", source, *stages)
    for first in range(0, len(found), 20):
        write(source, found[first : first + 20], 2, first)
        run(grown, cluster=client)
    whole = make(place / "whole", source, *stages)
    run(whole, cluster=client)
    assert {row["kind"] for row in rows(whole.lake, "duplicates")} == {"exact", "cut", "short"}
    for table in ("documents", "duplicates"):
        assert rows(grown.lake, table) == rows(whole.lake, table)
    assert verify(str(grown.lake)) == []


def test_a_short_document_of_an_earlier_run_keeps_nothing(client: Client, place: UPath) -> None:
    """Its own passage is not cut from a later document, in a run that finds no short documents."""
    shared, own = (
        "A passage that two documents have at least. ",
        "This one is only in the short one.",
    )
    bodies = [
        f"{shared}And more than that, with enough words.",
        f"{shared}{own}",
        f"{own} Later, with more words than that.",
    ]
    found: list[Record] = [
        {"doc_id": f"{k}", "body": body, "link": None} for k, body in enumerate(bodies)
    ]
    stage = DedupSubstrings(min_bytes=32, min_chars=36)
    recipe = make(place / "lake", place / "in", stage)
    for first, stop in ((0, 2), (2, 3)):
        write(place / "in", found[first:stop], 1, first)
        run(recipe, cluster=client)
    assert fates(recipe) == naive(found, stage) == {"1": ("short", (0, 44), 44)}
    assert verify(str(recipe.lake)) == []


def test_what_short_documents_kept_is_decided_again(client: Client, place: UPath) -> None:
    """A passage is in part in one document, whole in a second, which becomes short, and in a third."""
    rng = random.Random(3)
    notice = "A notice that all the pages have, which says nothing. "
    bodies = [f"{notice}And the page that keeps it, with other words."]
    for _ in range(40):
        passage = "".join(rng.choices("klmnopqrst", k=rng.randrange(40, 56)))
        part = passage[rng.randrange(1, 8) : rng.randrange(40, 56)]
        own = [" ".join(f"{rng.random()}" for _ in range(2)) for _ in range(4)]
        bodies += [
            f"{own[0]} {part} {own[1]}",
            f"{notice}{passage}",
            f"{own[2]} {passage} {own[3]}",
        ]
    found: list[Record] = [
        {"doc_id": f"{k}", "body": body, "link": None} for k, body in enumerate(bodies)
    ]
    stage = DedupSubstrings(min_bytes=32, min_chars=60, snap="characters")
    recipe = make(place / "lake", write(place / "in", found, 1), stage)
    run(recipe, cluster=client)
    expected = naive(found, stage)
    kinds = {kind: sum(fate[0] == kind for fate in expected.values()) for kind in ("cut", "short")}
    assert min(kinds.values()) > 30
    assert fates(recipe) == expected


def test_other_limits_of_what_remains_read_no_documents_again(client: Client, place: UPath) -> None:
    source = write(place / "in", records(1), 2)
    stage = DedupSubstrings(min_bytes=32, min_chars=0)
    run(make(place / "lake", source, stage), cluster=client)
    other = stage.model_copy(update={"min_chars": 100, "snap": "characters"})
    recipe = make(place / "lake", source, other)
    assert run(recipe, cluster=client, rebuild=True).rows == 0
    assert fates(recipe) == naive(records(1), other)


@pytest.mark.slow  # the shuffle restarts: 20 s and more
def test_the_result_is_correct_after_a_worker_dies_in_the_shuffle(
    place: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small_parts(monkeypatch, 10**6)
    dying = DieOnce(tmp_path / "died", substrings.read_intervals)
    monkeypatch.setattr(substrings, "read_intervals", dying)
    found = records(3)
    stage = DedupSubstrings(min_bytes=32, min_chars=60)
    recipe = make(place / "lake", write(place / "in", found, 7), stage)
    with Cluster(workers=2).connect() as client:
        report = run(recipe, cluster=client)
    assert (tmp_path / "died").exists()
    assert report.ok
    assert fates(recipe) == naive(found, stage)
