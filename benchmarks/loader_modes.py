"""The speed of each way to iterate: large batches, boundaries, prefetch, a plain DataLoader, workers.

    TOKENLAKE_DATA=... python benchmarks/loader_modes.py [--other FOLDER]

reads the table of loader_lanes.py (165 M tokens of technical documentation, in memory) in windows of 2,048,
each way in its own process, in turn for some rounds. ``--other`` is a folder with another version of the
package ``etl``; its processes alternate with this version's. The figures are medians of tokens per CPU
second of all processes and threads, after the lanes are open; for workers, with their start.

At last a step of 1, 5 or 20 ms sleeps, as if it waited for a GPU, while batches are prefetched: ``busy`` is
the CPU time of the training thread in ``next``, of the wall clock.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from loader_lanes import SEQ_LEN, table
from torch.utils.data import DataLoader

from etl.loader import Format, TokenDataset

BOUNDARIES = Format(position_ids=True, cu_seqlens=True, ignore_boundaries=True)
MODES: dict[str, Callable[[str], Iterable[Any]]] = {
    "batches of 8": lambda lake: opened(lake).batches(8),
    "of 64": lambda lake: opened(lake).batches(64),
    "of 256": lambda lake: opened(lake).batches(256),
    "of 8, boundaries": lambda lake: opened(lake, BOUNDARIES).batches(8),
    "of 8, prefetch 4": lambda lake: opened(lake).batches(8, prefetch=4),
    "DataLoader, batch_size 8": lambda lake: DataLoader(opened(lake), batch_size=8),
    "batches of 8, 2 workers": lambda lake: with_workers(opened(lake).batches(8), None),
    "of 64, 2 workers": lambda lake: with_workers(opened(lake).batches(64), None),
    "DataLoader, batch_size 8, 2 workers": lambda lake: with_workers(opened(lake), 8),
}
STEPS_MS = (1, 5, 20)
PREFETCH = (4, 16)


def opened(lake: str, batch_format: Format | None = None) -> TokenDataset:
    """Return the dataset."""
    return TokenDataset(lake, seq_len=SEQ_LEN, format=batch_format or Format())


def with_workers(batches: Any, batch_size: int | None) -> Iterable[Any]:
    """Return a loader with two workers."""
    return DataLoader(batches, batch_size=batch_size, num_workers=2)


def cpu_seconds() -> float:
    """Return the CPU time of this process and its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def speed(lake: str, mode: str, mtok: int) -> float:
    """Return Mtok per CPU second."""
    begin, read, batches = cpu_seconds(), 0, iter(MODES[mode](lake))
    to_open_lanes = 0 if "workers" in mode else 5_000_000
    for batch in batches:
        read += batch["input_ids"].numel()
        if 0 < to_open_lanes <= read:
            begin, read, to_open_lanes = cpu_seconds(), 0, 0
        elif read >= mtok * 1_000_000:
            break
    del batches
    return read / 1e6 / (cpu_seconds() - begin)


def busy(lake: str, step_ms: int, prefetch: int) -> tuple[float, float]:
    """Return the share of the wall clock that ``next`` takes in the training thread, and Mtok/CPU s."""
    batches, steps, used = iter(opened(lake).batches(8, prefetch=prefetch)), 1500 // step_ms, 0.0
    for _ in islice(batches, 70):
        time.sleep(0.001)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        begin = time.thread_time()
        next(batches)
        used += time.thread_time() - begin
        time.sleep(step_ms / 1e3)
    share = used / (time.perf_counter() - wall)
    return share, steps * 8 * SEQ_LEN / 1e6 / (time.process_time() - cpu)


def fresh(folder: Path, *arguments: object) -> Any:
    """Return the result of a function in a separate process that uses the package of a folder."""
    command = [sys.executable, __file__, "--call", json.dumps(arguments)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print a table of the ways to iterate and one of steps with prefetching."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mtok", type=int, default=40)
    parser.add_argument("--other", type=Path)
    parser.add_argument("--call")
    chosen = parser.parse_args()
    if chosen.call:
        name, *arguments = json.loads(chosen.call)
        calls: dict[str, Callable[..., Any]] = {"speed": speed, "busy": busy}
        print(json.dumps(calls[name](*arguments)))
        return
    lake, own = str(table()), Path(__file__).parents[1]
    folders = [own] if chosen.other is None else [chosen.other, own]
    for mode in MODES:
        found: dict[Path, list[float]] = {folder: [] for folder in folders}
        for _ in range(chosen.rounds):
            for folder in folders:
                found[folder].append(fresh(folder, "speed", lake, mode, chosen.mtok))
        row = " | ".join(f"{statistics.median(found[folder]):.0f}" for folder in folders)
        print(f"| {mode} | {row} |", flush=True)
    for prefetch in PREFETCH:
        for step_ms in STEPS_MS:
            pairs = [fresh(own, "busy", lake, step_ms, prefetch) for _ in range(chosen.rounds)]
            share, mtok = (statistics.median(values) for values in zip(*pairs, strict=True))
            print(f"| prefetch {prefetch}, steps of {step_ms} ms | {share:.2%} busy | {mtok:.0f} |")


if __name__ == "__main__":
    main()
