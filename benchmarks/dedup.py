r"""Near-duplicates: how many of the pairs that are there are found and joined, and how fast.

    TOKENLAKE_DATA=... python benchmarks/dedup.py [--copies N]

Quality: the 14,769 documents of ``$TOKENLAKE_DATA/docs`` are signed and compared as the job does it.
The truth is ``near_dup_pairs.parquet``: every pair with an exact Jaccard likeness of at least 0.5 over sets
of 5 words (lower case, ``\w+``), found without MinHash. *Found* are pairs with a band in common, *joined*
those that verification leaves; precision is the share of joined pairs whose true likeness is at least the
least one minus 0.05, recall counts the true pairs at or above it. *Theory* is 1 - (1 - s^rows)^bands, the
mean over the true pairs. Both are of pairs, before any keeper is chosen. Words differ from those of the
truth (digits count as 0, accents do not count, Katakana and marks are words of their own or parts of
them), which is most of what precision is short of.

Speed: signatures of 50 MB of English and of mixed languages on one core (CPU time, a warm kernel), and
the whole deduplication of the documents, ``--copies`` times over with one word in fifty changed, on two
worker processes (wall time from the first pass's end to the commit of ``duplicates``).
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from etl.cluster import Cluster
from etl.job import near
from etl.job.progress import Progress
from etl.job.run import run
from etl.kernels.minhash import band_keys, jaccard, shingles
from etl.kernels.utf8 import texts
from etl.recipe import Recipe
from etl.stages import DedupMinhash

Pairs = dict[tuple[int, int], float]

STAGES = {
    "FineWeb's: words": DedupMinhash(),
    "with digits and accents": DedupMinhash(fold_digits=False, fold_accents=False),
    "20 bands of 6": DedupMinhash(bands=20, rows=6),
    "13 characters": DedupMinhash(unit="chars", ngram=13),
}
BINS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)


def truth(data: Path, ids: list[str]) -> Pairs:
    """Pairs of documents by their numbers, and how alike they are."""
    place = {name: number for number, name in enumerate(ids)}
    rows = pl.read_parquet(data / "docs" / "near_dup_pairs.parquet").iter_rows()
    found = {}
    for a, b, value, _ in rows:
        found[min(place[a], place[b]), max(place[a], place[b])] = value
    return found


def candidates(stage: DedupMinhash, numbers: np.ndarray) -> set[tuple[int, int]]:
    """The pairs with a band in common, as the job makes them."""
    rows = np.flatnonzero(numbers[:, 0] > 0)
    bands = {
        "key": band_keys(numbers[rows, 1:], stage.bands).ravel(),
        "address": np.repeat(rows, stage.bands),
        "rank": np.zeros(len(rows) * stage.bands),
    }
    pairs = near.candidates(pd.DataFrame(bands))
    return set(zip(pairs["better"].tolist(), pairs["worse"].tolist(), strict=True))


def quality(data: Path) -> Iterator[str]:
    """A table of recall and precision for each of STAGES."""
    table = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["id", "text"])
    known, array = truth(data, table["id"].to_pylist()), table["text"].combine_chunks()
    same = [pair for pair, value in known.items() if value >= 1]
    yield "| settings | verified by | found >= 0.8 | theory | joined >= 0.8 | equal | precision |"
    yield "|---|---|---|---|---|---|---|"
    for name, stage in STAGES.items():
        numbers = np.zeros((len(array), 1 + stage.permutations), np.uint32)
        column = stage.signature(array)
        has_some = column.is_valid().to_numpy(zero_copy_only=False)
        numbers[has_some] = stage.numbers(column.drop_null())
        found = candidates(stage, numbers)
        sets = shingles(texts(array), stage.shingling)
        close = [pair for pair, value in known.items() if value >= stage.min_similarity]
        likely = [stage.found(known[pair]) for pair in close]
        likeness = {
            "estimate": {p: (numbers[p[0], 1:] == numbers[p[1], 1:]).mean() for p in found},
            "exact": {p: jaccard(sets[p[0]], sets[p[1]]) for p in found},
        }
        for how, values in likeness.items():
            joined = {pair for pair, value in values.items() if value >= stage.min_similarity}
            right = sum(known.get(pair, 0.0) >= stage.min_similarity - 0.05 for pair in joined)
            cells = [
                np.mean([pair in found for pair in close]),
                np.mean(likely),
                np.mean([pair in joined for pair in close]),
                np.mean([pair in joined for pair in same]),
                right / len(joined),
            ]
            yield f"| {name} | {how} | " + " | ".join(f"{cell:.4f}" for cell in cells) + " |"
        if name == next(iter(STAGES)):
            curve = list(_by_likeness(known, found, stage))
    yield ""
    yield from curve


def _by_likeness(known: Pairs, found: set[tuple[int, int]], stage: DedupMinhash) -> Iterator[str]:
    """The S-curve as it is measured, for the first of STAGES."""
    yield "| likeness | pairs | found | theory |"
    yield "|---|---|---|---|"
    for low, high in zip(BINS, [*BINS[1:], 2.0], strict=True):
        pairs = [pair for pair, value in known.items() if low <= value < high]
        theory = np.mean([stage.found(known[pair]) for pair in pairs])
        share = np.mean([pair in found for pair in pairs])
        label = f"{low:.2f} to {high:.2f}" if high < 2 else "1"
        yield f"| {label} | {len(pairs)} | {share:.3f} | {theory:.3f} |"


def signing(data: Path) -> Iterator[str]:
    """Megabytes of text per second of one core."""
    for name, pattern in (("English", "bench/win32*.parquet"), ("mixed", "docs/docs-*.parquet")):
        array = pq.read_table(sorted(data.glob(pattern)), columns=["text"])["text"].combine_chunks()
        part = array.slice(0, max(1, len(array) * 50_000_000 // array.nbytes))
        for stage in (DedupMinhash(), STAGES["13 characters"]):
            stage.signature(part[:10])
            start = time.process_time()
            stage.signature(part)
            rate = part.nbytes / 1e6 / (time.process_time() - start)
            yield f"| signatures, {stage.permutations} of {stage.unit}, {name} | {rate:.0f} MB/s |"


def whole(data: Path, copies: int) -> Iterator[str]:
    """Documents per second of the barrier alone, and how many are left."""
    table = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["id", "text"])
    rng = random.Random(0)  # noqa: S311 (no secret)
    with tempfile.TemporaryDirectory() as folder, Cluster(workers=2).connect() as client:
        (Path(folder) / "in").mkdir()
        for copy in range(copies):
            changed = table["text"].to_pylist() if copy else table["text"]
            if copy:
                changed = [_changed(text, rng) for text in changed]
            part = table.set_column(1, "text", pa.array(changed, pa.string()) if copy else changed)
            pq.write_table(part, Path(folder) / "in" / f"{copy:03}.parquet")
        for how in ("estimate", "exact"):
            fields = {
                "name": "bench",
                "source": {"path": f"{folder}/in"},
                "lake": f"{folder}/{how}",
                "stages": ["dedup_exact", {"dedup_minhash": {"verify": how}}],
            }
            recipe = Recipe.model_validate(fields)
            done: dict[str, float] = {}

            def note(progress: Progress, done: dict[str, float] = done) -> None:
                done[progress.step] = time.monotonic()

            report = run(recipe, cluster=client, on_progress=note)
            seconds = done["duplicates"] - done["documents"]
            yield (
                f"| the barrier, {how}: {report.kept:,} documents, {report.duplicates:,} duplicates "
                f"| {seconds:.1f} s |"
            )


def _changed(text: str, rng: random.Random) -> str:
    """One word in fifty replaced."""
    words = text.split(" ")
    for _ in range(len(words) // 50):
        words[rng.randrange(len(words))] = "changed"
    return " ".join(words)


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=4)
    copies = parser.parse_args().copies
    data = Path(os.environ["TOKENLAKE_DATA"])
    for line in quality(data):
        print(line, flush=True)
    print("\n| speed | |\n|---|---|")
    for line in signing(data):
        print(line, flush=True)
    for line in whole(data, copies):
        print(line, flush=True)


if __name__ == "__main__":
    main()
