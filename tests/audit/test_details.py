"""Stored reasons have details beyond their rule; counts ignore the details."""

import json
from pathlib import Path

from distributed import Client
from upath import UPath

from etl.audit.lake_report import report
from etl.audit.table_diff import diff
from etl.delta.table import Table
from etl.job.run import run
from etl.recipe.recipe import Recipe

QUIZ = [" ".join(f"{item}{word}" for word in range(20)) for item in ("a", "b", "c")]


def test_reasons_are_counted_without_details(client: Client, place: UPath, tmp_path: Path) -> None:
    (tmp_path / "quiz.txt").write_text("\n".join(QUIZ))
    texts = [*QUIZ, *QUIZ[:2], "nothing from the quiz"]
    lines = [json.dumps({"text": f"document {k}: {text}"}) for k, text in enumerate(texts)]
    (place / "crawl").mkdir()
    (place / "crawl" / "1.jsonl").write_text("\n".join(lines[:2]))
    recipe = Recipe(
        name="details",
        source={"path": str(place / "crawl")},
        lake=str(place / "lake"),
        stages=[{"decontaminate": {"sets": {"quiz": str(tmp_path / "quiz.txt")}}}],
    )
    assert run(recipe, cluster=client).rejected == {"decontaminate.quiz": 2}
    first = Table.open(recipe.table_url("documents")).version
    (place / "crawl" / "2.jsonl").write_text("\n".join(lines[2:]))
    assert run(recipe, cluster=client).rejected == {"decontaminate.quiz": 3}
    table = Table.open(recipe.table_url("documents"))
    stored = table.dataset().to_table(columns=["reason"])["reason"].to_pylist()
    assert len(set(stored)) == 4  # three n-grams, and null
    assert report(str(recipe.lake)).rejected == {"decontaminate.quiz": 5}
    changed = diff(recipe.table_url("documents"), first, table.version)
    assert changed.counts == {"decontaminate.quiz": 3, "kept": 1}
