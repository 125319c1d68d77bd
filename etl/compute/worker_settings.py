"""Dask settings of the workers: one thread per library, and how much memory they may use."""

import sys
from typing import Final

# One thread per process in every library: Dask provides the parallelism and accounts for it per core.
WORKER_ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}

DASK_SETTINGS: Final = {
    "distributed.nanny.pre-spawn-environ": WORKER_ENVIRONMENT,
    "distributed.comm.timeouts.connect": "10s",  # how long to wait for a worker that died
    # Back-pressure, as shares of a worker's memory limit: above the first it gets no more tasks (other
    # workers take them), above the second it is restarted. Tasks queue at the scheduler, not at workers.
    "distributed.worker.memory.pause": 0.8,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.worker-saturation": 1.1,
    "distributed.admin.low-level-log-length": 100,  # messages; 1000 batches take 100 MB
    "dataframe.convert-string": False,
}
"""Settings while a client is connected; the workers of a scheduler at an address have their own."""

PROFILE_SETTINGS: Final = {"distributed.worker.profile.enabled": sys.version_info >= (3, 11, 12)}
"""Workers are not profiled before Python 3.11.12: sampling the stacks of threads while another one ends may
block a process for ever (https://github.com/python/cpython/issues/106883)."""
