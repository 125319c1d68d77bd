"""Time and memory of `etl report --html` on a lake of 10 million documents.

    python benchmarks/page_at_scale.py --folder /tmp/page --documents 10000000

Generates documents of six random sentences from a pool of 100,000 as Parquet: 5 % have one sentence, 3 % have
many symbols, and 3 % occur in several files. Runs a recipe on them with small splits, so that the lake has as
many data files as one of longer documents, and then the command in a fresh process. ``memory`` is the largest
of that process.
"""

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from etl.job.run import run
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
COMMAND = """
import resource
from etl.cli.app import app
app(["report", {lake!r}, "--html", {page!r}], standalone_mode=False)
used = resource.getrusage(resource.RUSAGE_SELF)
print(f"{{used.ru_utime + used.ru_stime:.1f}} s of CPU time, {{used.ru_maxrss / 1024:.0f}} MB of memory")
"""


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
    picked = rng.integers(0, POOL, (FILE_ROWS, 6))
    picked[:REPEATED_ROWS] = np.random.default_rng(0).integers(0, POOL, (REPEATED_ROWS, 6))
    parts = pl.DataFrame({f"s{k}": pool.gather(picked[:, k]) for k in range(6)})
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
            {"gopher_quality": {"min_alpha_word_ratio": 0.7}},
            "fineweb_quality",
            "dedup_exact",
            {"tokenize": str(find_recipe("demo").parent / "sample" / "tokenizer.json")},
        ],
    )
    assert run(recipe).ok
    return str(lake)


def main() -> None:
    """Make the lake, and measure the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=10_000_000)
    options = parser.parse_args()
    lake = make_lake(options.folder, options.documents)
    page = options.folder / "report.html"
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", COMMAND.format(lake=lake, page=str(page))], check=True)
    print(f"{time.monotonic() - start:.1f} s, a page of {page.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
