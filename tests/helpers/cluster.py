"""A Dask cluster inside the process of a test."""

import dask
from distributed import Client

from etl.compute.worker_settings import PROFILE_SETTINGS


def cluster(threads: int = 1) -> Client:
    """Start one worker with the given number of threads: faster than processes for tests of other things."""
    with dask.config.set(PROFILE_SETTINGS):
        return Client(
            processes=False, n_workers=1, threads_per_worker=threads, dashboard_address=":0"
        )
