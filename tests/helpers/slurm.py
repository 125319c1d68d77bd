"""A Slurm cluster of one node on this machine: munged, slurmctld and slurmd, started as root."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.helpers.ports import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
MpiDefault=none
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=16000 State=UNKNOWN
PartitionName=batch Nodes={host} Default=YES MaxTime=60 State=UP
"""


def why_impossible() -> str | None:
    """Return why Slurm cannot run here, or None."""
    if os.geteuid() != 0:
        return "Slurm's daemons are started as root"
    missing = [program for program in PROGRAMS if _find(program) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


@contextmanager
def slurm(folder: Path) -> Iterator[Path]:
    """Start Slurm with a partition `batch` of four CPUs; yield its configuration, for SLURM_CONF."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o600)
    host = subprocess.run(["hostname", "-s"], capture_output=True, text=True, check=True).stdout
    control, node = free_ports(2)
    file = folder / "slurm.conf"
    file.write_text(
        CONFIGURATION.format(folder=folder, host=host.strip(), control=control, node=node)
    )
    files = {"socket": "sock", "key-file": "key", "log-file": "log", "pid-file": "pid"}
    options = [f"--{option}={folder}/munge.{end}" for option, end in files.items()]
    munged = [_found("munged"), "--force", *options, f"--seed-file={folder}/munge.seed"]
    try:
        subprocess.run(munged, check=True, capture_output=True, timeout=60)
        for program in ("slurmctld", "slurmd"):
            command = [_found(program), "-f", str(file)]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        _wait_until_idle(file)
        yield file
    finally:
        for name in ("slurmd", "slurmctld", "munge"):
            with suppress(OSError, ValueError):
                os.kill(int((folder / f"{name}.pid").read_text()), signal.SIGTERM)


def jobs(file: Path) -> list[str]:
    """Return the states of all jobs in the queue."""
    command = ["squeue", "--noheader", "--format=%T"]
    environment = {**os.environ, "SLURM_CONF": str(file)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return run.stdout.split()


def _wait_until_idle(file: Path) -> None:
    environment = {**os.environ, "SLURM_CONF": str(file)}
    command = ["sinfo", "--noheader", "--format=%T"]
    end = time.monotonic() + 60
    while True:
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if run.stdout.strip() == "idle":
            return
        assert time.monotonic() < end, run.stdout + run.stderr
        time.sleep(0.2)


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")


def _found(program: str) -> str:
    found = _find(program)
    assert found is not None
    return found
