"""The script that loader_vs_peers.py runs in each peer's environment; it needs numpy, torch and the peer.

    python measure_loader.py write NAME FOLDER CORPUS   write CORPUS in the loader's own format
    python measure_loader.py run NAME FOLDER            measure speed and memory
    python measure_loader.py save NAME FOLDER           read half way and save the state in FOLDER.state
    python measure_loader.py resume NAME FOLDER         resume from there: the first batch
    python measure_loader.py evenness NAME FOLDER       measure how evenly an epoch mixes the sources

prints one line of JSON: ``first_s`` is the wall time in seconds from opening to the first batch, without
imports, and ``first_cpu_s`` its CPU time; ``cpu_s`` and ``wall_s`` are those of the following ``tokens``,
including workers; memory is in MB beyond that after the imports, summed over workers: ``anonymous`` is the
maximum, ``resident`` includes mapped files. For the evenness, FOLDER must hold tokens whose ids name their
sources; ``window_ratio`` is the variance of the sources' shares in batches of 1,024 consecutive windows,
divided by that of independent windows of one source each.
"""

import argparse
import importlib
import json
import os
import pickle
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import loaders
import numpy as np
import torch

MODULES = {
    "tokenlake": "etl.loader.dataset",
    "mosaic": "streaming",
    "litdata": "litdata",
    "huggingface": "datasets",
    "megatron": "megatron.core.datasets.indexed_dataset",
    "megatron-gpt": "megatron.core.datasets.gpt_dataset",
    "datatrove": "datatrove.utils.dataset",
}
_BATCH_TOKENS = loaders.BATCH * (loaders.WINDOW - 1)
_LOOK_EVERY = 200  # batches between measurements of memory
_GLOBAL_BATCH = 1024  # windows: the batch of many ranks


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its finished children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def memory() -> dict[str, float]:
    """Return anonymous and resident MB of this process, and of its children beyond their parent's."""
    found = dict.fromkeys(("anonymous", "resident"), 0.0)
    for process in (os.getpid(), *_children(os.getpid())):
        try:
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        sizes = {
            line.split(":")[0]: line.split()[1]
            for line in lines
            if line.startswith(("Rss", "VmRSS"))
        }
        found["anonymous"] += int(sizes["RssAnon"]) / 1e3
        found["resident"] += int(sizes["VmRSS"]) / 1e3
    return found


def _children(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from _children(int(child))


def run(name: str, folder: Path, *, workers: int, tokens: int) -> dict[str, Any]:
    """Open, read the first batch, then a number of tokens."""
    before, cpu, begun = memory(), cpu_seconds(), time.perf_counter()
    batches, _ = loaders.OPEN[name](folder, workers, None)
    iterator = iter(batches)
    first = next(iterator)
    first_s, first_cpu_s = time.perf_counter() - begun, cpu_seconds() - cpu
    assert _count(first) >= _BATCH_TOKENS, first
    cpu, begun = cpu_seconds(), time.perf_counter()
    most = memory()
    steps = tokens // _BATCH_TOKENS
    taken = 0
    for _ in iterator:
        taken += 1
        if taken % _LOOK_EVERY == 0:
            most = {key: max(most[key], value) for key, value in memory().items()}
        if taken == steps:
            break
    wall = time.perf_counter() - begun
    del iterator, batches  # ends the workers, so that their time is counted
    return {
        "first_s": first_s,
        "first_cpu_s": first_cpu_s,
        "tokens": taken * _BATCH_TOKENS,
        "cpu_s": cpu_seconds() - cpu,
        "wall_s": wall,
        **{key: most[key] - before[key] * (1 + workers) for key in most},
    }


def save(name: str, folder: Path, tokens: int) -> dict[str, Any]:
    """Read half way, and save the state."""
    batches, state = loaders.OPEN[name](folder, 0, None)
    half = tokens // _BATCH_TOKENS // 2
    for done, _ in enumerate(batches, 1):
        if done == half:
            _state_file(folder).write_bytes(pickle.dumps(state(done)))
            break
    return {"batches": half}


def resume(name: str, folder: Path) -> dict[str, Any]:
    """Resume from the state, and read the first batch."""
    state = pickle.loads(_state_file(folder).read_bytes())  # noqa: S301 - our own
    begun, cpu = time.perf_counter(), cpu_seconds()
    batches, _ = loaders.OPEN[name](folder, 0, state)
    next(iter(batches))
    return {"resume_s": time.perf_counter() - begun, "cpu_s": cpu_seconds() - cpu}


def evenness(name: str, folder: Path, ids_per_source: int) -> dict[str, Any]:
    """Read an epoch of tokens that name their sources, and compare batches with independent windows."""
    from etl.loader.order.evenness import variance_ratio

    batches, _ = loaders.OPEN[name](folder, 0, None)
    per_group = _GLOBAL_BATCH // loaders.BATCH
    counts = [np.bincount(_ids(batch).numpy().ravel() // ids_per_source) for batch in batches]
    groups = len(counts) // per_group
    entries = [
        (number // per_group, source, count[source])
        for number, count in enumerate(counts[: groups * per_group])
        for source in np.flatnonzero(count)
    ]
    columns = [np.array(column) for column in zip(*entries, strict=True)]
    ratio = variance_ratio(*columns, draw_tokens=loaders.WINDOW)
    return {"window_ratio": ratio, "batches": groups}


def write(name: str, folder: Path, corpus: Path) -> dict[str, Any]:
    """Write the corpus in the loader's own format, and return the bytes on disk."""
    folder.mkdir(parents=True)
    tokens = np.memmap(corpus / "tokens.bin", np.int32, mode="r")
    begun = cpu_seconds()
    loaders.WRITE[name](tokens, np.load(corpus / "ends.npy"), folder)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {"bytes": size, "cpu_s": cpu_seconds() - begun}


def _state_file(folder: Path) -> Path:
    return folder.with_suffix(".state")


def _count(batch: Any) -> int:
    return int(_ids(batch).numel())


def _ids(batch: Any) -> torch.Tensor:
    ids: torch.Tensor = batch["input_ids"] if isinstance(batch, dict) else batch
    assert ids.dtype == torch.int64
    return ids


def main() -> None:
    """Run one command and print its measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("do", choices=("write", "run", "save", "resume", "evenness"))
    parser.add_argument("name", choices=loaders.OPEN)
    parser.add_argument("folder", type=Path)
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=1 << 26)
    parser.add_argument("--ids-per-source", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.name in MODULES:
        importlib.import_module(MODULES[given.name])
    if given.do == "write":
        found = write(given.name, given.folder, given.corpus)
    elif given.do == "run":
        found = run(given.name, given.folder, workers=given.workers, tokens=given.tokens)
    elif given.do == "save":
        found = save(given.name, given.folder, given.tokens)
    elif given.do == "evenness":
        found = evenness(given.name, given.folder, given.ids_per_source)
    else:
        found = resume(given.name, given.folder)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
