"""A Dask cluster inside the process of a test."""

from distributed import Client


def cluster(threads: int = 1) -> Client:
    """One worker of so many threads: quicker than processes, where these are not what is tested."""
    return Client(processes=False, n_workers=1, threads_per_worker=threads, dashboard_address=":0")
