"""What it costs to sync files to the disk: the main job with TOKENLAKE_SYNC=on and =off, alternately.

    TOKENLAKE_DATA=... python benchmarks/sync_cost.py --pairs 5

writes about 300 MB of Parquet (zstd) from the text of ``$TOKENLAKE_DATA/bench``, and runs gopher_quality,
dedup_exact and tokenize over it in splits of 32 MB, on the same two worker processes for all runs. Each
run writes a new lake in ``--folder``, which determines the disk. ``CPU`` is that of the workers and the
driver. ``waiting`` is the time that the workers and the driver spent in fsync, in seconds: the workers
compute nothing then, so that ``waiting`` and the difference in CPU time explain the difference in seconds.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from distributed import Client
from token_data import data_folder, tokenizer

from etl.compute.cluster import Cluster
from etl.job.run import run
from etl.recipe.recipe import Recipe
from etl.stages import GopherQuality

WORKERS = 2
SPLIT_BYTES = 32 << 20

# The rules for English would reject most of this text, see throughput.py.
TOLERANT = GopherQuality(min_stop_words=None, min_alpha_word_ratio=0.5)


def write_input(data: Path, folder: Path, copies: int) -> float:
    """Write copies of the text that differ in their first word; return their size in MB."""
    for path in sorted((data / "bench").glob("*.parquet")):
        source = pq.ParquetFile(path)
        for copy in range(copies):
            target = folder / f"{path.stem}-{copy}.parquet"
            with pq.ParquetWriter(target, source.schema_arrow, compression="zstd") as writer:
                for group in range(source.num_row_groups):
                    rows = source.read_row_group(group)
                    text = pc.binary_join_element_wise(f"Copy{copy}", rows["text"], " ")
                    text = pa.chunked_array(text, rows.schema.field("text").type)
                    index = rows.schema.get_field_index("text")
                    writer.write_table(rows.set_column(index, rows.schema.field(index), text))
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


@contextmanager
def syncing(client: Client, value: str) -> Iterator[None]:
    """Set TOKENLAKE_SYNC in this process and in all workers."""
    os.environ["TOKENLAKE_SYNC"] = value
    client.run(os.environ.__setitem__, "TOKENLAKE_SYNC", value)
    yield
    del os.environ["TOKENLAKE_SYNC"]


def count_fsync() -> None:
    """Measure the time in os.fsync in this process from now on."""
    original = os.fsync
    lock = threading.Lock()

    def fsync(descriptor: int) -> None:
        begun = time.perf_counter()
        original(descriptor)
        with lock:
            fsync.seconds += time.perf_counter() - begun  # type: ignore[attr-defined]

    fsync.seconds = 0.0  # type: ignore[attr-defined]
    os.fsync = fsync  # type: ignore[assignment]


def used() -> tuple[float, float]:
    """Return the seconds of CPU time and those in os.fsync of this process."""
    return time.process_time(), float(os.fsync.seconds)  # type: ignore[attr-defined]


def used_by_all(client: Client) -> tuple[float, float]:
    """Return the sums of ``used`` over this process and all workers."""
    cpu, waiting = zip(used(), *client.run(used).values(), strict=True)
    return sum(cpu), sum(waiting)


@dataclass(frozen=True)
class Cost:
    """The seconds that a run took, by the clock, by the CPU, and in fsync."""

    seconds: float
    cpu: float
    waiting: float


def measure(client: Client, recipe: Recipe, value: str) -> Cost:
    """Run a recipe and return its cost."""
    os.sync()
    with syncing(client, value):
        cpu, waiting = used_by_all(client)
        begun = time.perf_counter()
        report = run(recipe, cluster=client)
        seconds = time.perf_counter() - begun
        after = used_by_all(client)
    assert report.ok, report.quarantined
    return Cost(seconds, after[0] - cpu, after[1] - waiting)


def main() -> None:
    """Run pairs, print a row for each, and the ratios of the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--copies", type=int, default=3, help="of the text, 95 MB of Parquet each")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure")
    chosen = parser.parse_args()
    data = data_folder()
    costs: dict[str, list[Cost]] = {"on": [], "off": []}
    count_fsync()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        source = Path(folder, "input")
        source.mkdir()
        print(f"{write_input(data, source, chosen.copies):.0f} MB of Parquet\n")
        print("| pair | on, s | off, s | CPU on, s | CPU off, s | waiting, s |")
        print("|---" * 6 + "|", flush=True)
        with Cluster(workers=WORKERS).connect() as client:
            client.run(count_fsync)
            for pair in range(-1, chosen.pairs):  # the first one warms up
                row: dict[str, Cost] = {}
                for value in ("on", "off") if pair % 2 else ("off", "on"):
                    lake = Path(folder, "lake")
                    row[value] = measure(client, make_recipe(data, source, lake), value)
                    shutil.rmtree(lake)
                if pair < 0:
                    continue
                for value, cost in row.items():
                    costs[value].append(cost)
                on, off = row["on"], row["off"]
                figures = (on.seconds, off.seconds, on.cpu, off.cpu, on.waiting)
                print(f"| {pair + 1} | {' | '.join(f'{x:.2f}' for x in figures)} |", flush=True)
    for name in ("seconds", "cpu", "waiting"):
        on, off = (statistics.median(getattr(c, name) for c in costs[v]) for v in ("on", "off"))
        ratio = f", ratio {on / off:.4f}" if off else ""
        print(f"median {name}: on {on:.2f}, off {off:.2f}{ratio}")


def make_recipe(data: Path, source: Path, lake: Path) -> Recipe:
    """Return the recipe of the short chain."""
    return Recipe(
        name="sync",
        source={"path": f"{source}/*.parquet", "columns": {"id": "id"}, "split_bytes": SPLIT_BYTES},
        lake=str(lake),
        stages=[TOLERANT, "dedup_exact", {"tokenize": str(tokenizer(data))}],
    )


if __name__ == "__main__":
    main()
