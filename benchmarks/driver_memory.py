"""The memory of the driver while the workers decide on many duplicates.

    python benchmarks/driver_memory.py [--duplicates N ...] [--partitions N ...] [--workers N]

Keys are generated on the workers: each text occurs eleven times, and of eight texts four are a chain, each
similar to the one before. All pass through the steps of ``dedup_exact`` and ``dedup_minhash`` (shuffles,
keepers chosen in rounds, the join of both passes, the shuffle for writing) but for files: instead of a data
file, a task returns a checksum as long as the fields of one. Each keeper, the number of duplicates and their
sum are compared with the known ones.

``--duplicates`` (default: 20 and 50 million): each number in a fresh process. ``--partitions``: a million
duplicates in about so many partitions instead; the growth is that of Dask's scheduler and client. The driver
includes the scheduler, which has its own pod or process on other clusters.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client
from numpy.typing import NDArray

from etl import schemas
from etl.compute import frame_shuffles
from etl.compute.cluster import Cluster
from etl.compute.compute_frames import compute_frame
from etl.dedup import exact
from etl.dedup.choose_keepers import choose_keepers
from etl.dedup.dedup_pass import PassResult
from etl.dedup.document_reader import DocumentReader
from etl.dedup.equal_texts import HASHES
from etl.dedup.file_groups import FILES_PER_DUPLICATES_FILE
from etl.dedup.key_lookup import StoredKeys
from etl.dedup.numbered_files import address, file_of, row_of
from etl.dedup.pair_rows import PAIRS
from etl.dedup.similarity import SIMILAR_PAIRS, bucket_of
from etl.dedup.stored_file_list import StoredFileList

COPIES = 11  # of each text
PER_FILE = 20_000  # documents
FILES_PER_TASK = 50
_SUMS = pd.DataFrame({"fields": pd.Series(dtype=object)})


def _addresses(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return address(numbers // PER_FILE, numbers % PER_FILE)


def _numbers(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    return file_of(addresses) * PER_FILE + row_of(addresses)


def _read_keys(files: NDArray[np.int64], *, texts: int) -> pd.DataFrame:
    """Return the keys of the documents of some files; document ``n`` has text ``n % texts``."""
    numbers = np.arange(files[0] * PER_FILE, (files[-1] + 1) * PER_FILE, dtype=np.int64)
    numbers = numbers[numbers < COPIES * texts]
    text = (numbers % texts).astype(np.uint64)
    key = (text * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)  # a bijection that spreads the keys
    return pd.DataFrame({"high": key, "low": key, "document": _addresses(numbers), "rank": 0.0})


def _similar_pairs(keys: pd.DataFrame, *, texts: int) -> pd.DataFrame:
    """Return similar pairs of the documents that are left: chains of four among every eight texts."""
    numbers = _numbers(keys["document"].to_numpy())
    assert not len(numbers) or numbers.max() < texts, "a dropped document was not left out"
    worse = numbers[(numbers % 8 > 0) & (numbers % 8 < 4)]
    pairs = pd.DataFrame({"better": _addresses(worse - 1), "worse": _addresses(worse)})
    pairs = pairs.assign(better_rank=0.0, worse_rank=0.0, similarity=0.9, is_estimate=False)
    return pairs.assign(bucket=bucket_of(pairs["better"].to_numpy()))[list(SIMILAR_PAIRS.columns)]


def keeper_of(numbers: NDArray[np.int64], texts: int) -> NDArray[np.int64]:
    """Return the number of the document that is kept for each one: in a chain, the first and the third."""
    text = numbers % texts
    return text - (np.isin(text % 8, (1, 3)))


def _sums(pairs: pd.DataFrame, *, texts: int) -> pd.DataFrame:
    """Return the number of pairs and two sums, and as many bytes more as a data file has fields."""
    documents = _numbers(pairs["document"].to_numpy())
    keepers = _numbers(pairs["keeper"].to_numpy())
    assert np.array_equal(keepers, keeper_of(documents, texts)), "a keeper is wrong"
    sums = [len(pairs), int(documents.sum()), int(keepers.sum()), "x" * 700]
    return pd.DataFrame({"fields": [json.dumps(sums)]})


def _with_bucket(pairs: pd.DataFrame) -> pd.DataFrame:
    bucket = file_of(pairs["document"].to_numpy()) // FILES_PER_DUPLICATES_FILE
    return pairs.assign(bucket=bucket)


def find(client: Client, texts: int) -> tuple[int, int]:
    """Decide on all documents, check the result, and return the numbers of duplicates and partitions."""
    files = np.arange(-(-COPIES * texts // PER_FILE))
    parts = np.split(files, range(FILES_PER_TASK, len(files), FILES_PER_TASK))
    keys = dd.from_map(_read_keys, parts, texts=texts, meta=HASHES)
    partitions = frame_shuffles.partitions_for(COPIES * texts)
    hashes = frame_shuffles.shuffle_by_range(keys, "low", partitions)
    none = np.empty(0, np.int64)
    stored = StoredKeys(StoredFileList("", "", 0), DocumentReader(""), (), none, none, none)
    pair = exact.PairEqual(stored, none, schemas.WHOLE.index("exact"))
    result = PassResult().join(hashes.map_partitions(pair, meta=PAIRS)).hold(client)
    left = result.leave_out(keys, parts, "document")
    similar = left.map_partitions(_similar_pairs, texts=texts, meta=SIMILAR_PAIRS)
    chosen = choose_keepers(client, similar)
    pairs = result.join(chosen.assign(kind=schemas.WHOLE.index("near"))).pairs
    assert pairs is not None
    pairs = pairs.map_partitions(_with_bucket, meta=PAIRS.assign(bucket=pd.Series(dtype="int64")))
    groups = 1 + len(files) // FILES_PER_DUPLICATES_FILE
    pairs = frame_shuffles.shuffle_by_value(pairs, "bucket", min(pairs.npartitions, groups))
    written = pairs.map_partitions(_sums, texts=texts, meta=_SUMS)
    fields = [json.loads(text) for text in compute_frame(client, written, label="sums")["fields"]]
    found = tuple(sum(values) for values in list(zip(*fields, strict=True))[:3])
    assert found == _expected(texts), "the duplicates differ from the generated ones"
    return found[0], partitions


def _expected(texts: int) -> tuple[int, int, int]:
    """Return the number of duplicates, and the sums of their numbers and of their keepers' numbers."""
    count = documents = keepers = 0
    for first in range(0, COPIES * texts, 1 << 18):
        numbers = np.arange(first, min(first + (1 << 18), COPIES * texts))
        keeper = keeper_of(numbers, texts)
        goes = keeper != numbers
        count += int(goes.sum())
        documents += int(numbers[goes].sum())
        keepers += int(keeper[goes].sum())
    return count, documents, keepers


def peak() -> float:
    """Return the maximum memory of this process so far, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def measure(duplicates: int, partitions: int | None, workers: int, memory_limit: str) -> str:
    """Return a row of the table."""
    texts = duplicates // (COPIES - 1) // 8 * 8
    if partitions is not None:
        frame_shuffles.ROWS_PER_PARTITION = COPIES * texts // partitions  # type: ignore[misc]
    with Cluster(workers=workers, memory_limit=memory_limit).connect() as client:
        before, started = peak(), time.monotonic()
        found, used = find(client, texts)
        seconds = time.monotonic() - started
        worker, driver = max(client.run(peak).values()), peak()
    return f"| {found:,} | {used:,} | {seconds:.0f} | {before:.0f} | {driver:.0f} | {worker:.0f} |"


def rows(given: argparse.Namespace) -> Iterator[str]:
    """Yield the rows of the table, each measured by a fresh process."""
    cases = [(n, None) for n in given.duplicates]
    if given.partitions:
        cases = [(1_000_000, n) for n in given.partitions]
    for case in cases:
        command = [sys.executable, __file__, "--case", json.dumps(case)]
        command += ["--workers", str(given.workers), "--memory-limit", given.memory_limit]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        yield output.splitlines()[-1]


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duplicates", type=int, nargs="+", default=[20_000_000, 50_000_000])
    parser.add_argument("--partitions", type=int, nargs="+", help="with a million duplicates")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", default="3GiB", help="of each worker")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)  # of the fresh process
    given = parser.parse_args()
    if given.case is not None:
        duplicates, partitions = given.case
        print(measure(duplicates, partitions, given.workers, given.memory_limit))
        return
    print("| duplicates | partitions | s | driver before MB | driver MB | worker MB |")
    print("|---|---|---|---|---|---|")
    for line in rows(given):
        print(line, flush=True)


if __name__ == "__main__":
    main()
