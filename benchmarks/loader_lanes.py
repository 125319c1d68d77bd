"""What the number of lanes costs, and what it gives: speed, memory, evenness, bytes from an object store.

    TOKENLAKE_DATA=... python benchmarks/loader_lanes.py

The table has the tokens of the documentation in $TOKENLAKE_DATA eight times (165 M). Each speed is measured
in a fresh process, in batches of 8 x 2049 tokens, on a table whose files are in memory:

    Mtok/CPU s    the best of the rounds; ``memmap`` gathers shuffled windows of one file of int32
    anonymous MB  maximum beyond the memory after imports
    ratio         the variance of the shares of 100 sources in consecutive files, compared with independent
                  windows, in batches of 1,024 x 4,096 tokens of a table of 24 G tokens; by arithmetic
    read          the bytes that all ranks together fetch in an epoch, divided by those of the tokens; from
                  local files through the code for object stores, and for 25 G tokens by arithmetic: the
                  lanes of each rank, and a page at the end of each lane
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from token_data import CACHE, Corpus, corpus, data_folder, write_table
from torch.utils.data import DataLoader

from etl.loader import Remote, Shard, Shuffle, TokenDataset
from etl.loader.fetch.footers import marked_page
from etl.loader.fetch.range_requests import Ranges
from etl.loader.order.epoch import EpochPlan
from etl.loader.order.evenness import variance_ratio
from etl.loader.steps import divide_step

BATCH, SEQ_LEN, COPIES = 8, 2048, 8
LANES = (16, 64, 256, 512, 1024)
WORLD_SIZES = (1, 8, 24, 64, 100, 256, 384, 704, 768, 832, 896, 1000, 1024)
PAGE_TOKENS = 1 << 14


def table() -> Path:
    """Return the lake with the table, which is written once, beside its tokens in one file."""
    lake = CACHE / "lanes"
    if not (lake / "tokens.bin").exists():
        given = corpus(data_folder(), "docs")
        tokens = np.tile(np.array(given.tokens), COPIES)
        ends = [given.ends + copy * len(given.tokens) for copy in range(COPIES)]
        write_table(Corpus(given.path, tokens, np.concatenate(ends), 0), lake)
        tokens.tofile(lake / "tokens.bin")
    return lake


def anonymous() -> float:
    """Return the anonymous memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("RssAnon:"))


def read(lake: str, lanes: int, steps: int) -> tuple[float, float]:
    """Read batches, and return Mtok per CPU second and the maximum of anonymous memory in MB."""
    before = most = anonymous()
    dataset = TokenDataset(lake, seq_len=SEQ_LEN, shuffle=Shuffle(lanes=lanes))
    begin = time.process_time()
    for step, _ in enumerate(islice(dataset.batches(BATCH), steps)):
        if step % 500 == 0:
            most = max(most, anonymous())
    return steps * BATCH * SEQ_LEN / 1e6 / (time.process_time() - begin), most - before


def gather(lake: str, _: int, steps: int) -> tuple[float, float]:
    """Gather shuffled windows of one mapped file, as Megatron's indexed dataset does."""
    before, size = anonymous(), SEQ_LEN + 1
    tokens = np.memmap(f"{lake}/tokens.bin", np.int32, mode="r")
    windows = [tokens[start : start + size] for start in range(0, len(tokens) - size, size)]
    generator = torch.Generator().manual_seed(0)
    order: Any = torch.randperm(len(windows), generator=generator).tolist()
    loader: DataLoader[Any] = DataLoader(
        windows,  # type: ignore[arg-type]
        batch_size=BATCH,
        sampler=order,
        collate_fn=lambda rows: torch.from_numpy(np.stack(rows).astype(np.int64)),
    )
    begin = time.process_time()
    for _ in islice(loader, steps):
        pass
    return steps * BATCH * SEQ_LEN / 1e6 / (time.process_time() - begin), anonymous() - before


def ratio(lanes: int) -> float:
    """Return the variance ratio of 40 batches of 1,024 windows of a table of 100 sources."""
    groups, count = np.full(16_000, 1_500_000, np.int32), 1024
    plan = EpochPlan(groups, 4096, 0, Shuffle(lanes=lanes).resolved(24 * 10**9))
    order = plan.stream(0).groups
    firsts = np.linspace(0, plan.num_samples - count, 40).astype(np.int64)
    windows = np.array(
        [plan.window(0, first + i) for first in firsts.tolist() for i in range(count)]
    )
    source = order[windows * 4096 // 1_500_000].astype(np.int64) * 100 // len(groups)
    batch = np.repeat(np.arange(len(firsts)), count)
    return variance_ratio(batch, source, np.full(len(batch), 4096), draw_tokens=4096)


def fetched(lake: str, world_size: int) -> float:
    """Return the bytes that all ranks fetch in an epoch, divided by those of the tokens."""
    total, read_range = 0, Ranges.read
    num_tokens = TokenDataset(lake, seq_len=SEQ_LEN).num_tokens
    shuffle = Shuffle(lanes=Shuffle().resolved(num_tokens, is_remote=True).lanes)

    def count(ranges: Ranges, uri: str, start: int, stop: int, *, size: int) -> bytes:
        nonlocal total
        total += stop - start
        return read_range(ranges, uri, start, stop, size=size)

    Ranges.read = count  # type: ignore[method-assign, assignment]
    for rank in range(world_size):
        shard = Shard(rank=rank, world_size=world_size)
        dataset = TokenDataset(lake, seq_len=SEQ_LEN, shuffle=shuffle, shard=shard)
        index = replace(dataset.newest.index, remote=Remote())  # as if it were remote
        dataset.windows = replace(dataset.newest, index=index)
        for _ in dataset.batches(BATCH):
            pass
    Ranges.read = read_range  # type: ignore[method-assign]
    return total / int(index.chunks["tokens"]["size"].sum())


def fetched_of(num_tokens: int, world_size: int) -> float:
    """Return the same for a larger table and its default lanes, by arithmetic."""
    lanes = Shuffle().resolved(num_tokens, is_remote=True).lanes
    stride, pairs = BATCH * world_size, [np.zeros(0, np.int64)]
    for first in range(0, math.lcm(stride, lanes), stride):
        ranks = divide_step(stride, first % lanes, lanes, world_size)
        pairs.append(np.unique(ranks * lanes + (first + np.arange(stride)) % lanes))
    lane_tokens = num_tokens / lanes
    marked_tokens = PAGE_TOKENS * marked_page(num_tokens)
    num_read = len(np.unique(np.concatenate(pairs)))
    return num_read / lanes * (lane_tokens + marked_tokens) / lane_tokens


def fresh(call: str, *arguments: object) -> list[float]:
    """Return the result of a function in a separate process."""
    command = [sys.executable, __file__, "--call", call, json.dumps(arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a table for lanes and one for world sizes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=9000)
    parser.add_argument("--call", nargs=2)
    chosen = parser.parse_args()
    if chosen.call:
        print(
            json.dumps(
                {"read": read, "gather": gather}[chosen.call[0]](*json.loads(chosen.call[1]))
            )
        )
        return
    lake = str(table())
    loaders: dict[str, tuple[str, int]] = {"memmap": ("gather", 0)}
    loaders |= {f"{lanes} lanes": ("read", lanes) for lanes in LANES}
    found: dict[str, list[list[float]]] = {name: [] for name in loaders}
    for _ in range(chosen.rounds):
        for name, (call, lanes) in loaders.items():
            found[name].append(fresh(call, lake, lanes, chosen.steps))
    print("| | Mtok/CPU s | anonymous MB | ratio |\n|---|---|---|---|")
    for name, (call, lanes) in loaders.items():
        speed, memory = (max(values) for values in zip(*found[name], strict=True))
        even = f"{ratio(lanes):.2f}" if call == "read" else ""
        print(f"| {name} | {speed:.0f} | {memory:.0f} | {even} |", flush=True)
    print("\n| ranks | read, 165 M tokens | read, 25 G tokens | 10 M per rank |\n|---|---|---|---|")
    for world_size in WORLD_SIZES:
        small = f"{fetched(lake, world_size):.2f}" if world_size <= 256 else ""
        large = fetched_of(25 * 10**9, world_size), fetched_of(10**7 * world_size, world_size)
        print(f"| {world_size} | {small} | {large[0]:.2f} | {large[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
