"""Deduplication of many documents: time and memory.

    TOKENLAKE_DATA=... python benchmarks/dedup_at_scale.py [--documents N]
    TOKENLAKE_DATA=... python benchmarks/dedup_at_scale.py --memory N

Documents are generated from real text: each is eight runs of 15 words from English documents of
``$TOKENLAKE_DATA/bench``, and one in four is an earlier one with one or two words changed. The generator is
seeded.

``--documents``: one million by default, on two worker processes. The first pass (reading, signatures,
writing), the deduplication (the shuffle of hashes and bands, verification, decisions, the commit of
``duplicates``) and the writing of ``keys`` are measured separately.

``--memory``: a quarter, half and all of N documents; deduplication and keys without the first pass, each in
fresh processes. Reports the maximum memory of the driver and of the larger worker (including their memory
before), and the number of pairs with a common band.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client
from token_data import data_folder

from etl.compute.cluster import Cluster
from etl.compute.listener import Listener, Progress
from etl.dedup.candidates import pair_candidates
from etl.dedup.key_lookup import keys_of_bands
from etl.delta.table import Table
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.stages import DedupMinhash

RUNS, WORDS = 8, 15  # per document: runs of consecutive words, and words per run
PER_FILE = 20_000


def write_documents(data: Path, folder: Path, number: int) -> None:
    """Write generated documents as Parquet."""
    table = pq.read_table(sorted(data.glob("bench/win32*.parquet")), columns=["text"]).slice(
        0, 10_000
    )
    words = " ".join(table["text"].to_pylist()).split()
    rng = np.random.default_rng(0)
    starts = rng.integers(0, len(words) - WORDS, (number, RUNS))
    like = np.where(rng.random(number) < 0.25, (rng.random(number) * np.arange(number)), -1)
    changed = rng.integers(0, RUNS * WORDS, (number, 2))
    folder.mkdir()
    for first in range(0, number, PER_FILE):
        texts = []
        for k in range(first, min(first + PER_FILE, number)):
            original = k if like[k] < 0 else int(like[k])
            text = [word for start in starts[original] for word in words[start : start + WORDS]]
            if original != k:
                for place in changed[k]:
                    text[place] = f"changed{k}"
            texts.append(" ".join(text))
        pq.write_table(pa.table({"text": texts}), folder / f"{first:09}.parquet")


def recipe(folder: Path) -> Recipe:
    """Return a recipe with both kinds of deduplication for a folder of documents."""
    stages = ["dedup_exact", "dedup_minhash"]
    source = {"path": str(folder / "in")}
    fields = {"name": "scale", "source": source, "lake": str(folder / "lake"), "stages": stages}
    return Recipe.model_validate(fields)


def steps(folder: Path, client: Client) -> tuple[dict[str, float], int]:
    """Return the seconds of each step of a run, and the number of duplicates."""
    ends: dict[str, float] = {"begin": time.monotonic()}

    class Ends(Listener):
        def progress(self, progress: Progress) -> None:
            ends[progress.step] = time.monotonic()

    report = run(recipe(folder), cluster=client, listener=Ends())
    ends["keys"] = time.monotonic()
    times = list(ends.values())
    seconds = dict(zip(list(ends)[1:], np.diff(times).tolist(), strict=True))
    return seconds, report.duplicates


def whole(data: Path, number: int) -> Iterator[str]:
    """Yield the seconds of each step of one run."""
    with tempfile.TemporaryDirectory() as name, Cluster(workers=2).connect() as client:
        write_documents(data, Path(name) / "in", number)
        seconds, duplicates = steps(Path(name), client)
    yield f"| {number:,} documents, {duplicates:,} duplicates | s |\n|---|---|"
    yield f"| first pass, with signatures | {seconds['documents']:.1f} |"
    yield f"| shuffle, verification, decisions | {seconds['duplicates']:.1f} |"
    yield f"| keys | {seconds['keys']:.1f} |"


def memory(data: Path, largest: int) -> Iterator[str]:
    """Yield the maximum memory at three sizes."""
    yield "| documents | pairs compared | duplicates | driver MB | worker MB |"
    yield "|---|---|---|---|---|"
    for number in (largest // 4, largest // 2, largest):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_documents(data, folder / "in", number)
            with Cluster(workers=2).connect() as client:
                run(recipe(folder), cluster=client)
            pairs = compared(folder)
            for table in ("duplicates", "keys"):
                shutil.rmtree(folder / "lake" / table)
            command = [sys.executable, __file__, "--barrier", name]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found, driver, worker = json.loads(output.splitlines()[-1])
        yield f"| {number:,} | {pairs:,} | {found:,} | {driver:.0f} | {worker:.0f} |"


def compared(folder: Path) -> int:
    """Return the number of pairs of documents with different texts and a common band."""
    stage, table = DedupMinhash(), Table.open(f"{folder}/lake/documents")
    columns = table.dataset().to_table(columns=["content_hash", "signature"]).to_pandas()
    signatures = columns.drop_duplicates("content_hash")["signature"].dropna()
    keys = keys_of_bands(stage, pa.array(signatures, pa.binary()))
    rows = np.repeat(np.arange(len(keys)), stage.bands)
    bands = pd.DataFrame({"key": keys.ravel(), "address": rows, "rank": 0.0})
    return len(pair_candidates(bands))


def barrier(folder: Path) -> str:
    """Return the duplicates among existing documents, and the maximum MB of driver and worker."""
    with Cluster(workers=2).connect() as client:
        _, duplicates = steps(folder, client)
        workers = client.run(peak)
    return json.dumps([duplicates, peak(), max(workers.values())])


def peak() -> float:
    """Return the maximum memory of this process so far, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    """Print a table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--memory", type=int, metavar="DOCUMENTS")
    parser.add_argument("--barrier", type=Path, help=argparse.SUPPRESS)  # for --memory
    options = parser.parse_args()
    if options.barrier is not None:
        print(barrier(options.barrier))
        return
    data, asked = data_folder(), options.memory
    lines = whole(data, options.documents) if asked is None else memory(data, asked)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
