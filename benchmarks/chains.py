"""The recipes of the end-to-end benchmarks, the text that they read, and their measurement.

The short chain is gopher_quality, dedup_exact and tokenize. The whole chain is that of FineWeb on
multilingual text: language, gopher_repetition, c4, gopher_quality, fineweb_quality, dedup_exact,
dedup_minhash and tokenize, with thresholds that keep a third of the documents of ``bench``.

`distinct_text` makes more text than ``bench`` has: in each further copy of a document, one in six words is
replaced by another word of the document, so that copies are no near-duplicates, but words, lines and
lengths stay as they were. `text_of_which` mixes documents that the whole chain keeps and rejects.
"""

import random
import re
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pydantic import TypeAdapter
from token_data import CACHE, tokenizer

from etl import schemas
from etl.compute.cluster import Cluster
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.recipe.stage_list import StageList
from etl.stages import Filter, GopherQuality, Stage, Transform
from etl.stages.apply import apply
from etl.stages.tokenize import Encoder, Tokenize

Stages = Sequence[Any]

LANGUAGES = "en de fr es it ja zh ru pt nl ko pl sv da uk cs".split()
# The paper's English rules would reject most of this text (German, API references) and leave the later
# stages idle; the computed signals are the same.
TOLERANT = GopherQuality(min_stop_words=None, min_alpha_word_ratio=0.5)
FILTERS: Stages = [
    {"language": {"keep": LANGUAGES, "min_score": 0.5}},
    "gopher_repetition",
    {"c4": {"min_sentences": 0, "terminal_punctuation": False}},
    TOLERANT,
    "fineweb_quality",
]
CHAINS: dict[str, Stages] = {
    "short": [TOLERANT, "dedup_exact"],
    "whole": [*FILTERS, "dedup_exact", "dedup_minhash"],
}
FILE_BYTES = 64_000_000  # of text in each generated file
WORD = re.compile(r"\S+")


def recipe(stages: Stages, source: str, lake: str, data: Path, *, signals: bool = True) -> Recipe:
    """Return a recipe of stages and tokens, with or without signals of rejected documents."""
    return Recipe.model_validate(
        {
            "name": "bench",
            "source": {"path": source, "columns": {"id": "id"}},
            "lake": lake,
            "stages": [*stages, {"tokenize": str(tokenizer(data))}],
            "rejected": {"signals": signals},
        }
    )


def run_on(
    source: str,
    data: Path,
    stages: Stages,
    *,
    workers: int = 2,
    signals: bool = True,
    warm: bool = True,
) -> dict[str, float]:
    """Run stages and tokenize on local workers, and return text, time, memory and results.

    Seconds are measured during the run, once the workers have started and, if ``warm``, loaded kernels and
    tokenizer, times the number of workers; ``start_seconds`` is what came before.
    """
    with TemporaryDirectory() as folder:
        job = recipe(stages, source, f"{folder}/lake", data, signals=signals)
        began = time.perf_counter()
        with Cluster(workers=workers).connect() as client:
            if warm:
                client.run(_warm, stages, str(tokenizer(data)))
            before = client.run(_usage)
            begun = time.perf_counter()
            report = run(job, cluster=client)
            wall = time.perf_counter() - begun
            after = client.run(_usage)
        files = sum(f.stat().st_size for f in Path(folder).rglob("*.parquet"))
    if not report.ok:
        raise SystemExit(f"not all could be read: {report.quarantined}")
    return {
        "mb": report.text_bytes / 1e6,
        "documents": report.rows,
        "seconds": wall * workers,
        "start_seconds": begun - began,
        "cpu_seconds": sum(after[w]["seconds"] - before[w]["seconds"] for w in after),
        "memory_mb": max(usage["memory_mb"] for usage in after.values()),
        "output_mb": files / 1e6,
        "tokens": report.tokens,
        "kept": report.kept - report.duplicates,
    }


def _usage() -> dict[str, float]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"seconds": usage.ru_utime + usage.ru_stime, "memory_mb": usage.ru_maxrss / 1e3}


def _warm(stages: Stages, path: str) -> None:
    """Load what a worker loads once: code, kernels, models, the tokenizer."""
    given: tuple[Stage, ...] = TypeAdapter(StageList).validate_python(stages)
    apply(schemas.RAW.empty_table(), [s for s in given if isinstance(s, Filter | Transform)])
    Encoder.of(Tokenize(tokenizer=path))


def distinct_text(data: Path, megabytes: int) -> Path:
    """Return a folder of Parquet files with at least this much of distinct text, created once."""

    def documents() -> Iterator[pa.Table]:
        for path in sorted((data / "bench").glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(1024, columns=["id", "text"]):
                yield pa.Table.from_batches([batch])

    return reworded_copies(f"text-{megabytes}", documents, megabytes)


def reworded_copies(name: str, documents: Callable[[], Iterable[pa.Table]], megabytes: int) -> Path:
    """Return a folder of Parquet files with documents, and copies up to a size, created once."""
    folder = CACHE / name
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, _copies(documents, megabytes * 1_000_000))
        (folder / "ready").touch()
    return folder


def text_of_which(share: float, megabytes: int, source: Path, data: Path) -> Path:
    """Return a folder of text of which the whole chain keeps about this share, created once.

    The documents are drawn from a folder of `distinct_text`, after one run of the whole chain over it.
    """
    folder = CACHE / f"{source.name}-kept-{share}-{megabytes}"
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        kept = _kept_rows(source, data)
        _write(folder, _mixture(source, kept, share, megabytes * 1_000_000))
        (folder / "ready").touch()
    return folder


def _copies(documents: Callable[[], Iterable[pa.Table]], most: int) -> Iterator[pa.Table]:
    size, copy = 0, 0
    while size < most:
        draw = np.random.default_rng(copy)
        for batch in documents():
            texts = batch["text"].to_pylist()
            if copy:
                texts = [_reworded(text, draw) for text in texts]
            ids = pc.binary_join_element_wise(batch["id"], str(copy), "-")
            table = pa.table({"id": ids, "text": pa.array(texts, pa.large_string())})
            yield table
            size += table["text"].nbytes
            if size >= most:
                return
        copy += 1


def _reworded(text: str, draw: np.random.Generator) -> str:
    words = WORD.findall(text)
    if len(words) < 2:
        return text
    chosen = iter(draw.integers(0, 6 * len(words), len(words)).tolist())

    def replaced(word: re.Match[str]) -> str:
        number = next(chosen)
        return words[number] if number < len(words) else word[0]

    return WORD.sub(replaced, text)


def _kept_rows(source: Path, data: Path) -> dict[str, np.ndarray]:
    """Run the whole chain, and return the rows of each file that became tokens."""
    lake = CACHE / f"lake-of-{source.name}"
    job = recipe(CHAINS["whole"], f"{source}/*.parquet", str(lake), data)
    report = run(job, cluster=Cluster(workers=2))
    assert report.ok
    rows: dict[str, list[np.ndarray]] = {}
    for file in DeltaTable(lake / "tokens").file_uris():
        found = pq.read_table(file, columns=["source", "row"]).to_pandas()
        for name, group in found.groupby("source", observed=True):
            rows.setdefault(Path(str(name)).name, []).append(group["row"].to_numpy())
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def _mixture(
    source: Path, kept: dict[str, np.ndarray], share: float, most: int
) -> Iterator[pa.Table]:
    """Yield documents drawn at random, so that the kept ones make up a share of ``most`` bytes."""
    total = {True: 0, False: 0}
    for name, table in _tables(source):
        sizes = np.asarray(pc.binary_length(table["text"]))
        good = np.isin(np.arange(len(table)), kept.get(name, []))
        for side in total:
            total[side] += int(sizes[good == side].sum())
    draw = np.random.default_rng(0)
    for name, table in _tables(source):
        good = np.isin(np.arange(len(table)), kept.get(name, []))
        odds = np.where(good, share * most / total[True], (1 - share) * most / total[False])
        yield table.filter(pa.array(draw.random(len(table)) < odds))


def _tables(folder: Path) -> Iterator[tuple[str, pa.Table]]:
    for path in sorted(folder.glob("*.parquet")):
        yield path.name, pq.read_table(path)


def _write(folder: Path, tables: Iterator[pa.Table]) -> None:
    """Write tables in files of FILE_BYTES of text each, zstd, in an order of documents that is random."""
    waiting: list[pa.Table] = []
    number = 0

    def flush() -> None:
        nonlocal number
        table = pa.concat_tables(waiting)
        order = random.Random(number).sample(range(len(table)), len(table))  # noqa: S311
        pq.write_table(
            table.take(order),
            folder / f"text-{number:03}.parquet",
            compression="zstd",
            row_group_size=2000,
        )
        waiting.clear()
        number += 1

    for table in tables:
        waiting.append(table)
        if sum(part["text"].nbytes for part in waiting) >= FILE_BYTES:
            flush()
    if waiting:
        flush()
