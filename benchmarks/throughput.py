"""Megabytes of text per second and core: each stage alone, and the main job end to end.

    TOKENLAKE_DATA=... python benchmarks/throughput.py

reads the Parquet files of ``$TOKENLAKE_DATA/bench`` (492 MB of text in several languages) and the Qwen3
tokenizer of ``$TOKENLAKE_DATA/tokenizers``. Each stage runs in a separate process on one thread, on
batches of 16 MB in memory; the time is CPU time, without the first batch (in which numba compiles). End
to end is the command that a user runs: Parquet (zstd) in, gopher_quality, dedup_exact and tokenize,
Delta out, on two worker processes; the line below the table states how much of the text was kept. Its
figure per core is text divided by wall time and workers; "CPU" is text divided by the CPU seconds of all
workers. ``memory`` is the maximum resident memory of a process.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas, storage
from etl.compute.cluster import Cluster
from etl.delta.data_file import DataFileWriter
from etl.job.run import run
from etl.lake.table_specs import DOCUMENTS, TOKENS
from etl.recipe.recipe import Recipe
from etl.sources import Source, list_splits, read_split
from etl.stages import GopherQuality, Language, Tokenize
from etl.stages.apply import apply
from etl.stages.compute_signals import compute_signals
from etl.stages.dedup_exact import content_hash
from etl.stages.tokenize import Encoder, tokenize

ENGLISH = "win32*.parquet"
ALL = "*.parquet"
STAGE_BYTES = 150_000_000  # of text for each single stage

# The paper's English rules would reject most of this text (German, API references) and leave the later
# stages idle; the computed signals are the same.
TOLERANT = GopherQuality(min_stop_words=None, min_alpha_word_ratio=0.5)

Batches = list[pa.Table]


def batches(data: Path, pattern: str) -> Iterator[pa.Table]:
    """Yield batches of 16 MB of text from the bench files."""
    source = Source(path=str(data / "bench" / pattern), columns={"text": "text", "id": "id"})
    for split in list_splits(source):
        yield from read_split(split, source)


def take(data: Path, pattern: str) -> Batches:
    """Return the first batches, up to STAGE_BYTES."""
    taken, size = [], 0
    for batch in batches(data, pattern):
        taken.append(batch)
        size += text_bytes(batch)
        if size >= STAGE_BYTES:
            break
    return taken


def text_bytes(batch: pa.Table) -> int:
    """Return the UTF-8 bytes of the column text."""
    return int(pc.sum(pc.binary_length(batch["text"])).as_py() or 0)


def measure(work: Callable[[pa.Table], object], given: Batches) -> dict[str, float]:
    """Return MB and documents per CPU second over all batches but the first."""
    work(given[0])
    begun = time.process_time()
    for batch in given[1:]:
        work(batch)
    seconds = time.process_time() - begun
    return {
        "mb": sum(map(text_bytes, given[1:])) / 1e6,
        "documents": sum(batch.num_rows for batch in given[1:]),
        "seconds": seconds,
    }


def stage_read(data: Path, pattern: str) -> dict[str, float]:
    """Measure reading: Parquet (zstd) to Arrow batches."""
    begun, mb, documents = time.process_time(), 0.0, 0
    for batch in batches(data, pattern):
        mb += text_bytes(batch) / 1e6
        documents += batch.num_rows
    return {"mb": mb, "documents": documents, "seconds": time.process_time() - begun}


def stage_signals(data: Path, pattern: str) -> dict[str, float]:
    """Measure all signals of gopher_quality, the kernel alone."""
    names = GopherQuality().signals()
    return measure(lambda batch: compute_signals(batch, names), take(data, pattern))


def stage_gopher_quality(data: Path, pattern: str) -> dict[str, float]:
    """Measure signals, rules, content hash and the columns of documents."""
    return measure(lambda batch: apply(batch, [GopherQuality()]), take(data, pattern))


def stage_language(data: Path, pattern: str) -> dict[str, float]:
    """Measure the lid.176 model."""
    names = Language(keep=("en",)).signals()
    return measure(lambda batch: compute_signals(batch, names), take(data, pattern))


def stage_hash(data: Path, pattern: str) -> dict[str, float]:
    """Measure the 128-bit hash of the text with normalized white space."""
    return measure(
        lambda batch: content_hash(batch["text"].combine_chunks(), "whitespace"),
        take(data, pattern),
    )


def stage_tokenize(data: Path, pattern: str) -> dict[str, float]:
    """Measure tokenization with an empty cache."""
    encoder = Encoder.of(Tokenize(tokenizer=str(tokenizer(data))))
    given = [b.filter(pc.is_null(b["reason"])) for b in take(data, pattern)]
    return measure(lambda batch: tokenize(batch, encoder), given)


def stage_write_documents(data: Path, pattern: str) -> dict[str, float]:
    """Measure writing documents to Parquet (zstd)."""
    given = [apply(batch, []) for batch in take(data, pattern)]
    with tempfile.TemporaryDirectory() as folder:
        url = storage.normalize(folder)
        writer = DataFileWriter(url, schemas.documents([]), DOCUMENTS.layout, name="bench")
        found = measure(writer.append, given)
        writer.close()
    return found


def stage_write_tokens(data: Path, pattern: str) -> dict[str, float]:
    """Measure writing tokens to Parquet (lz4), per megabyte of their text."""
    encoder = Encoder.of(Tokenize(tokenizer=str(tokenizer(data))))
    given = [b.filter(pc.is_null(b["reason"])) for b in take(data, pattern)]
    rows = [tokenize(batch, encoder) for batch in given]
    with tempfile.TemporaryDirectory() as folder:
        url = storage.normalize(folder)
        writer = DataFileWriter(url, schemas.TOKENS, TOKENS.layout, name="bench")
        begun = time.process_time()
        for table in rows:
            writer.append(table)
        writer.close()
        seconds = time.process_time() - begun
    mb = sum(map(text_bytes, given)) / 1e6
    return {"mb": mb, "documents": sum(t.num_rows for t in rows), "seconds": seconds}


def stage_end_to_end(data: Path, pattern: str, workers: int = 2) -> dict[str, float]:
    """Measure the main job: gopher_quality, dedup_exact and tokenize, Delta out."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = Recipe(
            name="bench",
            source={"path": str(data / "bench" / pattern), "columns": {"id": "id"},
                    "split_bytes": 4 << 20},
            lake=f"{folder}/lake",
            stages=[TOLERANT, "dedup_exact", {"tokenize": str(tokenizer(data))}],
        )  # fmt: skip
        with Cluster(workers=workers).connect() as client:
            client.run(_warm, str(tokenizer(data)))
            before = client.run(_usage)
            begun = time.perf_counter()
            report = run(recipe, cluster=client)
            wall = time.perf_counter() - begun
            after = client.run(_usage)
        files = sum(f.stat().st_size for f in Path(folder).rglob("*.parquet"))
    if not report.ok:
        sys.exit(f"not all could be read: {report.quarantined}")
    cpu = sum(after[w]["seconds"] - before[w]["seconds"] for w in after)
    return {
        "mb": report.text_bytes / 1e6,
        "documents": report.rows,
        "seconds": wall * workers,
        "cpu_seconds": cpu,
        "memory_mb": max(usage["memory_mb"] for usage in after.values()),
        "output_mb": files / 1e6,
        "tokens": report.tokens,
        "kept": report.kept - report.duplicates,
    }


def _usage() -> dict[str, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"seconds": usage.ru_utime + usage.ru_stime, "memory_mb": usage.ru_maxrss / 1e3}


def _warm(tokenizer: str) -> None:
    """Load what a worker loads once: code, kernels, the tokenizer (1 to 2 s)."""
    apply(schemas.RAW.empty_table(), [GopherQuality()])
    Encoder.of(Tokenize(tokenizer=tokenizer))


def tokenizer(data: Path) -> Path:
    """Return the tokenizer of the benchmark."""
    return data / "tokenizers" / "qwen3" / "tokenizer.json"


STAGES: dict[str, tuple[Callable[..., dict[str, float]], str]] = {
    "read parquet": (stage_read, ALL),
    "gopher_quality signals, English": (stage_signals, ENGLISH),
    "gopher_quality signals, mixed": (stage_signals, ALL),
    "gopher_quality stage": (stage_gopher_quality, ALL),
    "language": (stage_language, ALL),
    "content hash": (stage_hash, ALL),
    "tokenize, English": (stage_tokenize, ENGLISH),
    "tokenize, mixed": (stage_tokenize, ALL),
    "write documents": (stage_write_documents, ALL),
    "write tokens": (stage_write_tokens, ALL),
    "end to end, 2 workers": (stage_end_to_end, ALL),
}


def in_own_process(name: str, data: Path) -> dict[str, Any]:
    """Run one stage in a fresh process, so that its memory is measured separately."""
    command = [sys.executable, __file__, "--data", str(data), "--stage", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def line(name: str, found: dict[str, Any]) -> str:
    """Return one row of the table."""
    cpu = found.get("cpu_seconds")
    return (
        f"| {name:<32} | {found['mb'] / found['seconds']:>7.1f} | "
        f"{found['documents'] / found['seconds']:>7.0f} | "
        f"{'' if cpu is None else format(found['mb'] / cpu, '.1f'):>6} | {found['mb']:>6.0f} | "
        f"{found['memory_mb']:>6.0f} |"
    )


def main() -> None:
    """Run all stages, or one; print a Markdown table, or one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("TOKENLAKE_DATA"))
    parser.add_argument("--stage", choices=STAGES)
    parser.add_argument("--only", help="stages whose name contains this")
    chosen = parser.parse_args()
    if chosen.data is None or not (Path(chosen.data) / "bench").is_dir():
        sys.exit("no data: set TOKENLAKE_DATA to a folder with bench/*.parquet and tokenizers/")
    if chosen.stage:
        function, pattern = STAGES[chosen.stage]
        found = function(chosen.data, pattern)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(json.dumps({"memory_mb": memory, **found}))
        return
    names = ("tokenlake", "pyarrow", "polars", "numba", "dask", "deltalake", "gigatoken")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ",
        end="",
    )
    print(", ".join(f"{name} {version(name)}" for name in names) + "\n")
    print("| stage | MB/s/core | docs/s | MB/s CPU | MB of text | memory MB |")
    print("|---|---|---|---|---|---|")
    for name in STAGES:
        if chosen.only is None or chosen.only in name:
            found = in_own_process(name, chosen.data)
            print(line(name, found), flush=True)
    if "tokens" in found:
        print(
            f"\nend to end: {found['kept']:.0f} of {found['documents']:.0f} documents became "
            f"{found['tokens'] / 1e6:.1f} M tokens; {found['output_mb']:.0f} MB on disk"
        )


if __name__ == "__main__":
    main()
