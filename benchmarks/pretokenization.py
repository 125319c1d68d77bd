"""The benefit of pretokenization: four ways to feed one corpus to a model, alone and in a training step.

    TOKENLAKE_DATA=... python benchmarks/pretokenization.py [--device cuda]

    padded, on the fly         text is tokenized during training, one document per row, with padding
    padding-free, on the fly   the same, with documents concatenated
    pretokenized, padded       rows of fixed length in Parquet (Snappy), including padding
    token lists                Tokenlake's table

``padding`` is the share of positions without a token; ``ignored`` is the share of labels that the loss
ignores (other than padding: document boundaries). Speeds are tokens of text, in millions per CPU second
(the loader alone) or in thousands per second (inside a step of a small GPT, on the device), where
``waiting`` is the share of time without data. Memory is anonymous memory beyond the imports. Each
variant runs in a separate process. Then the token lists are read by 1, 2 and 4 ranks, one process each:
tokens per CPU second relative to one rank.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from token_data import CACHE, CORPORA, Corpus, corpus, data_folder, tokenizer, write_table

from etl.loader import Format, Shard, TokenDataset
from etl.loader.batches.document_boundaries import IGNORED, pad_documents
from etl.pipelines.gpt import GPT, Shape
from etl.stages.tokenize import Encoder, Tokenize

SEQ_LEN, BATCH, PAD = 2048, 8, 0
_VOCAB = 2048
_STEPS = 6
NAME = "docs"
Batch = dict[str, torch.Tensor]


def anonymous() -> float:
    """Return the anonymous memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1e3


def documents(data: Path) -> Iterator[np.ndarray]:
    """Yield the documents, tokenized on the fly; the longest ones are truncated."""
    encoder = Encoder.of(Tokenize(tokenizer=str(tokenizer(data))))
    for path in sorted(data.glob(CORPORA[NAME][0])):
        for batch in pq.ParquetFile(path).iter_batches(64, columns=["text"], use_threads=False):
            lists = encoder.encode(batch.column(0))
            yield from np.split(np.asarray(lists.flatten()), np.asarray(lists.offsets)[1:-1])


def padded_on_the_fly(data: Path) -> Iterator[Batch]:
    """Yield batches with one document per row."""
    found = filter(len, documents(data))
    while rows := list(itertools.islice(found, BATCH)):
        yield pad_documents(rows, seq_len=SEQ_LEN, pad_id=PAD)


def free_on_the_fly(data: Path) -> Iterator[Batch]:
    """Yield windows over concatenated documents."""
    size = BATCH * SEQ_LEN
    held, first, length = [np.zeros(0, np.int32)], [np.zeros(0, np.bool_)], 0
    for document in documents(data):
        begins = np.zeros(len(document), np.bool_)
        begins[:1] = True
        held.append(document)
        first.append(begins)
        length += len(document)
        if length > size:
            tokens, firsts = np.concatenate(held).astype(np.int64), np.concatenate(first)
            for start in range(0, length - size, size):
                labels = tokens[start + 1 : start + size + 1].copy()
                labels[firsts[start + 1 : start + size + 1]] = IGNORED
                yield {
                    "input_ids": torch.from_numpy(tokens[start : start + size].reshape(BATCH, -1)),
                    "labels": torch.from_numpy(labels.reshape(BATCH, -1)),
                }
            rest = (length - 1) // size * size
            held, first, length = [tokens[rest:].astype(np.int32)], [firsts[rest:]], length - rest


def stored_padded(_: Path) -> Iterator[Batch]:
    """Yield rows of fixed length, read with pyarrow."""
    file = pq.ParquetFile(CACHE / "padded.parquet", pre_buffer=False, buffer_size=1 << 17)
    for batch in file.iter_batches(BATCH, use_threads=False):
        ids = np.asarray(batch.column(0).flatten()).reshape(-1, SEQ_LEN + 1).astype(np.int64)
        lengths = np.asarray(batch.column(1))
        labels = ids[:, 1:].copy()
        labels[np.arange(SEQ_LEN) >= lengths[:, None] - 1] = IGNORED
        mask = (np.arange(SEQ_LEN) < lengths[:, None]).astype(np.int64)
        yield {
            "input_ids": torch.from_numpy(np.ascontiguousarray(ids[:, :-1])),
            "labels": torch.from_numpy(labels),
            "attention_mask": torch.from_numpy(mask),
        }


def token_lists(_: Path) -> Iterator[Batch]:
    """Yield batches of Tokenlake's loader: shuffled, with document boundaries."""
    lake = str(CACHE / f"lake-{NAME}")
    dataset = TokenDataset(lake, seq_len=SEQ_LEN, format=Format(ignore_boundaries=True))
    return iter(dataset.batches(BATCH))


WAYS: dict[str, Callable[[Path], Iterator[Batch]]] = {
    "padded, on the fly": padded_on_the_fly,
    "padding-free, on the fly": free_on_the_fly,
    "pretokenized, padded": stored_padded,
    "token lists": token_lists,
}


def write_padded(given: Corpus) -> None:
    """Write the table of rows of fixed length."""
    begins = np.append(0, given.ends)
    kind = pa.list_(pa.field("element", pa.int32(), nullable=False))
    schema = pa.schema([("input_ids", kind), ("num_tokens", pa.int32())])
    size = SEQ_LEN + 1
    with pq.ParquetWriter(CACHE / "padded.parquet", schema, use_dictionary=False) as writer:
        for first in range(0, len(given.ends), 500):
            bounds = begins[first : first + 501]
            rows = np.full((len(bounds) - 1, size), PAD, np.int32)
            for row, (begin, end) in enumerate(itertools.pairwise(bounds)):
                part = given.tokens[begin : min(end, begin + size)]
                rows[row, : len(part)] = part
            offsets = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * size)
            lists = pa.ListArray.from_arrays(offsets, pa.array(rows.ravel()))
            lengths = np.minimum(np.diff(bounds), size).astype(np.int32)
            writer.write_table(pa.table([lists, lengths], names=schema.names).cast(schema))


def measure(way: str, data: Path, batches: int, device: str) -> dict[str, float]:
    """Measure one variant: the loader alone, then in a training step."""
    before, begun = anonymous(), time.perf_counter()
    found = WAYS[way](data)
    next(found)
    first = time.perf_counter() - begun
    begun, text, places, ignored, most = time.process_time(), 0, 0, 0, 0.0
    for number, batch in enumerate(itertools.islice(found, batches)):
        mask = batch.get("attention_mask")
        size = batch["input_ids"].numel()
        tokens = size if mask is None else int(mask.sum())
        text, places = text + tokens, places + size
        if mask is None:
            ignored += int((batch["labels"] == IGNORED).sum())
        if number % 100 == 0:
            most = max(most, anonymous() - before)
    seconds = time.process_time() - begun
    return {
        "first_ms": first * 1e3,
        "padding": 1 - text / places,
        "ignored": ignored / places,
        "speed": text / 1e6 / seconds,
        "anonymous": most,
        **steps(itertools.islice(WAYS[way](data), _STEPS), device),
    }


def steps(batches: Iterator[Batch], device: str) -> dict[str, float]:
    """Return thousands of tokens of text per second in training steps, and the share of waiting."""
    torch.manual_seed(0)
    model = GPT(Shape(vocab_size=_VOCAB, layers=2, width=64, heads=2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    begun, waited, tokens = time.perf_counter(), 0.0, 0
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            break
        ids, labels = batch["input_ids"].to(device), batch["labels"].to(device)
        tokens += int(batch.get("attention_mask", torch.ones_like(ids)).sum())
        # A small vocabulary, so that a step is fast on a CPU as well.
        loss = model(ids % _VOCAB, torch.where(labels < 0, labels, labels % _VOCAB))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        float(loss.item())
    seconds = time.perf_counter() - begun
    return {"step": tokens / 1e3 / seconds, "waiting": waited / seconds}


def rank_seconds(rank: int, ranks: int, batches: int) -> dict[str, float]:
    """Return the tokens per CPU second of a rank that reads its share of the batches."""
    lake = str(CACHE / f"lake-{NAME}")
    dataset = TokenDataset(lake, seq_len=SEQ_LEN, shard=Shard(rank=rank, world_size=ranks))
    found = iter(dataset.batches(BATCH))
    next(found)
    begun = time.process_time()
    count = sum(1 for _ in itertools.islice(found, batches // ranks))
    return {"speed": count * BATCH * SEQ_LEN / 1e6 / (time.process_time() - begun)}


def in_own_process(*arguments: object) -> "subprocess.Popen[str]":
    """Run this script for one measurement."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def result(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return the output of a process."""
    output, _ = process.communicate()
    if process.returncode:
        sys.exit("a measurement failed: see above")
    return dict(json.loads(output.splitlines()[-1]))


def table(data: Path, batches: int, device: str) -> None:
    """Print all variants, then the ranks."""
    given, lake = corpus(data, NAME), CACHE / f"lake-{NAME}"
    size = sum(file.stat().st_size for file in lake.rglob("*.parquet"))
    text = sum(file.stat().st_size for pattern in CORPORA[NAME] for file in data.glob(pattern))
    stored = [text, text, (CACHE / "padded.parquet").stat().st_size, size]
    print(
        f"{len(given.ends):,} documents, {given.text_bytes / 1e6:.0f} MB of text, "
        f"{len(given.tokens) / 1e6:.1f} M tokens; {BATCH} x {SEQ_LEN}\n"
    )
    print(
        "| way | padding | ignored | Mtok/CPU s | step ktok/s | waiting | first ms | anon MB | disk MB |"
    )
    print("|---" * 9 + "|", flush=True)
    for way, disk in zip(WAYS, stored, strict=True):
        f = result(in_own_process("--one", way, "--batches", batches, "--device", device))
        print(
            f"| {way} | {f['padding']:.1%} | {f['ignored']:.2%} | {f['speed']:.1f} | {f['step']:.1f} | "
            f"{f['waiting']:.2%} | {f['first_ms']:.0f} | {f['anonymous']:.0f} | {disk / 1e6:.1f} |",
            flush=True,
        )
    speeds = {}
    for ranks in (1, 2, 4):
        options = ("--batches", batches, "--ranks", ranks, "--rank")
        runs = [in_own_process(*options, rank) for rank in range(ranks)]
        speeds[ranks] = float(np.mean([result(run)["speed"] for run in runs]))
    shares = (f"{ranks}: {speed / speeds[1]:.0%}" for ranks, speed in speeds.items())
    print("\nefficiency of the loader by number of ranks:", ", ".join(shares))


def main() -> None:
    """Prepare the data, or run one measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=device)
    parser.add_argument("--batches", type=int, default=1200)
    parser.add_argument("--one", choices=WAYS)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--ranks", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = data_folder()
    if chosen.one:
        print(json.dumps(measure(chosen.one, data, chosen.batches, chosen.device)))
        return
    if chosen.rank is not None:
        print(json.dumps(rank_seconds(chosen.rank, chosen.ranks, chosen.batches)))
        return
    given = corpus(data, NAME)
    if not (CACHE / "padded.parquet").exists():
        write_table(given, CACHE / f"lake-{NAME}")
        write_padded(given)
    table(data, chosen.batches, chosen.device)


if __name__ == "__main__":
    main()
