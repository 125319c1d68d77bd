"""Measure what FineWeb's filters cost a process that starts: to compile their kernels, or to load them.

    TOKENLAKE_DATA=... python benchmarks/cold_start.py [--root CHECKOUT]

runs the filters on 50 documents of ``docs`` in fresh processes: three times with an empty cache, then three
times with a full one. Each number is CPU time of the process, the best of three; ``import`` is what comes
before the first batch. --root measures another checkout, to compare it on the same machine.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 3
ROOT = Path(__file__).parents[1]
RUN = """
import os, sys, time
import etl.stages as stages
from etl.sources import Source
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from etl.stages.apply import apply

source = Source(path=os.environ["TOKENLAKE_DATA"] + "/docs/docs-00000.parquet", columns={"text": "text"})
batch = next(iter(read_split(next(iter(list_splits(source))), source))).slice(0, 50)
imported = time.process_time()
apply(batch, [
    stages.Language(keep=["en"]),
    stages.GopherRepetition(),
    stages.C4(terminal_punctuation=False),
    stages.GopherQuality(),
    stages.FinewebQuality(),
    stages.DedupExact(),
    stages.DedupMinhash(),
])
print(imported, time.process_time() - imported)
"""


def seconds(root: Path, cache: str) -> tuple[float, float]:
    """Return the CPU seconds of a process: for imports and input, and for the first batch."""
    environment = {**os.environ, "PYTHONPATH": str(root), "NUMBA_CACHE_DIR": cache}
    command = [sys.executable, "-c", RUN]
    run = subprocess.run(
        command, env=environment, cwd=root, capture_output=True, text=True, check=True
    )
    imported, batch = map(float, run.stdout.split())
    return imported, batch


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    root = parser.parse_args().root.resolve()
    print("| cache | import s | first batch s |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        caches = [f"{folder}/{number}" for number in range(ROUNDS)]
        for name in ("empty", "full"):
            imports, batches = zip(*(seconds(root, cache) for cache in caches), strict=True)
            print(f"| {name} | {min(imports):.1f} | {min(batches):.1f} |", flush=True)


if __name__ == "__main__":
    main()
