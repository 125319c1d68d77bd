"""TODO."""

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

from etl.compute import certificates
from etl.compute.time_limit import TIME_LIMIT
from etl.errors import ClusterError

# One thread per process in every library: Dask provides the parallelism and accounts for it per core.
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
    "distributed.comm.timeouts.connect": "10s",  # how long to wait for a worker that died
    # Back-pressure, as shares of a worker's memory limit: above the first it gets no more tasks (other
    # workers take them), above the second it is restarted. Tasks queue at the scheduler, not at workers.
    "distributed.worker.memory.pause": 0.8,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.worker-saturation": 1.1,
    "distributed.admin.low-level-log-length": 100,  # messages; those of 1000 batches take 100 MB
    "dataframe.convert-string": False,
}


_TIMEOUT = "15s"  # for connecting to a scheduler


@dataclass(frozen=True)
class Cluster:
    """A Dask cluster: the scheduler at ``address`` (``tcp://...``), or by default this machine.

    A local cluster has ``workers`` single-threaded processes (default: one per core), which share the
    memory or get ``memory_limit`` each (such as ``2GiB``). ``tls`` is a folder written by
    ``etl.compute.certificates.make``: only clients with its certificates can connect. A split that takes longer
    than ``time_limit`` seconds is quarantined; None means no limit.
    """

    address: str | None = None
    workers: int | None = None
    memory_limit: str | None = None
    tls: str | None = None
    time_limit: float | None = TIME_LIMIT

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """Connect a client for the duration of the context.

        A local cluster is started and stopped; a scheduler at an address keeps running. Raises
        ClusterError if the scheduler does not respond or a certificate is missing.
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
                # Dask raises TypeError if tls:// is used without certificates.
                raise ClusterError(
                    f"the scheduler does not respond ({error})",
                    where=self.address,
                    hint="write tcp://host:8786 and check that a scheduler runs there; "
                    "a scheduler with certificates needs tls://host:8786 and --tls DIR",
                ) from error
            with client:
                yield client

    def _security(self) -> Security | None:
        """Return the TLS settings of all roles; None means those of Dask's own configuration."""
        if self.tls is None:
            return None
        if self.address is not None and not self.address.startswith("tls://"):
            raise ClusterError(
                "certificates require a tls:// address",
                where=self.address,
                hint="write tls://host:8786",
            )
        paths = certificates.files(self.tls)
        certs = {f"tls_{role}_cert": paths[role] for role in certificates.ROLES}
        keys = {f"tls_{role}_key": paths[role] for role in certificates.ROLES}
        return Security(
            require_encryption=True,
            tls_ca_file=paths["ca"],
            tls_min_version=ssl.TLSVersion.TLSv1_3,
            **certs,
            **keys,
        )

    def _local(self, security: Security | None) -> LocalCluster:
        with warnings.catch_warnings():  # Dask then picks another dashboard port
            warnings.filterwarnings("ignore", message="Port .* is already in use")
            return LocalCluster(
                n_workers=self.workers or num_cores(),
                threads_per_worker=1,
                memory_limit=self.memory_limit or "auto",
                security=security,
                silence_logs=logging.CRITICAL,  # the run reports what tasks raise
            )


@contextmanager
def raise_if_scheduler_lost(client: Client) -> Iterator[None]:
    """Raise ClusterError for the errors that Dask raises when its scheduler is lost."""
    try:
        yield
    except (CancelledError, ClosedClientError, OSError, RuntimeError) as error:
        is_of_dask = isinstance(error, CancelledError | ClosedClientError | CommClosedError)
        if not is_of_dask and client.status == "running":
            raise  # an error of a file or a stage
        raise ClusterError(
            "the scheduler was lost, and with it the work in progress",
            where=client.scheduler.address if client.scheduler is not None else None,
            hint="run again: committed work is kept, and the rest is done then",
        ) from error


def _leave_interrupts_to_the_driver() -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal: the driver stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def num_cores() -> int:
    """Return the number of cores that this process can use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
