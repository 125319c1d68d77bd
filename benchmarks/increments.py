"""The cost of deduplicating one more small file, after few and after many runs.

    python benchmarks/increments.py [--increments N] [--documents N] [--stage STAGE]

Each run adds a file of generated documents to a lake: 8 paragraphs of 25 words, one in four of which is from
an earlier document, and one document in five is an earlier one with a word changed. For each deduplication
stage, for all of them, and for a chain from filters to tokens, the table shows some increments: the CPU time,
files opened and read calls of the worker process from the end of the first pass to the end of the run, and
the CPU time and the wall time of the whole run. Every figure is the median of five successive increments.
Data files of ``keys`` are merged every few increments; the last column is the mean CPU time of the worker
over the increments since the last row, which includes merges.
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client

from etl import pipelines, storage
from etl.compute.cluster import Cluster
from etl.compute.listener import Listener, Progress
from etl.job.run import run
from etl.recipe.recipe import Recipe

STAGES: dict[str, list[Any]] = {
    "exact": ["dedup_exact"],
    "minhash": ["dedup_minhash"],
    "paragraphs": ["dedup_paragraphs"],
    "all": ["dedup_exact", "dedup_minhash", "dedup_paragraphs"],
    "chain": [
        "gopher_repetition",
        {"gopher_quality": {"min_stop_words": None}},  # the words are not English
        "dedup_exact",
        "dedup_minhash",
        {"tokenize": str(Path(pipelines.__file__).parent / "sample" / "tokenizer.json")},
    ],
}
_SHOWN = (5, 60, 120)
_MEDIAN_OF = 5

_opened = "opened_files"  # attribute of ``storage`` in the worker process, which this module is not part of


class Spent(NamedTuple):
    """What the worker process has spent so far."""

    cpu: float
    opened: int
    reads: int


def spent() -> Spent:
    """Return what this process has spent; count the files that it opens from now on."""
    if not hasattr(storage, _opened):
        original = storage.open_input

        def open_input(uri: str) -> Any:
            setattr(storage, _opened, getattr(storage, _opened) + 1)
            return original(uri)

        storage.open_input = open_input
        setattr(storage, _opened, 0)
    calls = Path("/proc/self/io").read_text().split()[5]  # syscr
    return Spent(time.process_time(), getattr(storage, _opened), int(calls))


class Documents:
    """A generator of documents that repeat parts of earlier ones."""

    def __init__(self) -> None:
        self._rng = random.Random(0)  # noqa: S311 (no secret)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = [
            "".join(self._rng.choices(letters, k=self._rng.randrange(2, 9))) for _ in range(20_000)
        ]
        self._old: list[list[str]] = []

    def write(self, path: Path, number: int) -> None:
        """Write documents as Parquet."""
        texts = ["\n\n".join(self._paragraphs()) for _ in range(number)]
        pq.write_table(pa.table({"text": texts}), path)

    def _paragraphs(self) -> list[str]:
        rng = self._rng
        if self._old and rng.random() < 0.2:
            paragraphs = list(rng.choice(self._old))
            paragraphs[0] = " ".join([rng.choice(self._words), *paragraphs[0].split()[1:]])
        else:
            paragraphs = [
                rng.choice(rng.choice(self._old))
                if self._old and rng.random() < 0.25
                else " ".join(rng.choices(self._words, k=25))
                for _ in range(8)
            ]
        self._old.append(paragraphs)
        return paragraphs


class Cost(NamedTuple):
    """The cost of one increment."""

    worker_cpu: float
    opened: int
    reads: int
    cpu: float
    wall: float


def measure(stages: Sequence[Any], increments: int, documents: int) -> Iterator[Cost]:
    """Yield the cost of each increment."""
    generator = Documents()
    with tempfile.TemporaryDirectory() as folder, Cluster(workers=1).connect() as client:
        (Path(folder) / "in").mkdir()
        fields = {"name": "bench", "source": {"path": f"{folder}/in"}, "lake": f"{folder}/lake"}
        recipe = Recipe.model_validate({**fields, "stages": stages})
        for number in range(increments):
            generator.write(Path(folder) / "in" / f"{number:05}.parquet", documents)
            yield _run(recipe, client)


def _run(recipe: Recipe, client: Client) -> Cost:
    read: dict[str, Spent] = {}

    class End(Listener):
        def progress(self, progress: Progress) -> None:
            if progress.step == "documents":
                read["end"] = _of_worker(client)

    start, cpu = time.monotonic(), time.process_time()
    assert run(recipe, cluster=client, listener=End()).ok
    wall, cpu = time.monotonic() - start, time.process_time() - cpu
    before, after = read["end"], _of_worker(client)
    worker = [b - a for a, b in zip(before, after, strict=True)]
    return Cost(worker[0], int(worker[1]), int(worker[2]), cpu + worker[0], wall)


def _of_worker(client: Client) -> Spent:
    (cost,) = client.run(spent).values()
    return Spent(*cost)


def table(name: str, costs: Iterable[Cost], increments: int) -> Iterator[str]:
    """Yield the rows for some increments, as soon as they are known."""
    last, known = 0, list[Cost]()
    for number, cost in enumerate(costs, start=1):
        known.append(cost)
        if number not in (*_SHOWN, increments):
            continue
        some = known[-_MEDIAN_OF:]
        median = [statistics.median(column) for column in zip(*some, strict=True)]
        mean = statistics.mean(cost.worker_cpu for cost in known[last:])
        numbers = f"{median[0]:.2f} | {median[1]:.0f} | {median[2]:.0f} | {median[3]:.2f}"
        yield f"| {name} | {number} | {numbers} | {median[4]:.2f} | {mean:.2f} |"
        last = number


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--increments", type=int, default=120)
    parser.add_argument("--documents", type=int, default=100, help="per increment")
    parser.add_argument("--stage", choices=STAGES, help="only these stages")
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENLAKE_SYNC", "off")
    print(
        "| stages | increment | worker CPU s | files opened | reads | CPU s | wall s | mean CPU s |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for name in [arguments.stage] if arguments.stage else STAGES:
        costs = measure(STAGES[name], arguments.increments, arguments.documents)
        for line in table(name, costs, arguments.increments):
            print(line, flush=True)


if __name__ == "__main__":
    main()
