"""The cost of cutting repeated passages: CPU time of a run with ``dedup_substrings`` beside one without.

    python benchmarks/substrings.py FILE.parquet ... [--workers N] [--repeat N] [--peer]

Each round runs both recipes into new lakes, each on new worker processes. The time of the pass is the
difference of their medians; it includes the anchors that are computed and stored while documents are read.
The memory is the maximum of a worker process. The texts are in a column ``text``. ``--peer`` also runs
peers/suffix_array.py on them, in a separate process.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
from distributed import Client

from etl.audit.duplicates.duplicate_report import duplicates
from etl.compute.cluster import Cluster
from etl.job.run import run
from etl.recipe.recipe import Recipe

STAGE = {"dedup_substrings": {"min_bytes": 500, "min_chars": 200}}


class Cost(NamedTuple):
    """CPU seconds of all processes, MB of the largest worker, and the characters that were removed."""

    cpu: float
    memory: float
    removed: tuple[int, int] = (0, 0)  # from documents, and with documents that were left out


def main() -> None:
    """Print the cost of both runs, and the speed of the pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peer", action="store_true")
    arguments = parser.parse_args()
    megabytes = sum(map(text_megabytes, arguments.files))
    costs: dict[str, list[Cost]] = {"without": [], "with": []}
    for _ in range(arguments.repeat):
        for name, stages in (("without", []), ("with", [STAGE])):
            costs[name].append(measure(arguments.files, stages, arguments.workers))
    cpu = {name: statistics.median(each.cpu for each in found) for name, found in costs.items()}
    memory = max(each.memory for each in costs["with"])
    speed = megabytes / (cpu["with"] - cpu["without"])
    print(f"{megabytes:.0f} MB of text, {arguments.workers} workers")
    print(f"without {cpu['without']:.1f} s, with {cpu['with']:.1f} s of CPU time")
    print(f"the pass: {speed:.1f} MB/s per core; largest worker {memory:.0f} MB")
    cut, left_out = costs["with"][0].removed
    print(
        f"{cut / 1e6:.1f} million characters cut, {left_out / 1e6:.1f} million in documents left out"
    )
    if arguments.peer:
        peer = Path(__file__).with_name("peers") / "suffix_array.py"
        subprocess.run([sys.executable, peer, "500", *arguments.files], check=True)


def text_megabytes(file: str) -> float:
    """Return the megabytes of text in a file."""
    texts = pq.read_table(file, columns=["text"])["text"]
    return float(pc.sum(pc.binary_length(texts)).as_py()) / 1e6


def measure(files: list[str], stages: Sequence[object], workers: int) -> Cost:
    """Run a recipe into a new lake."""
    with tempfile.TemporaryDirectory() as lake, Cluster(workers=workers).connect() as client:
        source = {"path": files, "columns": {"text": "text", "id": None, "url": None}}
        settings = {"name": "substrings", "source": source, "lake": lake, "stages": stages}
        recipe = Recipe.model_validate(settings)
        begun = cpu_seconds(client)
        run(recipe, cluster=client)
        cost = Cost(cpu_seconds(client) - begun, max(client.run(peak).values()))
        cuts = duplicates(lake, top=0).cuts if stages else None
        return cost if cuts is None else cost._replace(removed=(cuts.chars, cuts.left_out_chars))


def cpu_seconds(client: Client) -> float:
    """Return the CPU time of this process and of all workers so far."""
    workers: dict[str, float] = client.run(time.process_time)
    return time.process_time() + sum(workers.values())


def peak() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    main()
