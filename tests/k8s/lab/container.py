"""Processes of containers and of the sandboxes of pods, with namespaces, users and memory limits."""

import asyncio
import os
import shlex
import signal
import subprocess
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.manifests import ROOT
from tests.k8s.lab.api import Json

_SCRIPT = Path(__file__).with_name("container.sh")
_CGROUPS = Path("/sys/fs/cgroup/memory")  # of version 1
_KILLED = b"unshare: sigprocmask unblock failed"  # printed by unshare, which then exits with 1
_UNITS = {
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
}


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine, and where a container sees it."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a container runs, resolved for this machine."""

    command: Sequence[str]
    environment: Mapping[str, str]
    mounts: Sequence[Mount]


@dataclass
class Sandbox:
    """The process that holds the network, host name and process namespaces of a pod."""

    parent: Process
    pid: int

    async def stop(self) -> None:
        """Kill it, and with it all processes in its process namespace."""
        _kill(self.pid, signal.SIGKILL)
        await self.parent.wait()


async def start_sandbox(hostname: str) -> Sandbox:
    parent = await asyncio.create_subprocess_exec(
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--uts", "--pid", "--fork"),
        *("--kill-child", "sh", "-c", 'hostname "$0"; exec sleep infinity', hostname),
        stdin=DEVNULL,
        start_new_session=True,
    )
    return Sandbox(parent, await _child(parent))


@dataclass
class Container:
    """A running container: its process as this machine sees it."""

    parent: Process
    log: Path
    cgroup: Path | None

    async def stop(self, grace: float) -> None:
        """Ask the process to end, and kill it after some seconds."""
        pid = children(self.parent.pid)
        if pid:
            _kill(pid[0], signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.parent.wait(), grace)
        self.kill()
        await self.parent.wait()

    def kill(self) -> None:
        """End the process at once."""
        for pid in children(self.parent.pid):
            _kill(pid, signal.SIGKILL)

    def exit_code(self) -> int | None:
        """Return the exit code as Kubernetes reports it, or None while the container runs."""
        code = self.parent.returncode
        if code == 1 and _KILLED in self.log.read_bytes()[-200:]:
            return 137
        return 128 - code if code is not None and code < 0 else code

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel killed one of its processes for memory."""
        if self.cgroup is None:
            return False
        text = (self.cgroup / "memory.oom_control").read_text()
        return "oom_kill 0" not in text and "oom_kill " in text


async def start_container(
    sandbox: Sandbox, folder: Path, pod: Json, container: Json, launch: Launch
) -> Container:
    """Start a container in a sandbox, with its output in the file ``log`` of the folder."""
    (folder / "layers").mkdir(parents=True, exist_ok=True)
    lines = [f"{m.source}|{m.target}|{'ro' if m.read_only else ''}\n" for m in launch.mounts]
    (folder / "mounts").write_text("".join(lines))
    context = pod["spec"].get("securityContext", {}) | container.get("securityContext", {})
    cgroup = _memory_cgroup(folder, container)
    shared = pod["spec"].get("shareProcessNamespace", False)
    enter = ["nsenter", "--target", str(sandbox.pid), "--net", "--uts"]
    if shared:  # nsenter forks
        enter += ["--pid", "setpriv", "--pdeathsig", "KILL", "unshare", "--mount"]
    else:  # the container is process 1 of a new namespace
        enter += ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    settings = {
        "LAB_READ_ONLY": "true" if context.get("readOnlyRootFilesystem") else "false",
        "LAB_CGROUP": "" if cgroup is None else str(cgroup),
        "LAB_PROJECT": str(ROOT),
        "LAB_WORKING": container.get("workingDir", "/tmp"),
        "LAB_PRIVILEGES": shlex.join(_privileges(context)),
    }
    with (folder / "log").open("ab") as log:
        parent = await asyncio.create_subprocess_exec(
            *("setpriv", "--pdeathsig", "KILL", *enter),
            *("--propagation", "private", "sh", str(_SCRIPT), str(folder), *launch.command),
            env={**launch.environment, **settings},
            stdin=DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return Container(parent, folder / "log", cgroup)


def _privileges(context: Json) -> list[str]:
    """Return the arguments of setpriv for a security context."""
    user, group = context.get("runAsUser", 0), context.get("runAsGroup", 0)
    groups = context.get("fsGroup")
    result = [f"--reuid={user}", f"--regid={group}"]
    result.append("--clear-groups" if groups is None else f"--groups={groups}")
    if context.get("allowPrivilegeEscalation") is False:
        result.append("--no-new-privs")
    if "ALL" in context.get("capabilities", {}).get("drop", []):
        result += ["--inh-caps=-all", "--bounding-set=-all"]
    return result


def _memory_cgroup(folder: Path, container: Json) -> Path | None:
    """Create a control group with the memory limit of a container, where this machine has version 1."""
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    if limit is None or not (_CGROUPS / "memory.limit_in_bytes").exists():
        return None
    cgroup = _CGROUPS / f"tokenlake-lab-{'-'.join(folder.parts[-3:])}"
    cgroup.mkdir(exist_ok=True)
    (cgroup / "memory.limit_in_bytes").write_text(str(num_bytes(limit)))
    return cgroup


def remove_cgroup(container: Container) -> None:
    """Remove the control group of a container whose processes have ended."""
    if container.cgroup is not None:
        with suppress(OSError):
            container.cgroup.rmdir()


def num_bytes(quantity: str) -> int:
    """Return a quantity of memory in bytes.

    >>> num_bytes("1536Mi")
    1610612736
    """
    for unit, factor in _UNITS.items():
        if quantity.endswith(unit):
            return int(float(quantity.removesuffix(unit)) * factor)
    return int(quantity)


def run_in_network(sandbox: Sandbox, command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command of this machine in the network of a pod."""
    enter = ["nsenter", "--target", str(sandbox.pid), "--net", *command]
    return subprocess.run(enter, capture_output=True, check=False)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


async def _child(parent: Process) -> int:
    """Wait until a process has started another one, and return it."""
    while parent.returncode is None:
        if found := children(parent.pid):
            return found[0]
        await asyncio.sleep(0.01)
    raise RuntimeError("the sandbox of a pod did not start: namespaces need root")


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
