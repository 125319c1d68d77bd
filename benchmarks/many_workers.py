"""One driver and one scheduler with thousands of workers: where they saturate.

    python benchmarks/many_workers.py --workers 1000 --splits 150000
    python benchmarks/many_workers.py --workers 4000 --splits 150000

The scheduler is a process of Dask, and the driver plans, submits and commits to a real Delta log as a run
does (``benchmarks/scale.py``). The workers are stand-ins, many in one process: they register, send
heartbeats, compute tasks and send results with the messages of Dask's workers, and do nothing else. Their
tasks write one byte, so they never keep the driver waiting, and the figures are the most that scheduler and
driver can do: splits per second times the seconds of a real split are
the cores that one driver keeps busy. The stand-ins take CPU time from both here; on a cluster they do not.
"""

import argparse
import asyncio
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask
import psutil
from distributed import Client
from distributed.batched import BatchedSend
from distributed.comm import connect
from distributed.core import Server, Status
from distributed.protocol import to_serialize
from distributed.versions import get_versions
from scale import Clock, execute, splits

from etl.compact_collections import SpilledList
from etl.compute.worker_settings import DASK_SETTINGS
from etl.lake.ledger import Ledger
from etl.lake.table_specs import DOCUMENTS
from etl.recipe.recipe import Recipe
from etl.stages.document_columns import documents_schema

SATURATION = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "1.1"}  # as in k8s/base/dask.yaml
METRICS: dict[str, Any] = {
    "task_counts": {},
    "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
    "digests_total_since_heartbeat": {},
    "managed_bytes": 0,
    "spilled_bytes": {"memory": 0, "disk": 0},
    "transfer": dict.fromkeys(
        (f"{way}_{what}" for way in ("incoming", "outgoing") for what in ("bytes", "count")), 0
    ),
    "event_loop_interval": 0.02,
    "cpu": 0.0,
    "memory": 1 << 29,
    "time": 0.0,
    "num_fds": 100,
}
"""What a worker says of itself in each heartbeat."""
VERSIONS = get_versions()
SECONDS_PER_SPLIT = 128 * 1.048576 / 28  # 128 MiB at 28 MB/s: RESULTS.md, end to end


class StandIn(Server):
    """What a scheduler and a client see of a worker: it computes a task as soon as it has its message."""

    def __init__(self, number: int) -> None:
        nothing = dict.fromkeys(("steal-request", "worker-status-change", "remove-worker"), ignore)
        handlers = {"compute-task": self.compute, "free-keys": self.free, "close": ignore}
        super().__init__({"get_data": self.get_data}, stream_handlers=nothing | handlers)  # type: ignore[no-untyped-call]
        self.values: dict[Any, Any] = {}
        self.number = number
        self.to_scheduler = BatchedSend(interval="2ms")  # type: ignore[no-untyped-call]

    async def live(self, scheduler: str) -> None:
        """Register, and serve until the scheduler ends."""
        await self.rpc.start()
        await self.listen("tcp://127.0.0.1:0")  # type: ignore[no-untyped-call]
        comm = await connect(scheduler)  # type: ignore[no-untyped-call]
        await comm.write(
            {
                "op": "register-worker",
                "reply": False,
                "address": self.address,
                "status": "running",
                "nthreads": 1,
                "name": f"{os.getpid()}-{self.number}",
                "now": time.time(),
                "resources": {},
                "memory_limit": None,
                "local_directory": "",
                "services": {},
                "nanny": None,
                "pid": os.getpid(),
                "versions": VERSIONS,
                "metrics": METRICS,
                "extra": {},
                "stimulus_id": "register",
                "server_id": self.id,
            }
        )
        interval = (await comm.read())["heartbeat-interval"]
        self.to_scheduler.start(comm)  # type: ignore[no-untyped-call]
        beats = asyncio.create_task(self.beat(scheduler, interval))
        await self.handle_stream(comm)
        beats.cancel()

    async def beat(self, scheduler: str, interval: float) -> None:
        """Send heartbeats, as often as the scheduler asks for."""
        rpc = self.rpc(scheduler)
        await asyncio.sleep(self.number % 100 / 100 * interval)
        while True:
            answer = await rpc.heartbeat_worker(
                address=self.address, now=time.time(), metrics=METRICS, executing={}, extensions={}
            )
            interval = answer["heartbeat-interval"]
            await asyncio.sleep(interval)

    def compute(self, key: Any, run_id: int, run_spec: Any, **_: Any) -> None:
        """Compute a task and report it."""
        started = time.time()
        value = self.values[key] = run_spec()
        self.to_scheduler.send(
            {
                "op": "task-finished",
                "status": "OK",
                "key": key,
                "run_id": run_id,
                "nbytes": 1000,
                "type": pickle.dumps(type(value)),
                "typename": type(value).__name__,
                "metadata": {},
                "thread": 1,
                "startstops": [{"action": "compute", "start": started, "stop": time.time()}],
                "stimulus_id": f"task-finished-{started}",
            }
        )

    def free(self, keys: Iterable[Any], **_: Any) -> None:
        """Forget values."""
        for key in keys:
            self.values.pop(key, None)

    async def get_data(self, comm: Any, keys: Iterable[Any], **_: Any) -> Status:
        """Send values."""
        data = {key: to_serialize(self.values[key]) for key in keys}  # type: ignore[no-untyped-call]
        await comm.write({"status": "OK", "data": data})
        await comm.read()
        return Status.dont_reply


def ignore(**_: Any) -> None:
    """Do nothing with a message."""


async def stand_in(scheduler: str, count: int) -> None:
    """Be ``count`` workers until the scheduler ends."""
    workers = [StandIn(number) for number in range(count)]
    await asyncio.gather(*(worker.live(scheduler) for worker in workers))


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
        stack.enter_context(dask.config.set(DASK_SETTINGS))
        with Client(scheduler_file=str(file)) as client:  # type: ignore[no-untyped-call]
            address = client.scheduler.address
            own = [sys.executable, __file__, "--stand-in", address]
            parts = [workers // processes] * processes
            stands = [start(stack, [*own, "--workers", str(part)]) for part in parts]
            started = time.monotonic()
            client.wait_for_workers(sum(parts), timeout=600)
            before = cpu(scheduler)
            print(
                f"{sum(parts)} workers registered in {time.monotonic() - started:.0f} s, "
                f"{before:.0f} s of the scheduler's CPU"
            )
            idle = sum(map(cpu, stands))
            clock = Clock(count)
            own_cpu = time.process_time()
            commits = execute(client, ledger, recipe, todo)
            seconds = clock.tell(f"run, {commits}")
            own_cpu = time.process_time() - own_cpu
            scheduler_cpu = cpu(scheduler) - before
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
        env={**os.environ, **SATURATION, "PYTHONPATH": os.pathsep.join(paths)},
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
        asyncio.run(stand_in(given.stand_in, given.workers))
        return
    measure(given.workers, given.splits, given.processes)


if __name__ == "__main__":
    main()
