"""A Dask cluster inside the process of a test."""

from distributed import Client


def cluster(threads: int = 1) -> Client:
    """Start one worker with the given number of threads: faster than processes for tests of other things."""
    return Client(processes=False, n_workers=1, threads_per_worker=threads, dashboard_address=":0")
