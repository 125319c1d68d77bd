"""Where the work runs: this machine, or a Dask scheduler that is already there -> a Client."""

import logging
import os
import signal
import ssl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dask
from distributed import Client, LocalCluster
from distributed.client import CancelledError, ClosedClientError
from distributed.comm import CommClosedError
from distributed.security import Security

from etl import certificates
from etl.errors import ClusterError

# One thread per process, in every library: the parallelism is Dask's, and so is the accounting per core.
_WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
_SETTINGS = {
    "distributed.nanny.pre-spawn-environ": _WORKER_ENVIRONMENT,
    "distributed.comm.timeouts.connect": "10s",  # how long a worker that died is waited for
    # Back-pressure, by the share of a worker's limit that its process takes: it is given no more tasks
    # (others take them), then ended and begun anew. Tasks wait at the scheduler, not at busy workers.
    "distributed.worker.memory.pause": 0.8,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.worker-saturation": 1.1,
    "distributed.admin.low-level-log-length": 100,  # of messages: a thousand batches take 100 MB
    "dataframe.convert-string": False,
}


TIME_LIMIT = 6 * 3600.0
"""Seconds for a split, unless said otherwise: 128 MB of the slowest stage take minutes (chosen here)."""

_TIMEOUT = "15s"  # for a scheduler to answer


@dataclass(frozen=True)
class Cluster:
    """A place to run: a scheduler at ``tcp://...``, or (``address`` None) this machine.

    On this machine one single-threaded process per core is started unless ``workers`` says otherwise;
    they share the memory, or get ``memory_limit`` each (as ``2GiB``). ``tls`` is a folder that
    ``etl.certificates.make`` wrote: nobody without its certificates can speak to the cluster. A split that
    takes longer than ``time_limit`` seconds is put aside; None: there is no limit.
    """

    address: str | None = None
    workers: int | None = None
    memory_limit: str | None = None
    tls: str | None = None
    time_limit: float | None = TIME_LIMIT

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """A client for as long as the context lasts; a scheduler that was there before stays.

        Raises ClusterError if the scheduler does not answer, or a certificate is missing.
        """
        security = self._security()
        with dask.config.set(_SETTINGS):
            if self.address is None:
                with self._local(security) as cluster, Client(cluster) as client:
                    client.run(_leave_interrupts_to_the_driver)
                    yield client
                return
            try:
                client = Client(self.address, timeout=_TIMEOUT, security=security)
            except (OSError, TypeError, ValueError, TimeoutError) as error:
                # A TypeError is Dask's way to say that tls:// has no certificates.
                raise ClusterError(
                    f"no scheduler answers ({error})",
                    where=self.address,
                    hint="write tcp://host:8786, and see that a scheduler runs there; "
                    "one that has certificates wants tls://host:8786 and --tls DIR",
                ) from error
            with client:
                yield client

    def _security(self) -> Security | None:
        """What each role shows to the others; without a folder what Dask's own configuration says."""
        if self.tls is None:
            return None
        if self.address is not None and not self.address.startswith("tls://"):
            raise ClusterError(
                "certificates are for tls:// alone",
                where=self.address,
                hint="write tls://host:8786",
            )
        found = certificates.files(self.tls)
        own = {f"tls_{role}_cert": found[role] for role in certificates.ROLES}
        keys = {f"tls_{role}_key": found[role] for role in certificates.ROLES}
        return Security(
            require_encryption=True,
            tls_ca_file=found["ca"],
            tls_min_version=ssl.TLSVersion.TLSv1_3,
            **own,
            **keys,
        )

    def _local(self, security: Security | None) -> LocalCluster:
        with warnings.catch_warnings():  # a dashboard port that is taken is no concern of the user
            warnings.filterwarnings("ignore", message="Port .* is already in use")
            return LocalCluster(
                n_workers=self.workers or num_cores(),
                threads_per_worker=1,
                memory_limit=self.memory_limit or "auto",
                security=security,
                silence_logs=logging.CRITICAL,  # what a task raises is reported once, by the run
            )


@contextmanager
def lost_is_told(client: Client) -> Iterator[None]:
    """Raises ClusterError for whatever Dask raises in the context when its scheduler is gone."""
    try:
        yield
    except (CancelledError, ClosedClientError, OSError, RuntimeError) as error:
        is_of_dask = isinstance(error, CancelledError | ClosedClientError | CommClosedError)
        if not is_of_dask and client.status == "running":
            raise  # a file's, or a stage's
        raise ClusterError(
            "the scheduler was lost, and the work in hand with it",
            where=client.scheduler.address if client.scheduler is not None else None,
            hint="run again: what is committed stays, and the rest is done then",
        ) from error


def _leave_interrupts_to_the_driver() -> None:
    """Ctrl-C reaches every process of a terminal; the driver answers it, and ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
