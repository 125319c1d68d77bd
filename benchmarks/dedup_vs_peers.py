"""Compare dedup_minhash with datatrove and rensa: CPU seconds on one thread, and documents kept.

    TOKENLAKE_DATA=... python benchmarks/dedup_vs_peers.py [--documents N]

Both get the same documents of ``$TOKENLAKE_DATA/docs`` as one Parquet file, with FineWeb's settings (words,
5-grams, 14 bands of 8 rows, 64-bit hashes). Tokenlake runs a recipe with this stage alone: reading,
signatures, shuffle, verification, keepers, and the commits of ``documents``, ``duplicates`` and ``keys``.
datatrove runs its four steps, from its reader to its writer. Each is one process, with kernels and language
models loaded in advance. datatrove joins all documents that share a band, without verification, so it removes
more. rensa is a library for signatures and bands: its figure covers these alone, for texts in memory, next to
Tokenlake's figure for the same work. text-dedup runs on Spark since version 0.4 and is not measured.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from distributed import Client
from filters_vs_peers import megabytes, peer

from etl.dedup.candidates import pair_candidates
from etl.dedup.key_lookup import keys_of_bands
from etl.delta.table import Table
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.stages import DedupMinhash

RENSA = ("rensa==0.5.0", "pyarrow")


def ours(documents: Path, lake: Path) -> tuple[float, int]:
    """Return the CPU seconds of a run, and the number of documents kept."""
    recipe = Recipe(
        name="minhash", source={"path": str(documents)}, lake=str(lake), stages=[DedupMinhash()]
    )
    client = Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with client:
        begun = time.process_time()
        report = run(recipe, cluster=client)
        seconds = time.process_time() - begun
    assert Table.exists(f"{lake}/keys")
    return seconds, report.kept - report.duplicates


def theirs(documents: Path, folder: Path) -> tuple[dict[str, float], int]:
    """Return the CPU seconds of datatrove's steps, and the number of documents kept."""
    script = Path(__file__).parent / "peers" / "datatrove_minhash.py"
    command = [str(part) for part in (peer(), script, documents, folder)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    kept = sum(pq.read_metadata(p).num_rows for p in (folder / "kept").rglob("*.parquet"))
    return json.loads(output.splitlines()[-1]), kept


def signed(documents: Path) -> tuple[dict[str, float], int]:
    """Return the CPU seconds of signatures and shared bands, and the number of documents with one."""
    texts, stage = pq.read_table(documents, columns=["text"])["text"], DedupMinhash()
    begun = time.process_time()
    signatures = stage.signature(texts)
    middle = time.process_time()
    keys = keys_of_bands(stage, signatures.drop_null())
    rows = np.repeat(np.arange(len(keys)), stage.bands)
    pairs = pair_candidates(pd.DataFrame({"key": keys.ravel(), "address": rows, "rank": 0.0}))
    sharing = len(np.unique(pairs[["better", "worse"]].to_numpy()))
    end = time.process_time()
    return {"signatures": middle - begun, "lsh": end - middle}, sharing


def signed_by_rensa(documents: Path) -> tuple[dict[str, float], int]:
    """Return the same for rensa."""
    script = Path(__file__).parent / "peers" / "rensa_minhash.py"
    command = [str(part) for part in (peer("rensa", RENSA), script, documents)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    steps, sharing = json.loads(output)
    return steps, sharing


def main() -> None:
    """Run both and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=3000)
    options = parser.parse_args()
    if "TOKENLAKE_DATA" not in os.environ:
        sys.exit("TOKENLAKE_DATA names no folder of real data")
    table = pq.read_table(Path(os.environ["TOKENLAKE_DATA"]) / "docs" / "docs-00000.parquet")
    step = max(1, len(table) // options.documents)
    table = table.take(list(range(0, len(table), step))).select(["id", "text"])
    size = megabytes(table)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, given = folder / "few.parquet", folder / "documents.parquet"
        pq.write_table(table.slice(0, 20), few)
        pq.write_table(table, given)
        ours(few, folder / "warm")
        seconds, kept = ours(given, folder / "lake")
        steps, their_kept = theirs(given, folder / "datatrove")
        signed(few)
        bands = {"tokenlake": signed(given), "rensa": signed_by_rensa(given)}
    total = sum(steps.values())
    print(f"{len(table):,} documents, {size:.1f} MB of text")
    print(f"tokenlake  {seconds:8.2f} s of CPU time  {size / seconds:8.2f} MB/s  {kept:,} kept")
    print(f"datatrove  {total:8.2f} s of CPU time  {size / total:8.2f} MB/s  {their_kept:,} kept")
    print("           " + ", ".join(f"{step} {value:.2f} s" for step, value in steps.items()))
    print(f"ratio      {total / seconds:8.1f}")
    print("signatures, and documents that share a band:")
    for name, (parts, sharing) in bands.items():
        seconds = sum(parts.values())
        rate = f"{size / seconds:8.2f} MB/s  {sharing:,} share one"
        print(f"{name:9}  {seconds:8.2f} s of CPU time  {rate}")
        print("           " + ", ".join(f"{step} {value:.2f} s" for step, value in parts.items()))


if __name__ == "__main__":
    main()
