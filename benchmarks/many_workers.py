"""One driver and one scheduler with thousands of workers: where they saturate.

    python benchmarks/many_workers.py --workers 1000 --splits 150000
    python benchmarks/many_workers.py --workers 4000 --splits 150000

The scheduler is a process of Dask, and the driver plans, submits and commits to a real Delta log as a run
does (``benchmarks/scale.py``). The workers are stand-ins: Dask's own, many in one process, which share a
thread and have no monitors. Their tasks write one byte, so they never keep the driver waiting, and the
figures are the most that scheduler and driver can do: splits per second times the seconds of a real split are
the cores that one driver keeps busy. The stand-ins take CPU time from both here; on a cluster they do not.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import dask
import psutil
from distributed import Client, Worker
from scale import Clock, execute, splits

from etl.compact_collections import SpilledList
from etl.lake.ledger import Ledger
from etl.lake.table_specs import DOCUMENTS
from etl.recipe.recipe import Recipe
from etl.stages.document_columns import documents_schema

QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.tick.interval": "10s",
    "distributed.worker.http.routes": [],
}
SECONDS_PER_SPLIT = 128 * 1.048576 / 28  # 128 MiB at 28 MB/s: RESULTS.md, end to end


async def stand_in(scheduler: str, count: int) -> None:
    """Be ``count`` workers until the scheduler ends."""
    with ThreadPoolExecutor(1) as executor, TemporaryDirectory() as folder:
        workers = [
            Worker(
                scheduler,
                nthreads=1,
                name=f"{os.getpid()}-{number}",
                executor=executor,
                memory_limit=0,
                dashboard=False,
                local_directory=folder,
                heartbeat_interval="30s",
            )
            for number in range(count)
        ]
        for start in range(0, count, 50):
            await asyncio.gather(*workers[start : start + 50])
        await asyncio.gather(*(worker.finished() for worker in workers))  # type: ignore[no-untyped-call]


def measure(workers: int, count: int, processes: int) -> None:
    """Run the splits, and print the CPU time of each part."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        lake = str(folder / "lake")
        recipe = Recipe.model_validate(
            {"name": "scale", "source": {"path": "s3://crawl"}, "lake": lake, "stages": ["c4"]}
        )
        ledger = Ledger(recipe.table_url("documents"), fingerprint=recipe.fingerprint("documents"))
        ledger.create(documents_schema(recipe.stages), DOCUMENTS.layout)
        todo = SpilledList(splits(count))
        file = folder / "scheduler.json"
        module = "distributed.cli.dask_scheduler"
        options = ["--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        scheduler = start(stack, [sys.executable, "-m", module, *options])
        while not file.exists():
            time.sleep(0.1)
        with Client(scheduler_file=str(file)) as client:  # type: ignore[no-untyped-call]
            address = client.scheduler.address
            own = [sys.executable, __file__, "--stand-in", address]
            parts = [workers // processes] * processes
            stands = [start(stack, [*own, "--workers", str(part)]) for part in parts]
            started = time.monotonic()
            client.wait_for_workers(sum(parts), timeout=600)
            print(f"{sum(parts)} workers registered in {time.monotonic() - started:.0f} s")
            before = {name: cpu(each) for name, each in (("scheduler", scheduler),)}
            idle = sum(map(cpu, stands))
            clock = Clock(count)
            own_cpu = time.process_time()
            commits = execute(client, ledger, recipe, todo)
            seconds = clock.tell(f"run, {commits}")
            own_cpu = time.process_time() - own_cpu
            scheduler_cpu = cpu(scheduler) - before["scheduler"]
            stands_cpu = sum(map(cpu, stands)) - idle
        memory = scheduler.memory_info().rss / 1e6
        print(
            f"\n| workers | splits | seconds | driver CPU ms/split | scheduler CPU ms/split | "
            f"stand-ins CPU ms/split | scheduler MB |\n|---|---|---|---|---|---|---|\n"
            f"| {sum(parts):,} | {count:,} | {seconds:.0f} | {own_cpu / count * 1e3:.2f} | "
            f"{scheduler_cpu / count * 1e3:.2f} | {stands_cpu / count * 1e3:.2f} | {memory:.0f} |"
        )
        slower = max(own_cpu, scheduler_cpu) / count
        print(
            f"\nThe slower of driver and scheduler, on a core each, does {1 / slower:.0f} splits/s: "
            f"{SECONDS_PER_SPLIT / slower:,.0f} cores with splits of 128 MiB"
        )


def start(stack: ExitStack, command: list[str]) -> psutil.Process:
    """Start a process that can import ``scale`` and ends with the stack."""
    paths = [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=subprocess.DEVNULL,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return psutil.Process(process.pid)


def cpu(process: psutil.Process) -> float:
    """Return the CPU seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Measure, or be the stand-ins."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--splits", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2, help="of stand-ins")
    parser.add_argument("--stand-in", metavar="ADDRESS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stand_in:
        with dask.config.set(QUIET):
            asyncio.run(stand_in(given.stand_in, given.workers))
        return
    measure(given.workers, given.splits, given.processes)


if __name__ == "__main__":
    main()
