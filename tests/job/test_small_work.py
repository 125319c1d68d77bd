"""Few documents are compared in a thread of the command, and the price of a change knows it."""

import pytest

from etl.job.change_plan import deciding_seconds
from etl.job.cost_estimate import STARTUP_SECONDS
from etl.job.small_work import compares_in_driver
from etl.recipe.recipe import Recipe
from etl.stages.dedup_base import DedupStage

SMALL, LARGE = 512 << 20, (512 << 20) + 1
HASHES, CUTS = ["dedup_exact", "dedup_minhash"], ["dedup_exact", "dedup_paragraphs"]


def stages(kinds: list[str]) -> tuple[DedupStage, ...]:
    return tuple(Recipe(source="a.jsonl", stages=[*kinds, {"tokenize": "a.json"}]).dedup_stages)


@pytest.mark.parametrize(
    ("kinds", "stored_bytes", "expected"),
    [(HASHES, SMALL, True), (HASHES, LARGE, False), (CUTS, 0, False)],
)
def test_where_documents_are_compared(
    kinds: list[str], stored_bytes: int, *, expected: bool
) -> None:
    assert compares_in_driver(stages(kinds), stored_bytes) == expected


def test_a_comparison_by_hashes_costs_what_was_measured() -> None:
    """Of 184,347 documents with 1.9 GB of text, 9 CPU seconds: ``benchmarks/RESULTS.md``."""
    price = deciding_seconds(
        stages(HASHES), 184_347, text_bytes=1_900_000_000, stored_bytes=220_000_000
    )
    assert price == pytest.approx(9, rel=0.2)


def test_more_documents_cost_the_start_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etl.job.change_plan.local_workers", lambda _: 5)
    small, large = (
        deciding_seconds(stages(HASHES), 1000, text_bytes=10**9, stored_bytes=size)
        for size in (SMALL, LARGE)
    )
    assert large - small == pytest.approx(4 * STARTUP_SECONDS)


def test_passages_that_are_cut_cost_by_their_bytes() -> None:
    few, many = (
        deciding_seconds(stages(CUTS), 1000, text_bytes=size, stored_bytes=0) for size in (0, 10**9)
    )
    assert many - few > 1e9 / 94e6
