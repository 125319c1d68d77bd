"""Compare the filters of Gopher, C4 and FineWeb with datatrove's: speed per core, and verdicts by rule.

    TOKENLAKE_DATA=... python benchmarks/filters_vs_peers.py

creates an environment with datatrove and spaCy in ``benchmarks/.peers`` (from PyPI, once), gives both the
same English documents (prose: the King James Bible and the Debian handbook of ``pipelines/sample``;
technical pages: ``docs`` and ``bench`` of ``$TOKENLAKE_DATA``) and prints

* megabytes of text per CPU second on one thread, for each filter alone and for the four in FineWeb's order,
  both without stopping at the first rejection; datatrove runs once, on the first ``--timed`` documents;
* for each rule, the share of documents that each side rejects and on which they agree, with the ids of the
  documents on which they differ.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import schemas
from etl.sources import Columns, Source
from etl.sources.list_splits import list_splits
from etl.sources.read_split import read_split
from etl.stages import C4, Filter, FinewebQuality, GopherQuality, GopherRepetition, Language
from etl.stages.apply import apply
from etl.stages.base import Stage
from etl.stages.compute_signals import compute_signals

HERE = Path(__file__).parent
PEER = ("datatrove[processing]==0.10.1", "spacy==3.8.18", "pyarrow")
ROUNDS = 5  # a shared core is slow for minutes at a time
BATCH = 1024  # documents per batch, as a run reads them from Parquet
DATA = (
    "docs/docs-00000.parquet",
    "bench/win32-docs-00000.parquet",
    "bench/cc-by-docs-00000.parquet",
)
FINEWEB: list[Stage] = [
    GopherRepetition(),
    GopherQuality(),
    C4(terminal_punctuation=False),
    FinewebQuality(),
]


def peer(name: str = "datatrove", packages: Sequence[str] = PEER) -> Path:
    """Return the interpreter of an environment with datatrove or other packages; create it if necessary."""
    folder = HERE / ".peers" / name
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        (folder / "ready").touch()
    return python


def documents(data: Path, most: int) -> pa.Table:
    """Return English documents as a source yields them, in a fixed random order."""
    sample = HERE.parent / "pipelines" / "sample"
    handbook = Columns(text="content", id="doc_id")
    paths = [
        Source(path=str(sample / "kjv.jsonl.gz"), columns=handbook),
        Source(path=str(sample / "handbook-*.parquet"), columns=handbook),
        *(Source(path=str(data / path)) for path in DATA),
    ]
    found = list(_english(paths))
    kept = pa.concat_tables(found)
    order = random.Random(0).sample(range(len(kept)), min(most, len(kept)))  # noqa: S311
    return kept.take(order).combine_chunks()


def _english(sources: list[Source]) -> Iterator[pa.Table]:
    for source in sources:
        for split in list_splits(source):
            for batch in read_split(split, source):
                good = batch.filter(
                    pc.and_(
                        pc.is_null(batch["reason"]), pc.greater(pc.binary_length(batch["text"]), 0)
                    )
                )
                lang = compute_signals(good.select(["text"]), ["lang"])["lang"]
                yield good.filter(pc.equal(lang, "en")).slice(0, 3000)


def megabytes(table: pa.Table) -> float:
    """Return the UTF-8 size of the column text."""
    return float(pc.sum(pc.binary_length(table["text"])).as_py() / 1e6)


def ours(table: pa.Table) -> dict[str, float]:
    """Return the MB per CPU second of each filter, and of the four: best of ROUNDS over all documents."""
    found = {}
    for name, stages in [*((stage.kind, [stage]) for stage in FINEWEB), ("all four", FINEWEB)]:
        apply(table.slice(0, 10), stages)
        seconds = []
        for _ in range(ROUNDS):
            begun = time.process_time()
            for first in range(0, len(table), BATCH):
                apply(table.slice(first, BATCH), stages)
            seconds.append(time.process_time() - begun)
        found[name] = megabytes(table) / min(seconds)
    return found


def rejections(table: pa.Table) -> dict[str, np.ndarray]:
    """Return the documents that each rule rejects, with each filter applied to the original text."""
    found = {}
    texts = pa.table({"text": table["text"], "lang": pa.repeat("en", len(table))})
    for stage in FINEWEB:
        if isinstance(stage, Filter):
            frame = pl.DataFrame(compute_signals(texts, stage.signals()))
            for name, rule in stage.rules().items():
                verdict = frame.select(rule.fill_null(value=False).alias("rule"))["rule"]
                found[f"{stage.kind}.{name}"] = verdict.to_numpy()
    either = found.pop("gopher_quality.symbols") | found.pop("gopher_quality.ellipses")
    return {**found, "gopher_quality.symbols or ellipses": either}


def compare(table: pa.Table, theirs: pa.Table) -> None:
    """Print the number of documents on which the two agree, for each rule."""
    print(f"\n{'rule':44} {'ours':>8} {'theirs':>8} {'agree':>9}  differing documents")
    ids = np.array(table["id"].to_pylist())
    for name, rejects in rejections(table).items():
        _line(name, rejects, theirs[name].to_numpy(), ids)
    for name, stage in (("c4", C4()), ("c4 of FineWeb", C4(terminal_punctuation=False))):
        cleaned = apply(table, [Language(keep=("en",), min_score=None), stage])
        texts, left = cleaned["text"].to_pylist(), theirs[f"{name} text"].to_pylist()
        gone, theirs_gone = (np.array([text is None for text in x]) for x in (texts, left))
        _line(f"{name}: verdict", gone, theirs_gone, ids)
        both = [
            k
            for k, (a, b) in enumerate(zip(texts, left, strict=True))
            if a is not None and b is not None
        ]
        same = [texts[k] == left[k] for k in both]
        print(f"{name + ': the remaining text':44} {'':8} {'':8} {np.mean(same):9.4%}")


def _line(name: str, ours: np.ndarray, theirs: np.ndarray, ids: np.ndarray) -> None:
    differ = " ".join(map(str, ids[ours != theirs][:3]))
    print(
        f"{name:44} {ours.mean():8.2%} {theirs.mean():8.2%} {(ours == theirs).mean():9.4%}  {differ}"
    )


def main() -> None:
    """Run both sides and print the two tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=6000)
    parser.add_argument("--timed", type=int, default=1500)
    options = parser.parse_args()
    if "TOKENLAKE_DATA" not in os.environ:
        sys.exit("TOKENLAKE_DATA names no folder of real data")
    table = documents(Path(os.environ["TOKENLAKE_DATA"]), options.documents)
    assert table.schema.equals(schemas.RAW)
    print(f"{len(table):,} English documents, {megabytes(table):.1f} MB of text")
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "documents.parquet", Path(folder) / "verdicts.parquet"
        pq.write_table(table.select(["id", "text"]), given)
        script = HERE / "peers" / "datatrove_filters.py"
        command = [str(part) for part in (peer(), script, given, found, options.timed)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        theirs, timings = pq.read_table(found), json.loads(output.splitlines()[-1])
    few, speeds = megabytes(table.slice(0, options.timed)), ours(table)
    print(f"\n{'MB/s per core':20} {'tokenlake':>10} {'datatrove':>10} {'ratio':>8}")
    for name, speed in speeds.items():
        peers = few / timings[name]
        print(f"{name:20} {speed:10.1f} {peers:10.3f} {speed / peers:7.0f}x")
    print(f"{'splitting words':20} {'':10} {few / timings['words']:10.3f}")
    compare(table, theirs)


if __name__ == "__main__":
    main()
