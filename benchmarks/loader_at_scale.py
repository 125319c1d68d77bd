"""The loader on a table of 10 GB: memory over epochs, time to the first batch, order of 10 M row groups.

    TOKENLAKE_DATA=... python benchmarks/loader_at_scale.py

The table is that of loader_vs_peers.py (156 M tokens) many times over: its data files are linked, so that
10 GB take no space. Each line is measured in a fresh process, in batches of 8 x 2049 tokens:

    anonymous MB    maximum so far beyond the memory after imports, every 500 batches
    of a worker     maximum private memory of each of two DataLoader workers
    first ms        from opening the table to the first batch, without imports: wall and CPU time, best round
    best fit        of whole documents: padding, CPU time of opening, which plans it, speed, anonymous MB
    order           of 10 M row groups of 0.75 to 1.5 M tokens, without footers; MB besides their counts
"""

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from token_data import CACHE, corpus, data_folder, write_table
from torch.utils.data import DataLoader

from etl import schemas
from etl.delta.table import Table
from etl.lake.table_specs import TOKENS
from etl.loader import Format, Shuffle, TokenDataset
from etl.loader.order.epoch import EpochPlan
from etl.parquet.data_file import DataFile

BATCH, SEQ_LEN = 8, 2048
_LOOK_EVERY = 500
_WORKER_TOKENS = 200_000_000
_BEST_FIT_TOKENS = 500_000_000


def memory(name: str = "RssAnon") -> float:
    """Return the memory of this process in MB, by a field of /proc."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith(f"{name}:"))


def linked(lake: Path, into: Path, size: int) -> None:
    """Create a lake of about the given size whose data files are links to another lake's."""
    table = Table.create(str(into / "tokens"), schemas.TOKENS, TOKENS.layout)
    files: list[dict[str, Any]] = Table.open(str(lake / "tokens")).data_files().to_pylist()
    fragments = []
    for copy in range(max(size // sum(file["size"] for file in files), 1)):
        for file in files:
            path = f"{copy:04d}-{file['path']}"
            os.link(lake / "tokens" / file["path"], into / "tokens" / path)
            statistics = {
                "numRecords": file["rows"],
                "maxValues": {"token_end": file["max.token_end"]},
            }
            found = DataFile(path, file["size"], file["rows"], {}, json.dumps(statistics))
            fragments.append(found)
    table.commit(fragments, transactions={})


def epochs(lake: str, count: int, tokens: int) -> dict[str, list[float]]:
    """Read epochs, or part of each; return the maximum memory so far at the end of each quarter."""
    before, most = memory(), 0.0
    dataset = TokenDataset(lake, seq_len=SEQ_LEN)
    found, cpu = [], time.process_time()
    steps = min(len(dataset.batches(BATCH)), tokens // (BATCH * SEQ_LEN))
    for epoch in range(count):
        dataset.set_epoch(epoch)
        for step, _ in enumerate(islice(dataset.batches(BATCH), steps), 1):
            if step % _LOOK_EVERY == 0 or step == steps:
                most = max(most, memory() - before)
            if step * 4 % steps < 4:
                found.append(round(most, 1))
    cpu = time.process_time() - cpu
    return {"anonymous": found, "speed": [count * steps * BATCH * SEQ_LEN / 1e6 / cpu]}


def workers(lake: str, tokens: int) -> list[float]:
    """Return the private memory of each DataLoader worker in MB."""
    batches = TokenDataset(lake, seq_len=SEQ_LEN).batches(BATCH)
    most: dict[int, float] = {}
    steps = min(len(batches), tokens // (BATCH * SEQ_LEN))
    for step, _ in enumerate(islice(DataLoader(batches, batch_size=None, num_workers=2), steps)):
        if step % _LOOK_EVERY == 0:
            for worker in multiprocessing.active_children():
                lines = Path(f"/proc/{worker.pid}/smaps_rollup").read_text().splitlines()
                own = next(int(line.split()[1]) for line in lines if "Private_Dirty" in line)
                most[worker.pid or 0] = max(most.get(worker.pid or 0, 0.0), own / 1e3)
    return list(most.values())


def first(lake: str, share: float) -> dict[str, float]:
    """Measure the time from opening to the first batch, at a given position in the epoch."""
    wall, cpu = time.perf_counter(), time.process_time()
    dataset = TokenDataset(lake, seq_len=SEQ_LEN)
    if share:
        dataset.load_state_dict(dataset.state_dict(consumed=int(dataset.num_samples * share)))
    next(iter(dataset.batches(BATCH)))
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def best_fit(lake: str, seq_len: int, tokens: int) -> dict[str, float]:
    """Plan best-fit windows, and read some of them in batches of as many tokens as above."""
    before, most, cpu = memory(), 0.0, time.process_time()
    dataset = TokenDataset(lake, seq_len=seq_len, format=Format(pack="best_fit"))
    opened, cpu = time.process_time() - cpu, time.process_time()
    batches = dataset.batches(max(BATCH * SEQ_LEN // seq_len, 1))
    steps = min(len(batches), tokens // (batches.batch_size * seq_len))
    for step, _ in enumerate(islice(batches, steps)):
        if step % _LOOK_EVERY == 0:
            most = max(most, memory() - before)
    speed = steps * batches.batch_size * seq_len / 1e6 / (time.process_time() - cpu)
    return {
        "padding": dataset.padding,
        "opened": opened,
        "planned": dataset.num_tokens / 1e6 / opened,
        "speed": speed,
        "anonymous": most,
    }


def order(row_groups: int) -> dict[str, float]:
    """Measure the plan and the order of one epoch: time, peak memory and kept memory."""
    counts = np.random.default_rng(0).integers(750_000, 1_500_000, row_groups, dtype=np.int32)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, cpu = memory("VmRSS"), time.process_time()
    settings = Shuffle().resolved(int(counts.sum(dtype=np.int64)))
    plan = EpochPlan(counts, SEQ_LEN, 0, settings)
    stream = plan.stream(0)
    plan.window(0, plan.num_samples - 1)
    cpu = time.process_time() - cpu
    kept, peak = memory("VmRSS") - before, memory("VmHWM") - before
    assert len(stream.groups) == row_groups
    return {"cpu": cpu, "kept": kept, "peak": peak, "counts": counts.nbytes / 1e6}


def fresh(call: Callable[..., Any], *arguments: object) -> Any:
    """Return the result of a function in a separate process."""
    command = [sys.executable, __file__, "--call", call.__name__, json.dumps(arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(lake: str, chosen: argparse.Namespace) -> None:
    """Measure each value in a fresh process, and print it."""
    for share in (0.0, 0.5):
        rounds = [fresh(first, lake, share) for _ in range(chosen.rounds)]
        wall, cpu = (min(one[key] for one in rounds) * 1e3 for key in ("wall", "cpu"))
        print(f"first batch at {share:.0%}: {wall:.0f} ms, {cpu:.0f} ms of CPU", flush=True)
    found = fresh(epochs, lake, chosen.epochs, chosen.tokens)
    quarters = " ".join(f"{value:.1f}" for value in found["anonymous"])
    print(f"anonymous MB at each quarter of an epoch: {quarters}")
    print(f"Mtok per CPU second: {found['speed'][0]:.0f}", flush=True)
    owned = fresh(workers, lake, min(chosen.tokens, _WORKER_TOKENS))
    print("private MB of each worker:", " ".join(f"{value:.1f}" for value in owned), flush=True)
    for seq_len in (SEQ_LEN, 32_768):
        found = fresh(best_fit, lake, seq_len, min(chosen.tokens, _BEST_FIT_TOKENS))
        print(
            f"best fit at {seq_len:,}: {found['padding']:.2%} padding, opened in {found['opened']:.2f} s of "
            f"CPU ({found['planned']:.0f} Mtok/s), {found['speed']:.0f} Mtok per CPU second, "
            f"{found['anonymous']:.1f} MB",
            flush=True,
        )
    found = fresh(order, chosen.row_groups)
    print(
        f"order of {chosen.row_groups:,} row groups: {found['cpu']:.2f} s of CPU, {found['kept']:.0f} MB "
        f"kept and {found['peak']:.0f} MB at the peak, over {found['counts']:.0f} MB of counts"
    )


def main() -> None:
    """Link, measure, print, and delete the links."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bytes", type=int, default=10 << 30, help="size of the table")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=1 << 62, help="maximum per epoch")
    parser.add_argument("--row-groups", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--call", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.call is not None:
        calls: dict[str, Callable[..., Any]] = {
            call.__name__: call for call in (epochs, workers, first, best_fit, order)
        }
        print(json.dumps(calls[chosen.call[0]](*json.loads(chosen.call[1]))))
        return
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    lake, large = CACHE / "data-tokenlake", CACHE / "data-large"
    if not lake.exists():
        write_table(corpus(data_folder()), lake)
    shutil.rmtree(large, ignore_errors=True)
    try:
        linked(lake, large, chosen.bytes)
        report(str(large), chosen)
    finally:
        shutil.rmtree(large, ignore_errors=True)


if __name__ == "__main__":
    main()
