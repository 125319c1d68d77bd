"""Planted near-duplicates through the whole job: who stays, whatever the files, the order, the increments."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from etl.audit.verify import verify
from etl.job import shuffle
from etl.job.run import run
from etl.recipe import Recipe
from etl.stages import DedupMinhash
from tests.job.corpus import write_parquet
from tests.job.test_run import rows

Record = dict[str, str | None]
Pair = tuple[str, str, str]  # duplicate, keeper, kind


def words(seed: int, size: int = 120) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("abcdefghij", k=4)) for _ in range(size)]


def changed(text: list[str], *places: int, by: str = "new") -> list[str]:
    """The words with those at some places replaced: up to 5 shingles of each 5-gram go with a word."""
    return [f"{by}{k}x" if k in places else word for k, word in enumerate(text)]


def planted(families: int = 12) -> list[Record]:
    """Families of an original, copies with one or two words changed, equal copies, and one too far off."""
    found: list[tuple[str, list[str]]] = []
    for family in range(families):
        text = words(family)
        found += [
            (f"{family}-original", text),
            (f"{family}-near", changed(text, 60)),
            (f"{family}-equal", text),
            (f"{family}-far", changed(text, *range(3, 120, 9))),
            (f"{family}-longer", [*text, "and", "more"]),
        ]
    random.Random(2).shuffle(found)
    return [{"doc_id": name, "body": " ".join(text), "link": None} for name, text in found]


def make(lake: Path, source: Path, *stages: Any) -> Recipe:
    columns = {"text": "body", "id": "doc_id", "url": "link"}
    return Recipe(
        name="near",
        source={"path": str(source), "columns": columns},
        lake=str(lake),
        stages=stages or [DedupMinhash(verify="exact")],
    )


def write(folder: Path, records: Sequence[Record], files: int, first: int = 0) -> Path:
    """The records in so many files of different sizes, in their order."""
    folder.mkdir(exist_ok=True)
    rng = random.Random(files)
    cuts = sorted(rng.sample(range(1, len(records)), files - 1)) if files > 1 else []
    for number, (a, b) in enumerate(zip([0, *cuts], [*cuts, len(records)], strict=True)):
        write_parquet(folder / f"{first + number:03}.parquet", list(records[a:b]), group=7)
    return folder


def pairs(recipe: Recipe) -> set[Pair]:
    """The duplicates by their ids."""
    documents = rows(recipe.lake, "documents")
    names = {(row["source"], row["row"]): str(row["id"]) for row in documents}
    found = rows(recipe.lake, "duplicates")
    assert all(names[row["source"], row["row"]] == row["id"] for row in found)
    return {
        (str(row["id"]), names[row["keeper_source"], row["keeper_row"]], str(row["kind"]))
        for row in found
    }


def expected(records: Sequence[Record], *, has_exact: bool) -> set[Pair]:
    """All of a family but the far ones are duplicates of its first."""
    first: dict[str, Record] = {}
    found = set()
    for record in records:
        name = str(record["doc_id"])
        family, part = name.split("-")
        if part == "far":
            continue
        keeper = first.setdefault(family, record)
        if keeper is not record:
            kind = "exact" if has_exact and keeper["body"] == record["body"] else "near"
            found.add((name, str(keeper["doc_id"]), kind))
    return found


@pytest.mark.parametrize("files", [1, 3, 7])
@pytest.mark.parametrize("verify_by", ["estimate", "exact"])
def test_families_are_found(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: int,
    verify_by: Any,
) -> None:
    monkeypatch.setattr(shuffle, "ROWS_PER_PARTITION", 10**6 if files == 1 else 300)
    records = planted()
    stages = ["dedup_exact"] if files > 1 else []
    near = DedupMinhash(verify=verify_by, bands=28, rows=4, min_similarity=0.75)
    recipe = make(tmp_path / "lake", write(tmp_path / "in", records, files), *stages, near)
    report = run(recipe, cluster=client)
    assert report.ok
    assert pairs(recipe) == expected(records, has_exact=bool(stages))
    assert report.duplicates == len(pairs(recipe))
    assert verify(str(recipe.lake)) == []
