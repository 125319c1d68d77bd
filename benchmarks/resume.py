"""Count the samples that a resumed training loses and repeats, for each loader that people use.

    python benchmarks/resume.py [--only NAME ...]

creates an environment for each library in ``benchmarks/.peers``, with the versions of
``benchmarks/peers/resume/*.txt`` (Tokenlake runs in this environment), and lets each write 1,000 numbered
samples. A training with two workers is killed (SIGKILL) some batches after it saved its state, resumed from
that state, and read to the end:

    same settings       one rank, two workers, its state saved after sample 495 of 1,000
    2 to 1 ranks        two ranks save after 235 samples each; one resumes
    1 to 2 ranks        one rank saves after 500 samples; two resume
    2 to 0, 3 workers   resumed with other workers
    second epoch        killed in the second of two epochs
    killed twice        killed after 235 samples, resumed, killed after 255 more, resumed

A cell of the table has lost / repeated samples, compared with a run that is not killed. Samples before the
state and after the resume count; those between state and kill do not. If a loader raises an error, the cell
is "refused", and the message is printed below the table.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from filters_vs_peers import peer

HERE = Path(__file__).parent
READERS = HERE / "peers" / "resume"
_TIMEOUT_S = 180


@dataclass(frozen=True)
class Loader:
    """A row of the table: a reader, its environment, and a variant."""

    title: str
    reader: str
    packages: str = ""
    variant: str = ""

    def python(self) -> Path:
        """Return the interpreter of its environment; create it if necessary."""
        if not self.packages:
            return Path(sys.executable)
        file = READERS / f"{self.packages}.txt"
        return peer(f"resume-{self.packages}", ("--requirement", str(file)))


@dataclass(frozen=True)
class Run:
    """A part of a training: to the end, or killed after each rank has saved its state at some sample."""

    world: int = 1
    workers: int = 2
    save_after: int = 0


@dataclass(frozen=True)
class Scenario:
    """Runs that continue each other."""

    title: str
    runs: Sequence[Run]
    epochs: int = 1


HF, TORCHDATA = "HF datasets, streaming", "torchdata"
LOADERS = {
    "tokenlake": Loader("Tokenlake, `batches`", "tokenlake_reader", variant="batches"),
    "tokenlake-stateful": Loader("Tokenlake, `StatefulDataLoader`", "tokenlake_reader"),
    "mosaic": Loader("MosaicML Streaming", "mosaic_reader", "mosaic"),
    "megatron": Loader("Megatron-core, `GPTDataset`", "megatron_reader", "megatron"),
    "lancedb": Loader("LanceDB, `StreamingDataset`", "lancedb_reader", "lancedb"),
    "litdata": Loader("LitData", "litdata_reader", "litdata"),
    "grain": Loader("Grain, `DataLoader`", "grain_reader", "grain", "DataLoader"),
    "grain-elastic": Loader("Grain, `ElasticIterator`", "grain_reader", "grain", "elastic"),
    "torchdata-map": Loader(
        f"{TORCHDATA}, map-style", "torchdata_reader", "torchdata", "map-style"
    ),
    "torchdata": Loader(f"{TORCHDATA}, iterable", "torchdata_reader", "torchdata", "iterable"),
    "torchdata-nodes": Loader(f"{TORCHDATA}, nodes", "torchdata_reader", "torchdata", "nodes"),
    "huggingface": Loader(f"{HF}, buffer of 100", "datasets_reader", "huggingface", "100"),
    "huggingface-loader": Loader(
        f"{HF}, buffer of 100, `StatefulDataLoader`",
        "datasets_reader",
        "huggingface",
        "100 DataLoader",
    ),
    "huggingface-files": Loader(f"{HF}, no buffer", "datasets_reader", "huggingface", "1"),
}
SCENARIOS = (
    Scenario("same settings", [Run(save_after=495), Run()]),
    Scenario("2 to 1 ranks", [Run(world=2, save_after=235), Run()]),
    Scenario("1 to 2 ranks", [Run(save_after=500), Run(world=2)]),
    Scenario("2 to 0 workers", [Run(save_after=495), Run(workers=0)]),
    Scenario("2 to 3 workers", [Run(save_after=495), Run(workers=3)]),
    Scenario("second epoch", [Run(save_after=1495), Run()], epochs=2),
    Scenario("killed twice", [Run(save_after=235), Run(save_after=255), Run()]),
)


class RefusedError(Exception):
    """A rank raised an error, or did not end."""


def start(
    loader: Loader, arguments: Sequence[object], **variables: str
) -> "subprocess.Popen[bytes]":
    """Start a process of a loader in its own process group."""
    path = os.pathsep.join(map(str, (HERE.parent, HERE)))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"} | variables
    command = [str(part) for part in (loader.python(), READERS / "read_samples.py", *arguments)]
    log = HERE / ".peers" / f"resume-{loader.reader}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as out:
        return subprocess.Popen(
            command, env=environment, stdout=out, stderr=out, start_new_session=True
        )


def finish(processes: Sequence["subprocess.Popen[bytes]"], folder: Path) -> list[int]:
    """Wait until all processes have ended or are ready to be killed; kill them, and return their statuses."""
    deadline = time.monotonic() + _TIMEOUT_S
    while any(process.poll() is None for process in processes):
        if len([*folder.glob("*.ready")]) == len(processes) or any(folder.glob("*.error")):
            break
        if time.monotonic() > deadline:
            (folder / "0.error").write_text(f"no end after {_TIMEOUT_S} s")
        time.sleep(0.1)
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
    return [process.wait() for process in processes]


def write(loader: Loader, folder: Path) -> None:
    """Write the samples; raise RefusedError."""
    if finish([start(loader, ["write", loader.reader, folder / "data"])], folder) != [0]:
        raise RefusedError("it cannot write")


def execute(
    loader: Loader, run: Run, epochs: int, *, folder: Path, states: list[Path]
) -> list[Path]:
    """Run all ranks; return the files with their states, if they were killed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    processes = []
    for rank in range(run.world):
        seat: dict[str, object] = {
            "rank": rank,
            "world": run.world,
            "workers": run.workers,
            "epochs": epochs,
        }
        seat |= {"variant": loader.variant}
        ranks = dict.fromkeys(("RANK", "GLOBAL_RANK", "LOCAL_RANK"), str(rank))
        worlds = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(run.world))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        data = folder.parent / "data"
        arguments = ["read", loader.reader, data, folder, json.dumps(seat), run.save_after, *states]
        processes.append(start(loader, arguments, **ranks, **worlds, **address))
    statuses = finish(processes, folder)
    errors = [file.read_text() for file in sorted(folder.glob("*.error"))]
    if errors:
        raise RefusedError(errors[0])
    expected = -signal.SIGKILL if run.save_after else 0
    if statuses != [expected] * run.world:
        raise RefusedError(f"exit status {statuses}")
    return sorted(folder.glob("*.state"))


@dataclass
class Trainings:
    """The trainings of a loader; those that begin with the same runs share them."""

    loader: Loader
    folder: Path
    states: dict[tuple[object, ...], list[Path]] = field(default_factory=dict)

    def samples(self, runs: Sequence[Run], epochs: int) -> "Counter[str]":
        """Return how often a training takes each sample; raise RefusedError."""
        found: Counter[str] = Counter()
        states: list[Path] = []
        for number in range(len(runs)):
            key = (epochs, *runs[: number + 1])
            folder = self.folder / f"{hash(key):x}"
            if key not in self.states:
                folder.mkdir(exist_ok=True)
                self.states[key] = execute(
                    self.loader, runs[number], epochs, folder=folder, states=states
                )
            states = self.states[key]
            for file in folder.glob("*.ids"):
                found.update(file.read_text().split())
        return found


def measure(loader: Loader) -> tuple[str, list[str]]:
    """Return a loader's row, and the messages of its errors."""
    messages = []
    with TemporaryDirectory() as folder:
        trainings = Trainings(loader, Path(folder))
        try:
            write(loader, Path(folder))
            whole = {epochs: trainings.samples([Run()], epochs) for epochs in (1, 2)}
        except (subprocess.SubprocessError, RefusedError) as error:
            return f"| {loader.title} | not measured: {error} |", []
        cells = [f"{whole[1].total():,}"]
        for scenario in SCENARIOS:
            expected = whole[scenario.epochs]
            try:
                taken = trainings.samples(scenario.runs, scenario.epochs)
                cells.append(f"{(expected - taken).total()} / {(taken - expected).total()}")
            except RefusedError as error:
                cells.append(f"refused ({str(error).partition(':')[0]})")
                messages.append(f"- {loader.title}, {scenario.title}: `{error}`")
            print(f"{loader.title}: {scenario.title}: {cells[-1]}", file=sys.stderr, flush=True)
    return f"| {loader.title} | {' | '.join(cells)} |", messages


def main() -> None:
    """Install, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(LOADERS), choices=LOADERS)
    parser.add_argument("--jobs", type=int, default=2, help="loaders that are measured at once")
    options = parser.parse_args()
    chosen = [LOADERS[name] for name in options.only]
    for loader in chosen:
        loader.python()
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(measure, chosen))
    for packages in dict.fromkeys(loader.packages for loader in chosen if loader.packages):
        print(", ".join((READERS / f"{packages}.txt").read_text().split()))
    titles = ["loader", "samples", *(scenario.title for scenario in SCENARIOS)]
    print(f"\n| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    print(*(row for row, _ in results), "", sep="\n")
    print(*(message for _, messages in results for message in messages), sep="\n")


if __name__ == "__main__":
    main()
