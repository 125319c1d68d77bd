r"""Near-duplicates: the share of true pairs that are found and joined, and the speed.

    TOKENLAKE_DATA=... python benchmarks/dedup.py [--copies N] [--rounds N] [--cpu]
    python benchmarks/dedup.py --increment DOCUMENTS

Quality: the 14,769 documents of ``$TOKENLAKE_DATA/docs`` are signed and compared as a run does it. The truth
is ``near_dup_pairs.parquet``: every pair with an exact Jaccard similarity of at least 0.5 over sets of 5
words (lower case, ``\w+``), computed without MinHash. *Found* are pairs with a common band, *joined* those
that pass verification. Precision is the share of joined pairs whose true similarity is at least the limit
minus 0.05, *wrong* the share whose similarity by the stage's own words is below the limit; recall counts the
true pairs at or above the limit. *Theory* is 1 - (1 - s^rows)^bands, averaged over the true pairs. Pairs are
counted before keepers are chosen. Words are split differently in the truth (here digits count as 0, accents
do not count, and Katakana and marks are separate words or parts of words), which causes most of the missing
precision.

Speed: signatures of 50 MB of English and of mixed languages on one core (CPU time, compiled kernels), and
deduplication of all documents, repeated ``--copies`` times with one word in fifty changed, on two worker
processes (wall time from the end of the first pass to the commit of ``duplicates``).

Increments: a lake of generated documents of 120 words gets 1 % more, half of them copies of old ones with one
word in fifty changed. CPU time and bytes read are those of driver and worker, which share one process, from
the end of the first pass to the commit of ``duplicates``, and from there to the commit of ``keys``. Without
the table ``keys``, every signature and hash is read and shuffled.
"""

import argparse
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client

from etl.compute.cluster import Cluster
from etl.compute.listener import Listener, Progress
from etl.dedup.candidates import pair_candidates
from etl.job.run import run
from etl.kernels.bytes.utf8 import texts
from etl.kernels.hashing.independent_set import OPEN
from etl.kernels.hashing.minhash_signatures import band_keys
from etl.kernels.hashing.shingle_sets import Pairs as SetPairs
from etl.kernels.hashing.shingle_sets import find_similar, shingle_sets
from etl.recipe.recipe import Recipe
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
    """Return the pairs of documents, by number, and their similarity."""
    numbers = {name: number for number, name in enumerate(ids)}
    rows = pl.read_parquet(data / "docs" / "near_dup_pairs.parquet").iter_rows()
    similarities = {}
    for a, b, value, _ in rows:
        similarities[min(numbers[a], numbers[b]), max(numbers[a], numbers[b])] = value
    return similarities


def candidates(stage: DedupMinhash, numbers: np.ndarray) -> set[tuple[int, int]]:
    """Return the pairs with a common band, as a run computes them."""
    rows = np.flatnonzero(numbers[:, 0] > 0)
    bands = {
        "key": band_keys(numbers[rows, 1:], stage.bands).ravel(),
        "address": np.repeat(rows, stage.bands),
        "rank": np.zeros(len(rows) * stage.bands),
    }
    pairs = pair_candidates(pd.DataFrame(bands))
    return set(zip(pairs["better"].tolist(), pairs["worse"].tolist(), strict=True))


def exact_similarities(array: pa.Array, found: set[tuple[int, int]], stage: DedupMinhash) -> Pairs:
    """Return the similarity of each pair, 0 if it is below the limit."""
    sets = shingle_sets(texts(array), stage.shingling)
    state = np.full(len(array), OPEN, np.int8)  # so no pair is skipped
    exact = {}
    for better, worse in found:  # pair by pair: a call with several pairs skips some
        pair = SetPairs(np.array([better]), np.array([worse]), np.array([np.nan]))
        (exact[better, worse],) = find_similar(sets, pair, state, stage.min_similarity)
        state[worse] = OPEN
    return exact


def quality(data: Path) -> Iterator[str]:
    """Yield a table of recall and precision for each of STAGES."""
    table = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["id", "text"])
    known, array = truth(data, table["id"].to_pylist()), table["text"].combine_chunks()
    same = [pair for pair, value in known.items() if value >= 1]
    yield "| settings | verified by | found >= 0.8 | theory | joined >= 0.8 | equal | precision | wrong |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, stage in STAGES.items():
        numbers = np.zeros((len(array), 1 + stage.permutations), np.uint32)
        column = stage.signature(array)
        has_some = column.is_valid().to_numpy(zero_copy_only=False)
        numbers[has_some] = stage.numbers(column.drop_null())
        found = candidates(stage, numbers)
        close = [pair for pair, value in known.items() if value >= stage.min_similarity]
        likely = [stage.candidate_probability(known[pair]) for pair in close]
        estimates = {p: (numbers[p[0], 1:] == numbers[p[1], 1:]).mean() for p in found}
        exact = exact_similarities(array, found, stage)
        _, enough = stage.model_copy(update={"verify": "near_limit"}).agreement_limits()
        accepted = {p: e for p, e in estimates.items() if e * stage.permutations >= enough}
        similarities = {"estimate": estimates, "near_limit": exact | accepted, "exact": exact}
        for how, values in similarities.items():
            joined = {pair for pair, value in values.items() if value >= stage.min_similarity}
            right = sum(known.get(pair, 0.0) >= stage.min_similarity - 0.05 for pair in joined)
            cells = [
                np.mean([pair in found for pair in close]),
                np.mean(likely),
                np.mean([pair in joined for pair in close]),
                np.mean([pair in joined for pair in same]),
                right / len(joined),
                sum(exact[pair] < stage.min_similarity for pair in joined) / len(joined),
            ]
            yield f"| {name} | {how} | " + " | ".join(f"{cell:.4f}" for cell in cells) + " |"
        if name == next(iter(STAGES)):
            curve = list(_by_similarity(known, found, stage))
    yield ""
    yield from curve


def _by_similarity(known: Pairs, found: set[tuple[int, int]], stage: DedupMinhash) -> Iterator[str]:
    """Yield the measured S-curve of the first of STAGES."""
    yield "| similarity | pairs | found | theory |"
    yield "|---|---|---|---|"
    for low, high in zip(BINS, [*BINS[1:], 2.0], strict=True):
        pairs = [pair for pair, value in known.items() if low <= value < high]
        theory = np.mean([stage.candidate_probability(known[pair]) for pair in pairs])
        share = np.mean([pair in found for pair in pairs])
        label = f"{low:.2f} to {high:.2f}" if high < 2 else "1"
        yield f"| {label} | {len(pairs)} | {share:.3f} | {theory:.3f} |"


def signing(data: Path) -> Iterator[str]:
    """Yield the megabytes of text per second and core."""
    for name, pattern in (("English", "bench/win32*.parquet"), ("mixed", "docs/docs-*.parquet")):
        array = pq.read_table(sorted(data.glob(pattern)), columns=["text"])["text"].combine_chunks()
        part = array.slice(0, max(1, len(array) * 50_000_000 // array.nbytes))
        for stage in (DedupMinhash(), STAGES["13 characters"]):
            stage.signature(part[:10])
            start = time.process_time()
            stage.signature(part)
            rate = part.nbytes / 1e6 / (time.process_time() - start)
            yield f"| signatures, {stage.permutations} of {stage.unit}, {name} | {rate:.0f} MB/s |"


def whole(data: Path, copies: int, rounds: int, *, is_cpu: bool) -> Iterator[str]:
    """Yield the time of deduplication alone in alternating runs, and the number of duplicates."""
    table = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["id", "text"])
    rng = random.Random(0)  # noqa: S311 (no secret)
    with tempfile.TemporaryDirectory() as folder, _cluster(is_cpu=is_cpu) as client:
        (Path(folder) / "in").mkdir()
        for copy in range(copies):
            changed = table["text"].to_pylist() if copy else table["text"]
            if copy:
                changed = [_changed(text, rng) for text in changed]
            part = table.set_column(1, "text", pa.array(changed, pa.string()) if copy else changed)
            pq.write_table(part, Path(folder) / "in" / f"{copy:03}.parquet")
        for how in ("estimate", "near_limit", "exact") * rounds:
            fields = {
                "name": "bench",
                "source": {"path": f"{folder}/in"},
                "lake": tempfile.mkdtemp(dir=folder),
                "stages": ["dedup_exact", {"dedup_minhash": {"verify": how}}],
            }
            recipe = Recipe.model_validate(fields)
            ends = _Ends(is_cpu=is_cpu)
            report = run(recipe, cluster=client, listener=ends)
            seconds = ends.done["duplicates"] - ends.done["documents"]
            yield (
                f"| deduplication, {how}: {report.kept:,} documents, {report.duplicates:,} duplicates "
                f"| {seconds:.2f} {'CPU s' if is_cpu else 's'} |"
            )


def _cluster(*, is_cpu: bool) -> AbstractContextManager[Client]:
    """Start two worker processes or, to measure CPU time, one thread in this process."""
    return _threads() if is_cpu else Cluster(workers=2).connect()


def increment(documents: int) -> Iterator[str]:
    """Yield the cost of a run that adds 1 % of documents, half of them near-duplicates."""
    rng = random.Random(0)  # noqa: S311 (no secret)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randrange(2, 9))) for _ in range(20_000)]
    texts = [" ".join(rng.choices(words, k=120)) for _ in range(documents)]
    few = documents // 100
    new = [_changed(text, rng) for text in rng.sample(texts, few // 2)]
    new += [" ".join(rng.choices(words, k=120)) for _ in range(few - few // 2)]
    stages = ["dedup_exact", "dedup_minhash"]
    with tempfile.TemporaryDirectory() as name, _threads() as client:
        folder = Path(name)
        (folder / "in").mkdir()
        for start in range(0, documents, 5000):
            _write(folder / "in" / f"{start:09}.parquet", texts[start : start + 5000])
        fields = {"name": "bench", "source": {"path": f"{name}/in"}, "stages": stages}
        first = _Clock()
        recipe = Recipe.model_validate({**fields, "lake": f"{name}/lake"})
        run(recipe, cluster=client, listener=first)
        yield f"| {documents:,} documents | CPU s | MB read |\n|---|---|---|"
        yield first.line("first run: deduplication", "documents", "duplicates")
        yield first.line("first run: keys written", "duplicates", "end")
        _write(folder / "in" / "new.parquet", new)
        shutil.copytree(folder / "lake", folder / "without")
        shutil.rmtree(folder / "without" / "keys")
        for how, lake in (("every document read again", "without"), ("keys looked up", "lake")):
            clock = _Clock()
            recipe = Recipe.model_validate({**fields, "lake": f"{name}/{lake}"})
            report = run(recipe, cluster=client, listener=clock)
            yield clock.line(
                f"1 % more, {how}: {report.duplicates} duplicates", "documents", "duplicates"
            )
        yield clock.line("1 % more, keys written", "duplicates", "end")
        size = sum(file.stat().st_size for file in folder.glob("lake/keys/kind=*/*.parquet"))
        keys = documents * (1 + DedupMinhash().bands)
        yield f"| keys on disk: {size / keys:.1f} bytes per key | | {size / 1e6:.1f} |"


class _Ends(Listener):
    """When each step ended, in seconds of a clock."""

    def __init__(self, *, is_cpu: bool) -> None:
        self.done: dict[str, float] = {}
        self._now = time.process_time if is_cpu else time.monotonic

    def progress(self, progress: Progress) -> None:
        self.done[progress.step] = self._now()


class _Clock(Listener):
    """CPU seconds and bytes read by this process at the last report of each step."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int]] = {}

    def progress(self, progress: Progress) -> None:
        self._seen[progress.step] = _spent()

    def line(self, name: str, start: str, end: str) -> str:
        """Return the cost from the end of one step to the end of another, or to now."""
        before, after = self._seen[start], self._seen.get(end) or _spent()
        return f"| {name} | {after[0] - before[0]:.2f} | {(after[1] - before[1]) / 1e6:.1f} |"


def _spent() -> tuple[float, int]:
    read = Path("/proc/self/io").read_text().split()[1]  # rchar: bytes returned by read()
    return time.process_time(), int(read)


def _threads() -> Client:
    """Start a cluster inside this process, so that its cost is that of the process."""
    return Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0")


def _write(path: Path, texts: list[str]) -> None:
    pq.write_table(pa.table({"text": texts}), path)


def _changed(text: str, rng: random.Random) -> str:
    """Replace one word in fifty."""
    words = text.split(" ")
    for _ in range(len(words) // 50):
        words[rng.randrange(len(words))] = "changed"
    return " ".join(words)


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cpu", action="store_true", help="only deduplication, in CPU seconds")
    parser.add_argument("--increment", type=int, metavar="DOCUMENTS")
    arguments = parser.parse_args()
    if arguments.increment is not None:  # generated text: needs no data
        for line in increment(arguments.increment):
            print(line, flush=True)
        return
    copies = arguments.copies
    data = Path(os.environ["TOKENLAKE_DATA"])
    if arguments.cpu:
        for line in whole(data, copies, arguments.rounds, is_cpu=True):
            print(line, flush=True)
        return
    for line in quality(data):
        print(line, flush=True)
    print("\n| speed | |\n|---|---|")
    for line in signing(data):
        print(line, flush=True)
    for line in whole(data, copies, arguments.rounds, is_cpu=False):
        print(line, flush=True)


if __name__ == "__main__":
    main()
