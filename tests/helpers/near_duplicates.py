"""Corpora of near-duplicates with known keepers, recipes for them, and the pairs that a run finds."""

import random
from collections.abc import Sequence
from typing import Any

from upath import UPath

from etl.recipe.recipe import Recipe
from etl.stages import DedupMinhash
from tests.helpers.corpus import write_parquet
from tests.helpers.lake_rows import rows

Record = dict[str, str | None]
Pair = tuple[str, str, str]  # duplicate, keeper, kind


def words(seed: int, size: int = 120) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("abcdefghij", k=4)) for _ in range(size)]


def changed(text: list[str], *positions: int, by: str = "new") -> list[str]:
    """Replace the words at some positions; each one changes up to five 5-gram shingles."""
    return [f"{by}{k}x" if k in positions else word for k, word in enumerate(text)]


def planted(families: int = 12) -> list[Record]:
    """Return families of an original, two near copies, an equal copy, and one text that differs too much."""
    named_texts: list[tuple[str, list[str]]] = []
    for family in range(families):
        text = words(family)
        named_texts += [
            (f"{family}-original", text),
            (f"{family}-near", changed(text, 60)),
            (f"{family}-equal", text),
            (f"{family}-far", changed(text, *range(3, 120, 9))),
            (f"{family}-longer", [*text, "and", "more"]),
        ]
    random.Random(2).shuffle(named_texts)
    return [{"doc_id": name, "body": " ".join(text), "link": None} for name, text in named_texts]


def make(lake: UPath, source: UPath, *stages: Any) -> Recipe:
    columns = {"text": "body", "id": "doc_id", "url": "link"}
    return Recipe(
        name="near",
        source={"path": str(source), "columns": columns},
        lake=str(lake),
        stages=stages or [DedupMinhash(verify="exact")],
    )


def write(folder: UPath, records: Sequence[Record], files: int, first: int = 0) -> UPath:
    """Write the records in order to files of different sizes."""
    rng = random.Random(files)
    cuts = sorted(rng.sample(range(1, len(records)), files - 1)) if files > 1 else []
    for number, (a, b) in enumerate(zip([0, *cuts], [*cuts, len(records)], strict=True)):
        write_parquet(folder / f"{first + number:03}.parquet", list(records[a:b]), group=7)
    return folder


def pairs(recipe: Recipe) -> set[Pair]:
    """Return the duplicates, their keepers and kinds, with documents by id."""
    documents = rows(recipe.lake, "documents")
    names = {(row["source"], row["row"]): str(row["id"]) for row in documents}
    duplicates = rows(recipe.lake, "duplicates")
    assert all(names[row["source"], row["row"]] == row["id"] for row in duplicates)
    return {
        (str(row["id"]), names[row["keeper_source"], row["keeper_row"]], str(row["kind"]))
        for row in duplicates
    }


def expected(records: Sequence[Record], *, has_exact: bool) -> set[Pair]:
    """Return the expected pairs: all of a family but the far text are duplicates of its first."""
    first: dict[str, Record] = {}
    duplicates = set()
    for record in records:
        name = str(record["doc_id"])
        family, part = name.split("-")
        if part == "far":
            continue
        keeper = first.setdefault(family, record)
        if keeper is not record:
            kind = "exact" if has_exact and keeper["body"] == record["body"] else "near"
            duplicates.add((name, str(keeper["doc_id"]), kind))
    return duplicates


def tangled(seed: int, size: int = 48) -> list[Record]:
    """Return texts that repeat an earlier one, change a few of its words, or are new."""
    rng = random.Random(seed)
    texts = [words(seed, 60)]
    while len(texts) < size:
        text = list(rng.choice(texts))
        fate = rng.random()
        if fate < 0.25:
            text = words(rng.randrange(10**9), 60)
        elif fate < 0.8:
            for _ in range(rng.randrange(1, 4)):
                text[rng.randrange(60)] = "".join(rng.choices("abcdefghij", k=5))
        texts.append(text)
    return [
        {"doc_id": f"{k}", "body": " ".join(text), "link": None} for k, text in enumerate(texts)
    ]


def record(name: str, text: list[str]) -> Record:
    return {"doc_id": name, "body": " ".join(text), "link": None}
