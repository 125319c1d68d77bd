"""Chains of changes with deduplication: a lake equals a replay of its arrivals with the last recipe."""

from pathlib import Path
from typing import Any, Literal

import deltalake
import pyarrow.parquet as pq
import pytest
from distributed import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from upath import UPath

from etl.recipe.recipe import Recipe
from tests.helpers.annotations import KEYS, annotate, annotations
from tests.helpers.corpus import write_jsonl
from tests.helpers.decisions import CUTTING, DEDUP, FILTERS, digests, replay, similar
from tests.helpers.overlapping_runs import overlaps
from tests.helpers.paths import NewPlace
from tests.helpers.recipe_changes import Chain, Step, maker

CARE = (
    "",
    "",
    "add a file",
    "add a file",
    "optimize",
    "lose a file",
    "strike elsewhere",
    "vacuum",
    "shuffle",
)
TABLES = ("documents", "texts", "duplicates", "tokens", "tokens_named")
STARTS = (*range(0, 80, 20), *range(1000, 1200, 20))
"""The first records of input files, also of those that are added."""
VERSIONS: tuple[tuple[str, int], ...] = (("file", 4), ("file", 6), ("delta", 4), ("delta", 5))
"""Tables of annotations: their kind, and the modulus of their values."""

Annotated = tuple[
    Literal["id", "url", "address", "content_hash"],
    tuple[str, int],
    Literal["keep", "reject"],  # documents without annotations
    str | None,  # a condition
    bool,  # whether deduplication prefers documents by them
]

STEPS = st.builds(
    Step,
    stages=st.lists(st.sampled_from(FILTERS), max_size=2, unique_by=lambda each: str(each)[:10]),
    position=st.integers(0, len(DEDUP) - 1),
    care=st.sampled_from(CARE),
    table=st.sampled_from(TABLES),
    kill=st.integers(0, 16),
    is_finished=st.booleans(),
    overlap=st.none() | overlaps(commits=9),
)
ANNOTATED = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from(VERSIONS),
    st.sampled_from(["keep", "keep", "reject"]),
    st.sampled_from(
        [None, "annotate_score > 0", "coalesce(annotate_score, 2) < 2 OR num_words > 80"]
    ),
    st.booleans(),
)


def write_annotations(place: UPath) -> None:
    """Write all tables of annotations of all records, also of those that are not there yet."""
    corpus = f"file://{place}/corpus"
    names = {start: f"{start:03}" if start < 1000 else f"new{start}" for start in STARTS}
    files = {f"{corpus}/{names[n]}.jsonl": similar(n, n + 20) for n in STARTS}
    for key in KEYS:
        for kind, modulus in VERSIONS:
            rows = annotations(files, key, modulus)
            if kind == "file":
                pq.write_table(rows, f"{place}/{key}-{modulus}.parquet")
            else:
                deltalake.write_deltalake(f"{place}/{key}", rows, mode="overwrite")


def annotating(place: UPath, annotated: Annotated | None) -> list[Any]:
    """Return the stages that join annotations and read them."""
    if annotated is None:
        return []
    key, (kind, modulus), missing, condition, _ = annotated
    is_file = kind == "file"
    path = f"{place}/{key}-{modulus}.parquet" if is_file else f"{place}/{key}"
    version = None if is_file else VERSIONS.index(("delta", modulus)) - 2
    stages: list[Any] = [annotate(path, key, version=version, missing=missing)]
    return stages if condition is None else [*stages, {"where": condition}]


def preferring(dedup: tuple[Any, ...], annotated: Annotated | None) -> list[Any]:
    """Return stages of deduplication, which prefer documents by annotations if these say so."""
    if annotated is None or not annotated[-1]:
        return [*dedup]
    *others, near = dedup
    return [
        *others,
        {"dedup_minhash": {**near["dedup_minhash"], "keep": {"highest": "annotate_score"}}},
    ]


@pytest.mark.slow
@settings(
    max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    steps=st.lists(st.tuples(STEPS, st.none() | ANNOTATED), min_size=3, max_size=5),
    cutting=st.sampled_from(CUTTING),
)
def test_chains_of_changes_with_deduplication(
    client: Client,
    new_place: NewPlace,
    tiny_tokenizer: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[tuple[Step, Annotated | None]],
    cutting: tuple[Any, Any],
) -> None:
    place = new_place("decisions")
    for start in STARTS[:4]:
        write_jsonl(place / "corpus" / f"{start:03}.jsonl", similar(start, start + 20))
    write_annotations(place)
    make = maker(place, tiny_tokenizer)

    def recipe(step: Step, annotated: Annotated | None) -> Recipe:
        cuts = cutting[step.kill % 2]
        # Often the settings stay, so that only affected documents are decided again.
        position = step.position if step.position < 3 else steps[0][0].position
        dedup = preferring(DEDUP[position], annotated)
        stages = [*step.stages, *annotating(place, annotated), *dedup]
        return make(place / "lake", [*stages, *([] if cuts is None else [cuts])], named="named")

    lake = Chain(place, client, similar)
    last = recipe(*steps[0])
    lake.run(last)
    for step, annotated in steps[1:]:
        lake.take_care(last, step)
        last = lake.change(last, recipe(step, annotated), step, monkeypatch)
        lake.check()
    lake.end(last)
    assert digests(last) == digests(replay(last, place / "fresh", client))
