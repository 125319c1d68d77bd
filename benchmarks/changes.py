"""The CPU time of changes of a recipe, compared with that of the first run and of a rebuild.

    TOKENLAKE_DATA=... python benchmarks/changes.py [--megabytes N] [--dedup] [--repeat N] [--only NAME]

The lake is made from `chains.distinct_text` by filters and a tokenizer; with `--dedup`, exact and near
duplicates are removed, too. Each change starts from a copy of it. Changes of one document in a hundred draw
them by their number of characters, so that they are in all row groups. The times are CPU seconds of all
processes of a command, medians; they include the start of Python, which is most of a run that has nothing to
do.
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

from chains import distinct_text
from child_times import measure_command
from token_data import data_folder, tokenizer


def stages(
    *, min_words: int = 50, drawn: str = "num_chars % 200 != 7", more: bool = False
) -> list[Any]:
    """Return the stages of a recipe, of which a change varies some."""
    quality = {"min_words": min_words, "min_stop_words": None, "min_alpha_word_ratio": 0.5}
    added = [{"where": {"keep": "mean_word_length < 7.5"}}] if more else []
    return [{"gopher_quality": quality}, "gopher_repetition", {"where": {"keep": drawn}}, *added]


DEDUP: list[Any] = ["dedup_exact", {"dedup_minhash": {"min_similarity": 0.8}}]
CHANGES: dict[str, list[Any]] = {
    "0.5 % leave": stages(drawn="num_chars % 200 NOT IN (7, 8)"),
    "0.5 % leave, 0.5 % come": stages(drawn="num_chars % 200 != 8"),
    "min_words 50 -> 51": stages(min_words=51),
    "min_words 50 -> 45": stages(min_words=45),
    "a filter of stored signals": stages(more=True),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--dedup", action="store_true")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=CHANGES)
    arguments = parser.parse_args()
    dedup = DEDUP if arguments.dedup else []
    source = distinct_text(data_folder(), arguments.megabytes) / "*.parquet"
    with tempfile.TemporaryDirectory() as folder:
        lakes = Lakes(Path(folder), source, dedup)
        for row in _rows(lakes, arguments.repeat, arguments.only):
            print(row, flush=True)


def _rows(lakes: "Lakes", repeat: int, only: str | None) -> Iterator[str]:
    first = [lakes.run(stages(), f"first{n}") for n in range(repeat)]
    median = statistics.median(cpu for cpu, _ in first)
    yield f"{'':<28}{'CPU s':>8}{'% of first':>12}{'wall s':>8}"
    yield _row("first run", first, median)
    yield _row("nothing to do", [lakes.run(stages(), "first0") for _ in range(repeat)], median)
    for name, changed in CHANGES.items():
        if only in (None, name):
            yield _row(name, [lakes.change(changed) for _ in range(repeat)], median)


def _row(name: str, times: list[tuple[float, float]], first: float) -> str:
    cpu, wall = (statistics.median(column) for column in zip(*times, strict=True))
    return f"{name:<28}{cpu:>8.2f}{cpu / first:>12.1%}{wall:>8.2f}"


@dataclass(frozen=True)
class Lakes:
    """Lakes in a folder, made from the same files by stages that end with deduplication and a tokenizer."""

    folder: Path
    source: Path
    dedup: list[Any]

    def run(self, changed: list[Any], lake: str, *options: str) -> tuple[float, float]:
        """Return the CPU seconds of a run with all its processes, and its wall seconds."""
        recipe = self.folder / "recipe.yaml"  # JSON is YAML
        last = {"tokenize": str(tokenizer(data_folder()))}
        settings = {
            "name": "changes",
            "source": {"path": str(self.source)},
            "stages": [*changed, *self.dedup, last],
        }
        recipe.write_text(json.dumps(settings), "utf-8")
        return measure_command(["run", str(recipe), "--lake", str(self.folder / lake), *options])

    def change(self, changed: list[Any]) -> tuple[float, float]:
        """Return the seconds of a change of the first lake, in a copy of it."""
        copy = self.folder / "changed"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / "first0", copy)
        return self.run(changed, copy.name, "--apply-change")


if __name__ == "__main__":
    main()
