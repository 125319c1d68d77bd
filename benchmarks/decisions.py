"""Figures of docs/explanation/decisions.md: clients of S3, and a small Parquet file that grows when decoded.

    python benchmarks/decisions.py s3         # needs `pip install obstore`
    python benchmarks/decisions.py parquet

Each figure is from a fresh process. ``s3`` reads ranges of 256 kB, one after the other, from SeaweedFS on
this machine. ``parquet`` reads a file with one text of 1 MB in many rows, by Arrow alone and as a run does.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RANGE_BYTES, RANGES, REQUESTS = 1 << 18, 100, 600
TEXT_CHARS, ROWS = 1_000_000, (1_500, 15_000)  # Arrow reads only the first


def memory_mb(name: str) -> float:
    """Return a figure of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024


def s3fs_reader(bucket: str) -> Callable[[int], bytes]:
    """Return a function that reads the range at an offset."""
    import s3fs

    client = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    return lambda at: client.cat_file(f"{bucket}/data", start=at, end=at + RANGE_BYTES)


def obstore_reader(bucket: str) -> Callable[[int], bytes]:
    """Return a function that reads the range at an offset."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(bucket, client_options={"allow_http": True})
    return lambda at: obstore.get_range(store, "data", start=at, length=RANGE_BYTES)


def read_ranges(client: str, bucket: str) -> None:
    """Print what a client costs: its start with a first request, and each further one."""
    memory, start = memory_mb("RssAnon"), time.process_time()
    read = {"s3fs": s3fs_reader, "obstore": obstore_reader}[client](bucket)
    read(0)
    memory, started = memory_mb("RssAnon") - memory, time.process_time() - start
    start = time.process_time()
    for number in range(REQUESTS):
        assert len(memoryview(read(number % RANGES * RANGE_BYTES))) == RANGE_BYTES
    milliseconds = (time.process_time() - start) / REQUESTS * 1000
    print(
        f"{client:8} start {started:.2f} s, {memory:.0f} MB; a request {milliseconds:.2f} ms of CPU"
    )


def read_parquet(reader: str, path: str) -> None:
    """Print the most memory that a process takes to read the file."""
    from etl.sources import Source
    from etl.sources.list_splits import list_splits
    from etl.sources.read_split import read_split

    before = memory_mb("VmHWM")
    if reader == "arrow":
        rows = len(pq.read_table(path, use_threads=False))
    else:
        source = Source(path=path)
        rows = sum(len(b) for split in list_splits(source) for b in read_split(split, source))
    print(f"{reader:8} {rows:,} rows, {memory_mb('VmHWM') - before:,.0f} MB")


def main() -> None:
    """Start the processes that measure, or measure in a process that was started so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", choices=["s3", "parquet"])
    parser.add_argument("arguments", nargs="*", help="used by the processes that this one starts")
    given = parser.parse_args()
    if given.arguments:
        {"s3": read_ranges, "parquet": read_parquet}[given.figure](*given.arguments)
        return
    import pytest

    from tests.helpers.s3_server import new_bucket, seaweedfs, weed

    again = [sys.executable, __file__, given.figure]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if given.figure == "parquet":
            for rows in ROWS:
                path = Path(folder, f"{rows}.parquet")
                text = pa.array([os.urandom(TEXT_CHARS // 2).hex()])
                indices = pa.array(np.zeros(rows, np.int32))
                repeated = pa.DictionaryArray.from_arrays(indices, text)
                pq.write_table(pa.table({"text": repeated}), path, store_schema=False)
                print(f"{path.stat().st_size / 1e6:.1f} MB")
                for reader in ("arrow", "run") if rows == ROWS[0] else ("run",):
                    subprocess.run([*again, reader, str(path)], check=True)
            return
        program = weed()
        assert program is not None
        with seaweedfs(program, Path(folder)) as endpoint:
            bucket = new_bucket(endpoint, patch).removeprefix("s3://")
            import s3fs

            s3fs.S3FileSystem().pipe_file(f"{bucket}/data", os.urandom(RANGE_BYTES * RANGES))
            for client in ("s3fs", "obstore") * 4:
                subprocess.run([*again, client, bucket], check=True)


if __name__ == "__main__":
    main()
