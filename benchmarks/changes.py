"""The CPU time of changes of a recipe, compared with that of the first run and of a rebuild.

    TOKENLAKE_DATA=... python benchmarks/changes.py [--megabytes N] [--dedup] [--repeat N] [--only NAME]

The lake is made from `chains.distinct_text` by filters and a tokenizer; with `--dedup`, exact and near
duplicates are removed, too. Each change starts from a copy of it. Changes of one document in a hundred draw
them by their number of characters, so that they are in all row groups. The times are CPU seconds of all
processes of a command, medians; they include the start of Python, which is most of a run that has nothing to
do. The last column is the time without that start for a million documents of the lake.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from chains import distinct_text
from child_times import measure_command
from deltalake import DeltaTable
from token_data import data_folder, tokenizer

START = "nothing to do"
DEDUP: list[Any] = ["dedup_exact", {"dedup_minhash": {"min_similarity": 0.8}}]
STRICTER: list[Any] = ["dedup_exact", {"dedup_minhash": {"min_similarity": 0.85}}]


def stages(*, min_words: int = 50, drawn: str = "num_chars % 200 != 7") -> list[Any]:
    """Return the filters of a recipe, of which a change varies some."""
    quality = {"min_words": min_words, "min_stop_words": None, "min_alpha_word_ratio": 0.5}
    drawn_by = [{"where": {"keep": drawn}}] if drawn else []
    return [{"gopher_quality": quality}, "gopher_repetition", *drawn_by]


def annotated(number: int) -> list[Any]:
    """Return the filters with a version of the annotations, which `Lakes` writes."""
    return [{"annotate": {"table": f"scores{number}.parquet", "key": "id", "values": ["score"]}}]


@dataclass(frozen=True)
class Change:
    """A recipe that a lake is changed to, and the one that has made it."""

    stages: list[Any]
    begin: list[Any] | None = None  # None: ``stages()``
    dedup: list[Any] | None = None  # None: ``DEDUP``, if documents are deduplicated
    named: bool = False  # whether there is a second tokenizer


CHANGES = {
    "0.5 % leave": Change(stages(drawn="num_chars % 200 NOT IN (7, 8)")),
    "0.5 % leave, 0.5 % come": Change(stages(drawn="num_chars % 200 != 8")),
    "min_words 50 -> 51": Change(stages(min_words=51)),
    "min_words 50 -> 45": Change(stages(min_words=45)),
    "a filter of a stored signal": Change([*stages(), {"where": "mean_word_length < 7.5"}]),
    "a filter removed": Change(stages(drawn="")),
    "filters in another order": Change([*stages()[:1], *stages()[:0:-1]]),
    "annotations": Change([*annotated(1), *stages()]),
    "1 % of the annotations": Change([*annotated(2), *stages()], begin=[*annotated(1), *stages()]),
    "another tokenizer": Change(stages(), named=True),
}
OF_DEDUP = {"min_similarity 0.8 -> 0.85": Change(stages(), dedup=STRICTER)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--dedup", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=[*CHANGES, *OF_DEDUP])
    arguments = parser.parse_args()
    dedup = DEDUP if arguments.dedup else []
    changes = CHANGES | (OF_DEDUP if arguments.dedup else {})
    source = distinct_text(data_folder(), arguments.megabytes)
    with tempfile.TemporaryDirectory() as folder:
        lakes = Lakes(Path(folder), source, dedup)
        lakes.write_annotations()
        for row in _rows(lakes, changes, arguments.repeat, arguments.only):
            print(row, flush=True)


def _rows(
    lakes: "Lakes", changes: dict[str, Change], repeat: int, only: str | None
) -> Iterator[str]:
    first = [lakes.run(Change(stages()), f"first{n}") for n in range(repeat)]
    start = [lakes.run(Change(stages()), "first0") for _ in range(repeat)]
    table = Table(_medians(first)[0], _medians(start)[0], lakes.num_documents("first0"))
    yield f"{'':<28}{'CPU s':>8}{'% of first':>12}{'wall s':>8}{'s/million':>11}"
    yield table.row("first run", first)
    yield table.row(START, start)
    for name, change in changes.items():
        if only in (None, name):
            yield table.row(name, [lakes.change(change) for _ in range(repeat)])
    rebuild = Change(stages(min_words=51))
    lakes.copy("first0", "rebuilt")
    yield table.row(
        "--rebuild", [lakes.run(rebuild, "rebuilt", "--rebuild") for _ in range(repeat)]
    )


def _medians(times: list[tuple[float, float]]) -> tuple[float, float]:
    cpu, wall = (statistics.median(column) for column in zip(*times, strict=True))
    return cpu, wall


@dataclass(frozen=True)
class Table:
    """The table: CPU seconds of the first run and of a run without work, and the documents of the lake."""

    first: float
    start: float
    num_documents: int

    def row(self, name: str, times: list[tuple[float, float]]) -> str:
        """Return the line of a command."""
        cpu, wall = _medians(times)
        steady = (cpu - self.start) * 1e6 / self.num_documents
        return f"{name:<28}{cpu:>8.2f}{cpu / self.first:>12.1%}{wall:>8.2f}{steady:>11.1f}"


@dataclass(frozen=True)
class Lakes:
    """Lakes in a folder, made from the same files by stages that end with deduplication and tokenizers."""

    folder: Path
    source: Path
    dedup: list[Any]

    def write_annotations(self) -> None:
        """Write two versions of a table with a score for each document; one value in a hundred differs."""
        files = sorted(self.source.glob("*.parquet"))
        ids = pl.concat([pl.read_parquet(path, columns=["id"]) for path in files]).with_row_index()
        score = pl.col("index") % 1000
        moved = pl.when(pl.col("index") % 100 == 0).then(score + 1).otherwise(score)
        for number, values in enumerate((score, moved), 1):
            ids.select("id", score=values).write_parquet(self.folder / f"scores{number}.parquet")

    def num_documents(self, lake: str) -> int:
        """Return the number of documents of a lake."""
        return DeltaTable(self.folder / lake / "documents").count()

    def run(self, change: Change, lake: str, *options: str) -> tuple[float, float]:
        """Return the CPU seconds of a run with all its processes, and its wall seconds."""
        recipe = self.folder / "recipe.yaml"  # JSON is YAML
        dedup = self.dedup if change.dedup is None else change.dedup
        path = str(tokenizer(data_folder()))
        named = [{"tokenize": {"name": "other", "tokenizer": path}}] if change.named else []
        settings = {
            "name": "changes",
            "source": {"path": str(self.source / "*.parquet"), "columns": {"id": "id"}},
            "stages": [*change.stages, *dedup, {"tokenize": path}, *named],
        }
        recipe.write_text(json.dumps(settings), "utf-8")
        return measure_command(["run", str(recipe), "--lake", str(self.folder / lake), *options])

    def change(self, change: Change) -> tuple[float, float]:
        """Return the seconds of a change of a lake that another recipe has made, in a copy of it."""
        begin = "first0" if change.begin is None else "begin"
        if change.begin is not None and not (self.folder / begin).exists():
            self.run(Change(change.begin), begin)
        self.copy(begin, "changed")
        return self.run(change, "changed", *([] if change.named else ["--apply-change"]))

    def copy(self, lake: str, copy: str) -> None:
        """Copy a lake."""
        shutil.rmtree(self.folder / copy, ignore_errors=True)
        shutil.copytree(self.folder / lake, self.folder / copy)


if __name__ == "__main__":
    main()
