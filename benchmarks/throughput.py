"""Megabytes of text per second and core: each stage alone, and two chains end to end.

    TOKENLAKE_DATA=... python benchmarks/throughput.py [--only whole]

reads the Parquet files of ``$TOKENLAKE_DATA/bench`` (492 MB of text in several languages) and the Qwen3
tokenizer of ``$TOKENLAKE_DATA/tokenizers``. Each stage runs in a separate process on one thread, on
batches of 16 MB in memory; the time is CPU time, without the first batch (in which numba compiles).

Chains run as a user runs them, from Parquet (zstd) to Delta tables, on two worker processes if the name
says nothing else: those of ``chains.py``, on ``bench``, on 2 GB of distinct text, and on 500 MB of it of
which the whole chain keeps all or half, or 1,600 MB of which it keeps a tenth. Text per core is divided by
wall time and workers, "CPU" by the CPU seconds of the workers, in both cases once workers, kernels and
models are loaded; "start" is the time until then. With "nothing compiled", the cache of kernels is empty and
only the workers have started. Text is generated once, in ``benchmarks/.peers``. ``memory`` is the maximum
resident memory of a process.
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
from chains import CHAINS, distinct_text, run_on, text_of_which
from token_data import tokenizer

from etl import schemas, storage
from etl.lake.table_specs import DOCUMENTS, TEXTS, TOKENS
from etl.parquet.data_file import DataFileWriter
from etl.sources import Source
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from etl.stages import GopherQuality, Language, Tokenize
from etl.stages.apply import apply
from etl.stages.compute_signals import compute_signals
from etl.stages.dedup_exact import content_hash
from etl.stages.tokenize import Encoder, tokenize

ENGLISH = "win32*.parquet"
ALL = "*.parquet"
STAGE_BYTES = 150_000_000  # of text for each single stage

MOST = 2000  # MB of distinct text for chains
PART, LARGE_PART = 500, 1600  # MB of text of which a share is kept; of a tenth, there is more
COLD = "whole, 2 GB, nothing compiled"

Batches = list[pa.Table]
Measure = Callable[[Path, str], dict[str, float]]


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
    """Measure writing documents and texts to Parquet (zstd)."""
    given = [apply(batch, []) for batch in take(data, pattern)]
    with tempfile.TemporaryDirectory() as folder:
        url = storage.normalize(folder)
        writers = [
            DataFileWriter(url, schema, spec.layout, name=spec.name)
            for spec, schema in ((DOCUMENTS, schemas.documents([])), (TEXTS, schemas.texts()))
        ]

        def write(batch: pa.Table) -> None:
            for writer in writers:
                writer.append(batch)

        found = measure(write, given)
        for writer in writers:
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


def end_to_end(
    chain: str, megabytes: int = 0, share: float = 0, part: int = PART, **how: Any
) -> Measure:
    """Return the measurement of a chain: on ``bench``, on more text, or on text of which a share is kept."""

    def measured(data: Path, pattern: str) -> dict[str, float]:
        folder = data / "bench"
        if megabytes:
            folder = distinct_text(data, megabytes)
        if share:
            folder = text_of_which(share, part, folder, data)
        return run_on(str(folder / pattern), data, CHAINS[chain], **how)

    return measured


STAGES: dict[str, tuple[Measure, str]] = {
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
}
JOBS: dict[str, Measure] = {
    "short": end_to_end("short"),
    "whole": end_to_end("whole"),
    "short, 2 GB": end_to_end("short", MOST),
    "whole, 2 GB": end_to_end("whole", MOST),
    "whole, 2 GB, 1 worker": end_to_end("whole", MOST, workers=1),
    COLD: end_to_end("whole", MOST, warm=False),
    "whole, all kept": end_to_end("whole", MOST, 1),
    "whole, half kept": end_to_end("whole", MOST, 0.5),
    "whole, a tenth kept": end_to_end("whole", MOST, 0.1, LARGE_PART),
    "the same without their signals": end_to_end("whole", MOST, 0.1, LARGE_PART, signals=False),
}


def in_own_process(name: str, data: Path) -> dict[str, Any]:
    """Run one stage or chain in a fresh process, so that its memory is measured separately."""
    command = [sys.executable, __file__, "--data", str(data), "--run", name]
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, **({"NUMBA_CACHE_DIR": empty} if name == COLD else {})}
        done = subprocess.run(
            command, stdout=subprocess.PIPE, check=True, text=True, env=environment
        )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def stage_line(name: str, found: dict[str, Any]) -> str:
    """Return one row of the table of stages."""
    return (
        f"| {name:<32} | {found['mb'] / found['seconds']:>7.1f} | "
        f"{found['documents'] / found['seconds']:>7.0f} | {found['mb']:>6.0f} | "
        f"{found['memory_mb']:>6.0f} |"
    )


def chain_line(name: str, found: dict[str, Any]) -> str:
    """Return one row of the table of chains."""
    return (
        f"| {name:<32} | {found['mb'] / found['seconds']:>7.1f} | "
        f"{found['mb'] / found['cpu_seconds']:>6.1f} | {found['mb']:>6.0f} | "
        f"{100 * found['kept'] / found['documents']:>5.1f} | {found['tokens'] / 1e6:>6.1f} | "
        f"{found['output_mb']:>6.0f} | {found['start_seconds']:>5.1f} | {found['memory_mb']:>6.0f} |"
    )


def main() -> None:
    """Run all stages and chains, or one; print Markdown tables, or one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("TOKENLAKE_DATA"))
    parser.add_argument("--run", choices=[*STAGES, *JOBS], help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="stages and chains whose name contains this")
    chosen = parser.parse_args()
    if chosen.data is None or not (Path(chosen.data) / "bench").is_dir():
        sys.exit("no data: set TOKENLAKE_DATA to a folder with bench/*.parquet and tokenizers/")
    if chosen.run:
        function, pattern = STAGES.get(chosen.run) or (JOBS[chosen.run], ALL)
        found = function(chosen.data, pattern)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(json.dumps({"memory_mb": memory, **found}))
        return
    names = ("tokenlake", "pyarrow", "polars", "numba", "dask", "deltalake", "gigatoken")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, ",
        end="",
    )
    print(", ".join(f"{name} {version(name)}" for name in names))
    for title, rows, line in (
        ("| stage | MB/s/core | docs/s | MB of text | memory MB |", STAGES, stage_line),
        (
            "| chain | MB/s/core | MB/s CPU | MB | kept % | M tokens | on disk | start s | memory |",
            JOBS,
            chain_line,
        ),
    ):
        print(f"\n{title}\n|{'---|' * (title.count('|') - 1)}")
        for name in rows:
            if chosen.only in name:
                print(line(name, in_own_process(name, chosen.data)), flush=True)


if __name__ == "__main__":
    main()
