"""The driver's cost per split: a million splits through a real scheduler into a real Delta log.

    python benchmarks/scale.py --splits 1000000
    python benchmarks/scale.py --splits 50000 --barrier
    python benchmarks/scale.py --splits 100000 --commands

The work is simulated: a worker writes one byte and answers as if it had read a split. The rest is real: keys
and plan, waves of tasks on a LocalCluster, commits with lineage as often as in a run, checkpoints of the log,
and the plan of a second run, which finds nothing to do. ``memory`` is that of the driver, including the
scheduler. Then core-hours and cost for 4.5 trillion tokens are computed, step by step.

``--barrier``: each split is a data file of four rows, and the steps are the steps of deduplication, which
reads all of them: exact duplicates are found and decided, and keys are written. Here the workers' work is
real, and the seconds include it.

``--commands``: a lake of such data files is generated, 250 per commit, and ``etl vacuum``, ``report`` and
``verify --quick`` are run on it, each in a fresh process. ``memory`` is the largest of that process.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pyarrow as pa
from distributed import Client

from etl import schemas, storage
from etl.compact_collections import SpilledList
from etl.compute.cluster import Cluster
from etl.compute.dask_tasks import map_unordered
from etl.compute.library_versions import library_versions
from etl.dedup import key_writer, run_passes
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import ComparisonSet
from etl.delta.table import Table
from etl.job.commit_policy import CommitPolicy
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.keys_table import KeysTable
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import input_files
from etl.lake.stage_costs import total_counts
from etl.lake.table_specs import DOCUMENTS, DUPLICATES, SPECS, TEXTS
from etl.lake.work_units import WorkResult, kept_units, split_key
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.recipe.recipe import Recipe
from etl.sources import Split
from etl.sources.content_digests import SAMPLE_DIGITS, Content
from etl.stages.document_columns import documents_schema

COMMANDS = {
    "vacuum": "etl.vacuum({lake!r})",
    "report": "etl.report({lake!r})",
    "verify --quick": "assert not etl.verify({lake!r}, quick=True)",
}
ROWS = 10_000  # of a simulated split
TOKENS = 4.5e12  # the size of FineWeb-Edu, FineWeb2 and other current corpora: a few trillion
BYTES_PER_TOKEN = 4.2  # English prose, Qwen3's vocabulary
SPLIT_BYTES = 32 << 20  # of text, the default; more for input of more than 32 TB
SCHEMAS: dict[str, pa.Schema] = {DOCUMENTS.name: schemas.documents([]), TEXTS.name: schemas.texts()}


class Work:
    """The task of a split without its work: write one byte, return one result."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, split: Split, key: str) -> WorkResult:
        """Write the byte and return a result."""
        path = f"verdict=kept/{key}-000000000000-0.parquet"
        with storage.open_output(storage.join(self._url, path)) as file:
            file.write(b"x")
        low = {"source": split.uri, "row": split.first_row}
        high = {"source": split.uri, "row": (split.first_row or 0) + ROWS - 1}
        nulls = {"source": 0, "row": 0}
        numbers = {"numRecords": ROWS, "minValues": low, "maxValues": high, "nullCount": nulls}
        fragment = DataFile(path, 1, ROWS, {"verdict": "kept"}, json.dumps(numbers))
        content = Content(f"{split.identity:0{SAMPLE_DIGITS}x}", split.identity)
        return WorkResult(
            key=key,
            source=split.uri,
            rows=ROWS,
            kept=ROWS,
            files={"documents": [fragment]},
            content=content,
        )


def splits(count: int) -> Iterator[Split]:
    """Yield splits as a listing does, eight per file."""
    for number in range(count):
        yield Split(
            uri=f"s3://crawl/2026-10/segment-{number // 8000:04}/part-{number // 8:08}.parquet",
            size=8 * SPLIT_BYTES,
            fingerprint=f"{number // 8:032x}",
            identity=number // 8 + 1,
            format="parquet",
            start=number % 8,
            stop=number % 8 + 1,
            first_row=number % 8 * ROWS,
            bytes=SPLIT_BYTES,
        )


class Clock:
    """Prints the cost of each step: seconds, memory of this process, microseconds and bytes per split."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._last, self._cpu = time.monotonic(), time.process_time()
        self._memory = self._first = _memory()
        print(
            "| step | seconds | us/split | CPU us/split | memory MB | growth, bytes/split |\n"
            "|---|---|---|---|---|---|"
        )

    def tell(self, step: str) -> float:
        """Print a row of the table, and return the seconds since the last one."""
        now, cpu, memory = time.monotonic(), time.process_time(), _memory()
        seconds, grown = now - self._last, memory - self._memory
        times = [f"{s / self._count * 1e6:.0f}" for s in (seconds, cpu - self._cpu)]
        sizes = f"{memory / 1e6:.0f} | {grown / self._count:.0f}"
        print(f"| {step} | {seconds:.1f} | {' | '.join(times)} | {sizes} |", flush=True)
        self._last, self._cpu, self._memory = time.monotonic(), time.process_time(), memory
        return seconds


def _memory() -> int:
    return int(psutil.Process().memory_info().rss)


def execute(client: Client | None, ledger: Ledger, recipe: Recipe, todo: SpilledList[Split]) -> str:
    """Process all splits, with the scheduler if there is one, and return the number and time of commits."""
    commits, seconds, finished, cadence = 0, 0.0, list[WorkResult](), CommitPolicy()
    units, waiting = ((split, split_key(ledger, split)) for split in todo), dict[str, Split]()

    def commit() -> None:
        nonlocal commits, seconds
        before = time.monotonic()
        _commit(ledger, recipe, finished, waiting)
        finished.clear()
        waiting.clear()
        took = time.monotonic() - before
        cadence.committed(seconds=took)
        commits, seconds = commits + 1, seconds + took

    work = Work(ledger.url)
    here = ((unit, work(*unit)) for unit in units)
    answers = here if client is None else map_unordered(client, work, units, label="work")
    for place, ((split, key), answer) in enumerate(answers, 1):
        assert isinstance(answer, WorkResult), answer
        waiting[key] = split
        finished.append(answer)
        if cadence.is_due(len(finished)):
            commit()
        if place % max(1, len(todo) // 10) == 0:
            cpu = time.process_time()
            print(f"<!-- {place} splits, {_memory() / 1e6:.0f} MB, CPU {cpu:.0f} s -->", flush=True)
    if finished:
        commit()
    return f"{commits} commits in {seconds:.1f} s"


def _commit(
    ledger: Ledger, recipe: Recipe, results: list[WorkResult], splits: Mapping[str, Split]
) -> None:
    entries = [
        LedgerEntry(result.key, result.files["documents"], splits[result.key], result.content)
        for result in results
    ]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    record = schemas.Lineage(
        run_id="scale",
        recipe=recipe.name,
        fingerprint=recipe.fingerprint("documents"),
        canonical=recipe.canonical(),
        step="documents",
        generation=1,
        versions=dict(library_versions()),
        input_files=input_files(results, splits),
        num_data_files=len(results),
        counts=total_counts(results),
        started=now,
        committed=now,
    )
    ledger.commit(entries, lambda _entries, _generation: record)


def reckon(seconds_per_split: float, mb_per_core_second: float, price: float) -> None:
    """Print core-hours and cost for TOKENS, with the arithmetic."""
    text = TOKENS * BYTES_PER_TOKEN
    count = text / SPLIT_BYTES
    work = text / 1e6 / mb_per_core_second / 3600
    driver = count * seconds_per_split / 3600
    print(f"\n{TOKENS:.3g} tokens x {BYTES_PER_TOKEN} bytes = {text / 1e12:.1f} TB of kept text")
    print(f"{text / 1e12:.1f} TB / {SPLIT_BYTES / 1e6:.0f} MB = {count:,.0f} splits")
    print(f"work: {text / 1e12:.1f} TB / {mb_per_core_second} MB/s/core = {work:,.0f} core-hours")
    print(
        f"splits: {count:,.0f} x {seconds_per_split * 1e3:.2f} ms = {driver:,.1f} hours of the driver"
    )
    print(f"cost: ({work:,.0f} + {driver:,.1f}) x {price} USD = {(work + driver) * price:,.0f} USD")


def barrier(lake: str, count: int, workers: int) -> None:
    """Decide on the rows of generated data files of ``texts``, and write their keys."""
    recipe = Recipe(name="scale", source={"path": "s3://crawl"}, lake=lake, stages=["dedup_exact"])
    ledgers = {
        step: Ledger(recipe.table_url(step), fingerprint=recipe.fingerprint(step))
        for step in recipe.steps
    }
    texts, duplicates = ledgers["texts"], ledgers["duplicates"]
    texts.create(TEXTS.schema(recipe), TEXTS.layout)
    duplicates.create(schemas.duplicates(), DUPLICATES.layout)
    rng = random.Random(0)  # noqa: S311 (no secret)
    todo = splits(count)
    while entries := [
        LedgerEntry(texts.key(key), _few_rows(texts.url, key, split, rng, 4 * count))
        for split in islice(todo, 10_000)
        for key in [split_key(ledgers["documents"], split)]
    ]:
        texts.commit(entries, lambda *_: None)
    del entries
    tables = DocumentReader(storage.normalize(lake), recipe.dedup_stages)
    with Cluster(workers=workers).connect() as client:
        clock = Clock(count)
        decisions = DedupDecisions(duplicates)
        assert texts.table is not None
        units = SpilledList(kept_units(texts.table))
        clock.tell("list the kept units")
        compared = ComparisonSet(
            units, decisions, KeysTable(duplicates), (), arrival=1, stages=recipe.dedup_stages
        )
        clock.tell("number their data files")
        names = (duplicates.key(unit.key) for unit in units)
        name = next(names)
        fragments = run_passes.find_duplicates(
            client, compared.files, tables, name=name, keys=compared.keys
        )
        clock.tell("find duplicates")
        entries = [LedgerEntry(name, fragments), *map(LedgerEntry, names)]
        duplicates.commit(entries, lambda *_: None, retry=False)
        del entries
        clock.tell("commit")
        decisions = DedupDecisions(duplicates)
        looked = sum(len(decisions.files(unit)) for unit in units)
        clock.tell("find the duplicates of each split")
        key_writer.update_keys(
            client, texts, duplicates, reader=tables, describe=lambda *_, **__: lambda *_: None
        )
        clock.tell("write keys")
    print(
        f"\n{sum(f.rows for f in fragments)} duplicates in {len(fragments)} files; {looked} looked up"
    )
    print(f"largest memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")


def commands(lake: str, count: int) -> None:
    """Run the commands that read whole logs on generated data files of ``documents``."""
    if not Table.exists(f"{lake}/documents"):
        generate_documents(lake, count)
    print("| command | seconds | memory MiB |\n|---|---|---|")
    for name, call in COMMANDS.items():
        before = time.monotonic()
        # Not ru_maxrss: a new process inherits its parent's.
        code = f"import etl; {call.format(lake=lake)}; print(open('/proc/self/status').read())"
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        peak = int(result.stdout.split("VmHWM:")[1].split()[0]) >> 10
        print(f"| {name} | {time.monotonic() - before:.1f} | {peak} |", flush=True)


def generate_documents(lake: str, count: int) -> None:
    """Create ``documents`` with data files of four rows, 250 in each commit."""
    recipe = Recipe(name="scale", source={"path": "s3://crawl"}, lake=lake, stages=["dedup_exact"])
    ledger = Ledger(recipe.table_url("documents"), fingerprint=recipe.fingerprint("documents"))
    ledger.create(documents_schema(recipe.stages), DOCUMENTS.layout)
    rng = random.Random(0)  # noqa: S311 (no secret)
    todo = splits(count)
    while batch := {split_key(ledger, split): split for split in islice(todo, 250)}:
        results = [
            WorkResult(key=key, source=split.uri, rows=4, kept=4, files={"documents": files})
            for key, split in batch.items()
            for files in [_few_rows(ledger.url, key, split, rng, 4 * count)]
        ]
        _commit(ledger, recipe, results, batch)


def _few_rows(url: str, key: str, split: Split, rng: random.Random, texts: int) -> list[DataFile]:
    """Write four rows of a table, with texts drawn from a limited number."""
    name = url.rpartition("/")[2]
    schema = SCHEMAS[name]
    hashes = [rng.randrange(texts).to_bytes(16, "little") for _ in range(4)]
    first = split.first_row or 0
    columns: dict[str, Sequence[object]] = {name: [None] * 4 for name in schema.names}
    columns |= {"source": [split.uri] * 4, "row": [first + k for k in range(4)]}
    columns |= {"content_hash": hashes, "verdict": ["kept"] * 4}
    columns |= {"text": ["text"] * 4} if name == TEXTS.name else {}
    layout, partition = SPECS[name].layout, {"verdict": "kept"}
    writer = DataFileWriter(url, schema, layout, name=key, partition=partition)
    writer.append(pa.table(columns, schema=schema))
    return writer.close()


def main() -> None:
    """Measure, and compute the cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=10_000)
    parser.add_argument(
        "--workers", type=int, default=2, help="0: the log alone, without a scheduler"
    )
    parser.add_argument("--lake", help="folder of the tables (default: a temporary folder)")
    parser.add_argument(
        "--mb-per-core-second", type=float, default=28.0, help="see RESULTS.md, end to end"
    )
    parser.add_argument("--usd-per-core-hour", type=float, default=0.04)
    parser.add_argument("--barrier", action="store_true", help="measure deduplication instead")
    parser.add_argument(
        "--commands", action="store_true", help="measure commands on a lake instead"
    )
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        if given.barrier:
            barrier(given.lake or folder, given.splits, given.workers)
            return
        if given.commands:
            commands(given.lake or folder, given.splits)
            return
        seconds = measure(given.lake or folder, given.splits, given.workers)
    reckon(seconds / given.splits, given.mb_per_core_second, given.usd_per_core_hour)


def measure(lake: str, count: int, workers: int) -> float:
    """Plan, run and plan again; return the seconds of the run."""
    recipe = Recipe(
        name="scale", source={"path": "s3://crawl"}, lake=lake, stages=["gopher_quality"]
    )
    ledger = Ledger(recipe.table_url("documents"), fingerprint=recipe.fingerprint("documents"))
    ledger.create(documents_schema(recipe.stages), DOCUMENTS.layout)
    clock = Clock(count)
    todo = SpilledList(splits(count))
    clock.tell("list the splits")
    with Cluster(workers=workers).connect() if workers else nullcontext() as client:
        clock.tell("start the cluster")
        commits = execute(client, ledger, recipe, todo)
        seconds = clock.tell("run and commit")
    ledger.refresh()
    clock.tell("open the log, with the finished splits")
    assert all(ledger.is_done(split_key(ledger, split)) for split in splits(count))
    clock.tell("plan again: nothing to do")
    assert ledger.table is not None
    assert len(SpilledList(kept_units(ledger.table))) == count
    clock.tell("units of the second pass")
    log = Path(lake) / "documents" / "_delta_log"
    sizes = {path.name: path.stat().st_size for path in log.iterdir()}
    checkpoints = {name: size for name, size in sizes.items() if "checkpoint.parquet" in name}
    print(f"\n{commits}; log {sum(sizes.values()) / 1e6:.1f} MB, {len(sizes)} files, including")
    print(
        f"{len(checkpoints)} checkpoints with {sum(checkpoints.values()) / 1e6:.1f} MB, the last "
        f"{max([0, *checkpoints.values()]) / 1e6:.1f} MB"
    )
    print(f"largest memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")
    return seconds


if __name__ == "__main__":
    main()
