"""A small corpus with a known outcome: kept, rejected and duplicate records."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

WORDS = (
    "the river of stone and light that we have seen with our own eyes is to be a long way from "
    "here but nobody can say where it ends or who will walk beside it in the morning"
).split()


def prose(seed: int, words: int = 80) -> str:
    """Return English-like prose that passes all Gopher rules, different for each seed."""
    rng = random.Random(seed)
    picked = [rng.choice(WORDS) for _ in range(words)]
    return " ".join([*picked, "the", "of", "and", "that", f"number{seed}"]) + "."


def records(start: int, stop: int) -> list[dict[str, str | None]]:
    """Return numbered records: every 7th is too short, every 11th repeats the one before, some are empty."""
    rows: list[dict[str, str | None]] = []
    for number in range(start, stop):
        text: str | None = prose(number)
        if number % 7 == 3:
            text = "too short to keep"
        elif number % 11 == 5:
            text = prose(number - 1 if (number - 1) % 7 != 3 else 0)
        elif number % 23 == 9:
            text = None
        elif number % 29 == 1:
            text = "   "
        rows.append({"doc_id": f"doc-{number:05}", "body": text, "link": f"https://x/{number}"})
    return rows


def write_parquet(path: UPath, rows: list[dict[str, str | None]], group: int = 20) -> UPath:
    """Write records as Parquet with small row groups."""
    schema = pa.schema([(name, pa.string()) for name in ("doc_id", "body", "link")])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        pq.write_table(pa.Table.from_pylist(rows, schema), file, row_group_size=group)
    return path


def write_jsonl(path: UPath, rows: list[dict[str, str | None]]) -> UPath:
    """Write records as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_corpus(folder: UPath) -> UPath:
    """Write 300 records to three files: Parquet, Parquet and JSON Lines."""
    write_parquet(folder / "a.parquet", records(0, 100))
    write_parquet(folder / "b.parquet", records(100, 180))
    write_jsonl(folder / "c.jsonl", records(180, 300))
    return folder
