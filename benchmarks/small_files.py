"""Data files and run time for many small input files: before, and with files read in packs, alternately.

    TOKENLAKE_DATA=... python benchmarks/small_files.py --before PATH [--files 300] [--kilobytes 2]

Writes files of one document each, cut from the text of ``$TOKENLAKE_DATA/bench``, and runs gopher_quality,
dedup_exact and tokenize over them on two workers: with the checkout at PATH, and with this one. ``CPU`` is
that of all processes. The figures are medians of three pairs.
"""

import argparse
import json
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

import deltalake
import pyarrow.parquet as pq
from child_times import measure_command
from token_data import data_folder, tokenizer

ROOT = Path(__file__).parent.parent
TABLES = ("documents", "texts", "tokens")
PAIRS = 3


def write_input(data: Path, folder: Path, files: int, characters: int) -> None:
    """Write files of one document of so many characters."""
    folder.mkdir()
    column = pq.read_table(min((data / "bench").glob("*.parquet")), columns=["text"])["text"]
    text = " ".join(column.to_pylist())
    for number in range(files):
        start = number * characters % (len(text) - characters)
        document = {"text": f"{number} {text[start : start + characters]}"}
        (folder / f"{number:05}.jsonl").write_text(json.dumps(document) + "\n")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--kilobytes", type=int, default=2)
    arguments = parser.parse_args()
    data = data_folder()
    figures = defaultdict[str, list[tuple[float, ...]]](list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_input(data, folder / "in", arguments.files, arguments.kilobytes * 1000)
        recipe = folder / "recipe.yaml"
        tolerant = {"kind": "gopher_quality", "min_stop_words": None, "min_alpha_word_ratio": 0.5}
        stages = [tolerant, "dedup_exact", {"tokenize": str(tokenizer(data))}]
        source = {"path": str(folder / "in")}
        recipe.write_text(json.dumps({"name": "small", "source": source, "stages": stages}))
        checkouts = {"before": arguments.before.resolve(), "in packs": ROOT}
        for pair in range(PAIRS + 1):  # the first compiles kernels, and does not count
            for which, checkout in checkouts.items():
                lake = folder / f"{which.split()[-1]}-{pair}"
                command = ["run", str(recipe), "--lake", str(lake), "--workers", "2"]
                times = measure_command(command, checkout)
                counts = [len(deltalake.DeltaTable(lake / table).file_uris()) for table in TABLES]
                if pair:
                    figures[which].append((*times, *counts))
    print(f"{'':<10}{'CPU s':>8}{'wall s':>8}" + "".join(f"{table:>11}" for table in TABLES))
    for which, values in figures.items():
        cpu, wall, *counts = map(statistics.median, zip(*values, strict=True))
        print(
            f"{which:<10}{cpu:>8.1f}{wall:>8.1f}" + "".join(f"{count:>11.0f}" for count in counts)
        )


if __name__ == "__main__":
    main()
