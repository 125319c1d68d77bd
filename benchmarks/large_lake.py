"""Time and memory of commands on a lake of 10 million documents, and CPU time of writing `documents` again.

    python benchmarks/large_lake.py --folder /tmp/large --documents 10000000
    python benchmarks/large_lake.py --folder /tmp/large --rewrite

Generates documents of three random sentences from a pool of 100,000, about 200 bytes each, as Parquet: 5 %
have one sentence, 3 % have many symbols, and 3 % occur in several files. Runs a recipe on them with small
splits, so that the lake has as many data files as one of longer documents, and then each command in a fresh
process, the best of three by CPU time. ``memory`` is the largest of that process. ``--rewrite`` writes a
million rows of `documents` with 25 signals to 500 and to 5,000 files, in one thread.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from etl import schemas
from etl.job.run import run
from etl.lake.table_specs import DOCUMENTS
from etl.parquet.data_file import DataFileWriter
from etl.pipelines import find_recipe
from etl.recipe.recipe import Recipe

WORDS = (
    "the river of stone and light that we have seen with our own eyes is to be a long way from here but "
    "few can say where it ends or who will walk beside it in the morning market garden winter school "
    "letter answer number table music ground record engine careful quiet simple people because without"
).split()
POOL = 100_000
FILE_ROWS = 62_500
REPEATED_ROWS = 2_000
COMMANDS = {
    "status": ["status", "{lake}"],
    "report": ["report", "{lake}"],
    "report --html": ["report", "{lake}", "--html", "{folder}/report.html"],
    "tune, 5 cases": ["tune", "{lake}", "--sweep", "gopher_quality.min_words=20,30,40,50,60"],
}
PROGRAM = """
import json, os, resource, sys, time
from etl.cli.app import app
start = time.monotonic()
app(json.loads(sys.argv[1]), standalone_mode=False)
used = resource.getrusage(resource.RUSAGE_SELF)
# Its ru_maxrss is at least that of the process that started this one.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
took = used.ru_utime + used.ru_stime, time.monotonic() - start, int(status["VmHWM"].split()[0]) / 1024
print(json.dumps(took), file=sys.stderr)
"""
SIGNALS = 25
SOURCES = 16


def sentences() -> pl.Series:
    """Return the pool of sentences, 8 to 18 words each."""
    rng = random.Random(0)  # noqa: S311 - reproducible text
    lengths = [rng.randint(8, 18) for _ in range(POOL)]
    return pl.Series(
        [" ".join(rng.choice(WORDS) for _ in range(n)).capitalize() + "." for n in lengths]
    )


def write_file(path: Path, number: int, pool: pl.Series) -> None:
    """Write one input file; its first rows equal the first rows of all other files."""
    rng = np.random.default_rng(number + 1)
    picked = rng.integers(0, POOL, (FILE_ROWS, 3))
    picked[:REPEATED_ROWS] = np.random.default_rng(0).integers(0, POOL, (REPEATED_ROWS, 3))
    parts = pl.DataFrame({f"s{k}": pool.gather(picked[:, k]) for k in range(3)})
    whole = pl.concat_str(pl.all(), separator=" ")
    kind = pl.Series("kind", rng.random(FILE_ROWS))
    symbols = whole.str.replace_all(" of ", " # # ", literal=True)
    text = pl.when(kind < 0.05).then("s0").when(kind < 0.08).then(symbols).otherwise(whole)
    parts.select(text=text).write_parquet(path, row_group_size=FILE_ROWS // 10)


def make_lake(folder: Path, documents: int) -> str:
    """Generate the input and run the recipe, unless the lake exists."""
    lake = folder / "lake"
    if lake.exists():
        return str(lake)
    (folder / "input").mkdir(parents=True)
    pool = sentences()
    for number in range(documents // FILE_ROWS):
        write_file(folder / "input" / f"{number:05}.parquet", number, pool)
    recipe = Recipe(
        name="scale",
        source={"path": str(folder / "input"), "split_bytes": 4 << 20},
        lake=str(lake),
        stages=[
            {"language": {"keep": ["en"], "min_score": 0.65}},
            {"gopher_quality": {"min_alpha_word_ratio": 0.7, "min_words": 20}},
            "fineweb_quality",
            "dedup_exact",
            {"tokenize": str(find_recipe("demo").parent / "sample" / "tokenizer.json")},
        ],
    )
    assert run(recipe).ok
    return str(lake)


def print_commands(folder: Path, lake: str) -> None:
    """Print the CPU time, the time and the memory of each command."""
    print("| command | CPU seconds | seconds | memory MB |\n|---|---|---|---|")
    for name, words in COMMANDS.items():
        command = json.dumps([word.format(lake=lake, folder=folder) for word in words])
        took = []
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, command], capture_output=True, text=True, check=True
            )
            took.append(json.loads(done.stderr.splitlines()[-1]))
        print("| {} | {:.1f} | {:.1f} | {:.0f} |".format(name, *min(took)), flush=True)


def rewrite(folder: Path, files: int, rows: int = 1_000_000) -> tuple[float, int]:
    """Write rows of `documents` to so many data files; return the CPU seconds and the bytes."""
    names = [f"signal_{number}" for number in range(SIGNALS)]
    schema, rng = schemas.documents(names), np.random.default_rng(0)
    count = rows // files
    values = {name: np.round(rng.gamma(2.0, 40.0, count), 3) for name in names}
    shutil.rmtree(folder, ignore_errors=True)
    size, seconds = 0, 0.0
    for number in range(files):
        first = number * count
        table = pl.DataFrame(
            {
                "id": [f"document-{row}" for row in range(first, first + count)],
                "source": f"s3://crawl/2026-10/part-{number * SOURCES // files:05}.parquet",
                "row": np.arange(first, first + count),
                "url": [
                    f"https://{row % 977}.example/{row}" for row in range(first, first + count)
                ],
                "lang": "en",
                "lang_score": rng.random(count),
                "content_hash": [rng.bytes(16) for _ in range(count)],
                "verdict": "kept",
                **values,
            }
        ).to_arrow()
        columns = [
            table[field.name] if field.name in table.column_names else pa.nulls(count, field.type)
            for field in schema
        ]
        rows_of_file = pa.table(columns, schema.names).cast(schema)
        start = time.process_time()
        writer = DataFileWriter(
            str(folder),
            schema,
            DOCUMENTS.layout,
            name=f"{number:032x}",
            partition={"verdict": "kept"},
        )
        writer.append(rows_of_file)
        size += sum(file.size for file in writer.close())
        seconds += time.process_time() - start
    return seconds, size


def main() -> None:
    """Make the lake, and measure the commands; or write rows again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--rewrite", action="store_true")
    options = parser.parse_args()
    if options.rewrite:
        for files in (500, 5_000):
            seconds, size = rewrite(options.folder / "rewritten", files)
            print(f"{files} files: {seconds:.1f} CPU seconds, {size / 1e6:.0f} MB")
        return
    print_commands(options.folder, make_lake(options.folder, options.documents))


if __name__ == "__main__":
    main()
