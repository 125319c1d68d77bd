"""Compute with workers that are jobs of Slurm: the type `slurm` of ``--cluster``, by dask-jobqueue.

The scheduler runs in the driver's process, on a login node or in a job of its allocation; each job runs some
single-threaded workers. Jobs that end, because they were preempted or reached their time limit, are submitted
again. If the driver dies, its jobs end after ``_DEATH_SECONDS`` without a scheduler.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from distributed import Client
from distributed.security import Security
from pydantic import Field

from etl.compute.certificates import make_certificates, tls_settings
from etl.compute.cluster_request import ClusterRequest
from etl.compute.cluster_settings import ClusterSettings, Memory, Workers, quantity, workers_for
from etl.compute.scheduler_client import SchedulerClient
from etl.errors import ClusterError
from etl.plural import many

_DEATH_SECONDS: Final = 60
_REPORT_SECONDS: Final = 10.0  # between lines about jobs that have not started
_POLL_SECONDS: Final = 0.2
_COMMAND_SECONDS: Final = 30.0
_ENDED: Final = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"),
    }
)
"""States of jobs that have ended, which squeue shows for some minutes: man squeue."""
_NEVER: Final = frozenset(
    {
        *("AccountNotAllowed", "BadConstraints", "InvalidAccount", "InvalidQOS", "QOSNotAllowed"),
        *("PartitionNodeLimit", "PartitionTimeLimit"),
    }
)
"""Reasons why a job will never start: man squeue. Slurm accepts such jobs unless EnforcePartLimits is set."""
_MARGIN_SECONDS: Final = 300  # before their time limit, workers stop taking tasks

Line = Annotated[str, Field(min_length=1, pattern=r"^[^\n\r]*$")]


class SlurmFile(ClusterSettings):
    """A Dask cluster of Slurm jobs.

    Each job has ``workers_per_job`` workers with one CPU and ``memory`` each. ``workers`` is their number in
    all jobs; ``max_workers`` limits `auto`. ``walltime`` is the time limit of a job, in minutes.
    ``directives`` are further options of sbatch (``--qos=high``), ``setup`` lines of shell that run before
    the workers (``module load python``). ``python`` is the interpreter on the nodes, by default the driver's.
    ``interface`` is the network that nodes share (``ib0``), ``scratch`` a local disk of each node, and
    ``folder`` a shared one for logs and certificates.
    """

    noun: ClassVar[str] = "Slurm file"
    example: ClassVar[str] = "partition: batch"

    partition: Line
    account: Line | None = None
    workers: Workers = "auto"
    max_workers: int = Field(100, ge=1)
    workers_per_job: int = Field(1, ge=1)
    memory: Memory = "4Gi"
    walltime: int = Field(480, ge=10)
    directives: tuple[Line, ...] = Field((), strict=False)
    setup: tuple[Line, ...] = Field((), strict=False)
    python: Line = sys.executable
    interface: Line | None = None
    scratch: Line | None = None
    folder: Line = "tokenlake-slurm"

    def jobs(self, request: ClusterRequest) -> int:
        """Return the number of jobs that a run needs."""
        workers = self.workers if request.workers is None else request.workers
        if workers == "auto":
            workers = workers_for(request.planned_bytes, self.max_workers)
        return -(-workers // self.workers_per_job)


@contextmanager
def connect_to_slurm(address: str | None, request: ClusterRequest) -> Iterator[Client]:
    """Submit the jobs of a file, connect a client, and cancel the jobs at the end.

    Raises ClusterError if the file is invalid, if Slurm does not accept the job, or if it cannot start.
    """
    settings = SlurmFile.requested(address, request)
    folder = Path(settings.folder).expanduser().absolute()
    with _security(folder, request.security) as security:
        cluster = _new_cluster(settings, folder, security)
        with cluster, SchedulerClient(cluster, security=security) as client:
            _check_script(cluster.job_script())
            jobs = settings.jobs(request)
            request.listener.note(
                f"submitting {many(jobs, 'job')} to the partition {settings.partition}"
            )
            # Unlike scale, adapt replaces jobs that have ended.
            cluster.adapt(minimum_jobs=jobs, maximum_jobs=jobs, interval="2s")
            _wait_for_worker(client, cluster, folder, request)
            yield client


@contextmanager
def _security(folder: Path, given: Security | None) -> Iterator[Security]:
    """Yield the given TLS settings, or settings with new certificates, which only this user can read."""
    if given is not None:
        yield given
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        certificates = tempfile.mkdtemp(prefix="tls-", dir=folder)
    except OSError as error:
        raise ClusterError(f"cannot be written ({error})", where=str(folder)) from error
    try:
        make_certificates(certificates)
        yield tls_settings(certificates)
    finally:
        shutil.rmtree(certificates, ignore_errors=True)


def require_sbatch() -> None:
    """Raise ClusterError if this machine has no client of Slurm."""
    if shutil.which("sbatch") is None:
        raise ClusterError("the command sbatch is not found", hint="run on a login node of Slurm")


def _new_cluster(settings: SlurmFile, folder: Path, security: Security) -> Any:
    """Return a cluster without jobs."""
    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ImportError as error:
        raise ClusterError(
            "the library dask-jobqueue is not installed", hint="pip install 'tokenlake[slurm]'"
        ) from error
    require_sbatch()
    number, memory = settings.workers_per_job, quantity(settings.memory)
    lifetime = settings.walltime * 60 - _MARGIN_SECONDS
    return SLURMCluster(
        queue=settings.partition,
        account=settings.account,
        cores=number,
        processes=number,
        memory=f"{memory * number:.0f}B",
        walltime=str(settings.walltime),
        job_name="tokenlake",
        job_extra_directives=list(settings.directives),
        job_script_prologue=list(settings.setup),
        python=shlex.quote(settings.python),
        interface=settings.interface,
        local_directory=settings.scratch,
        log_directory=str(folder),
        death_timeout=_DEATH_SECONDS,
        worker_extra_args=["--lifetime", f"{lifetime}s"],
        protocol="tls://",
        security=security,
        scheduler_options={"dashboard_address": ":0"},
    )


def _check_script(script: str) -> None:
    """Raise ClusterError with what Slurm says if it would not accept the job."""
    answer = _call("sbatch", "--test-only", stdin=script)
    if answer.returncode:
        raise _refused(_last_line(answer.stderr))


def _refused(reason: str) -> ClusterError:
    return ClusterError(
        f"Slurm refuses the job ({reason})",
        hint="`sinfo` lists partitions and their limits, `sacctmgr show user $USER -s` accounts",
    )


def _wait_for_worker(client: Client, cluster: Any, folder: Path, request: ClusterRequest) -> None:
    """Wait for the first worker; report every few seconds why the jobs have not started."""
    reported = time.monotonic()
    while not client.scheduler_info(n_workers=-1)["workers"]:
        time.sleep(_POLL_SECONDS)
        if time.monotonic() - reported < _REPORT_SECONDS:
            continue
        reported = time.monotonic()
        ids = [str(job.job_id) for job in cluster.workers.values() if job.job_id]
        lines = _states(ids)
        if not _NEVER.isdisjoint(" ".join(lines).split()):
            raise _refused("; ".join(lines))
        request.listener.note(f"waiting for jobs: {'; '.join(lines) or 'none is in the queue'}")
        if ids and all(line.split()[0] in _ENDED for line in lines):
            states = f" ({'; '.join(lines)})" if lines else ""
            raise ClusterError(
                f"all jobs have ended before a worker connected{states}",
                where=str(folder),
                hint="the newest tokenlake-*.err there has the reason; see `python` and `setup`",
            )


def _states(ids: list[str]) -> list[str]:
    """Return the distinct states of jobs, with the reason that Slurm gives."""
    if not ids:
        return []
    answer = _call("squeue", "--noheader", "--format=%T %r", f"--jobs={','.join(ids)}")
    return sorted({line.strip() for line in answer.stdout.splitlines() if line.strip()})


def _call(*command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm."""
    try:
        return subprocess.run(  # noqa: S603 - the arguments are ours
            command,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(
            f"Slurm does not respond ({error})", where=command[0], hint="`scontrol ping`"
        ) from error


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "without a reason"
