"""Recipes that deduplicate, records for them, and the lake that they must make."""

import random
from collections import defaultdict
from typing import Any

from distributed import Client
from upath import UPath

from etl.delta.table import Table
from etl.job.run import run
from etl.lake.recipe_ledgers import open_all_ledgers
from etl.lake.table_digest import table_digest
from etl.lake.unit_files import unit_files
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import prose, write_jsonl
from tests.helpers.recipe_changes import STAGES, Record

FILTERS: tuple[Any, ...] = (
    *STAGES[3:],
    {"length": {"min_words": 80}},
    {"length": {"min_words": 70}},
)
NEAR = {"bands": 28, "rows": 4, "min_similarity": 0.7}
DEDUP: tuple[tuple[Any, ...], ...] = (
    ({"dedup_minhash": NEAR},),
    ("dedup_exact", {"dedup_minhash": NEAR}),
    ("dedup_exact", {"dedup_minhash": {**NEAR, "min_similarity": 0.9}}),
    ({"dedup_minhash": {**NEAR, "verify": "estimate"}},),
    ({"dedup_minhash": {**NEAR, "keep": "longest"}},),
    ("dedup_exact", {"dedup_minhash": {**NEAR, "bands": 16, "rows": 7}}),
)
CUTTING: tuple[tuple[Any, ...], ...] = (
    (None, None),
    (None, None),
    (
        {"dedup_paragraphs": {"unit": "lines", "min_chars": 12, "min_rest_chars": 60}},
        {"dedup_paragraphs": {"unit": "lines", "min_chars": 12, "min_rest_chars": 200}},
    ),
    (
        {"dedup_substrings": {"min_bytes": 64, "min_chars": 60}},
        {"dedup_substrings": {"min_bytes": 64, "min_chars": 200, "snap": "characters"}},
    ),
)


def similar(start: int, stop: int) -> list[Record]:
    """Return numbered records that are variants of nine texts: equal, shorter, or with other words."""
    found: list[Record] = []
    for number in range(start, stop):
        rng = random.Random(number)
        text = prose(rng.randrange(9)).split()
        for position in rng.sample(range(60), rng.choice([0, 0, 1, 2])):
            text[position] = f"word{rng.randrange(3)}"
        text = text[: len(text) - rng.choice([0, 0, 3, 8, 25])]
        body = "\n".join(" ".join(text[first : first + 12]) for first in range(0, len(text), 12))
        found.append({"doc_id": f"doc-{number:05}", "body": body, "link": f"https://x/{number}"})
    return found


def digests(recipe: Recipe) -> dict[str, int]:
    return {name: table_digest(Table.open(recipe.table_url(name))) for name in recipe.steps}


def replay(recipe: Recipe, lake: UPath, client: Client) -> Recipe:
    """Run a recipe from nothing, file by file in the order in which they arrived in its lake."""
    ledgers = open_all_ledgers(recipe)
    documents, texts = ledgers["documents"].table, ledgers["texts"]
    assert documents is not None
    first = ledgers["duplicates"].first_arrival
    arrivals: dict[int, set[str]] = defaultdict(set)
    for file in unit_files(documents):
        arrival = texts.arrival_of(texts.key(file["unit"])) or 0
        arrivals[max(arrival, first)].add(file["min.source"])
    paths: list[str] = []
    for _, sources in sorted(arrivals.items()):
        paths += sorted(sources)
        source = recipe.source.model_copy(update={"path": tuple(paths)})
        again = recipe.model_copy(update={"source": source, "lake": str(lake)})
        assert run(again, cluster=client).ok
    return again


def grow(place: UPath, recipe: Recipe, client: Client) -> None:
    """Run a recipe, and again with a file whose documents are similar to others, but come first by name."""
    run(recipe, cluster=client)
    write_jsonl(place / "corpus" / "000-new.jsonl", similar(100, 120))
    run(recipe, cluster=client)
