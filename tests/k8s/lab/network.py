"""The network of a lab: a bridge for the pods' network namespaces, and another namespace for Services."""

import ctypes
import fcntl
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_LABS = 16  # at a time, on one machine
_ASKED_BY_DASK = "8.8.8.8"  # Dask finds its own address by the route to this one; nothing is sent
_CLONE_NEWNET = 0x40000000  # os has it since Python 3.12


@dataclass(frozen=True)
class Network:
    """A /16 of private addresses: the lower half is for pods, the upper half for Services."""

    number: int

    @property
    def bridge(self) -> str:
        return f"lab{self.number:02}-"

    @property
    def _machine(self) -> str:
        """The address of this machine for pods."""
        return f"10.{200 + self.number}.0.1"

    @property
    def _gateway(self) -> str:
        """The address of the namespace that has the addresses of all Services.

        The addresses are not this machine's, since another program may listen there on a port of all
        addresses.
        """
        return f"10.{200 + self.number}.0.2"

    @property
    def services(self) -> str:
        return f"10.{200 + self.number}.128.0/17"

    def pod_address(self, pod: int) -> str:
        """Return the address of the pod of a number, counted from 0."""
        return f"10.{200 + self.number}.{(pod + 3) // 256 % 128}.{(pod + 3) % 256}"

    def listen(self, address: tuple[str, int]) -> socket.socket:
        """Return a socket that listens at an address of a Service; call it outside the main thread."""
        libc = ctypes.CDLL(None, use_errno=True)
        services = Path("/run/netns", self.bridge)
        with Path("/proc/thread-self/ns/net").open() as own, services.open() as other:
            assert libc.setns(other.fileno(), _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
            try:
                return socket.create_server(address)
            finally:
                assert libc.setns(own.fileno(), _CLONE_NEWNET) == 0

    def create(self) -> None:
        """Create the bridge, and the namespace of the Services."""
        _ip(
            f"link add {self.bridge} type bridge",
            f"addr add {self._machine}/17 dev {self.bridge}",
            f"link set {self.bridge} up",
            f"netns add {self.bridge}",
        )
        self._plug("s", self.bridge)
        _ip(f"route add {self.services} via {self._gateway}")
        inside = ["ip", "netns", "exec", self.bridge]
        _ip(
            "link set lo up",
            f"addr add {self._gateway}/17 dev eth0",
            "link set eth0 up",
            f"route add local {self.services} dev lo",
            prefix=inside,
        )

    def remove(self) -> None:
        """Remove what exists of it."""
        links = [name for _, name in socket.if_nameindex() if name.startswith(self.bridge)]
        commands = [f"link del {name}" for name in links]
        if Path("/run/netns", self.bridge).exists():
            commands.append(f"netns del {self.bridge}")
        for command in commands:
            with suppress(RuntimeError):  # a pod that has just ended takes its link with it
                _ip(command)

    def _plug(self, name: str, namespace: str | int) -> None:
        """Connect a network namespace, given by its name or a process in it, to the bridge."""
        outside = f"{self.bridge}{name}"
        _ip(
            f"link add {outside} type veth peer name eth0 netns {namespace}",
            f"link set {outside} master {self.bridge} up",
        )

    def connect(self, pod: int, sandbox: int) -> None:
        """Give the network namespace of a process an interface with a pod's address."""
        self._plug(f"p{pod}", sandbox)
        inside = ["nsenter", "--target", str(sandbox), "--net"]
        _ip(
            "link set lo up",
            f"addr add {self.pod_address(pod)}/17 dev eth0",
            "link set eth0 up",
            f"route add {self.services} via {self._gateway}",
            f"route add {_ASKED_BY_DASK} via {self._gateway}",
            prefix=inside,
        )


@contextmanager
def claim_network() -> Iterator[Network]:
    """Set up a network that no other lab uses; a lab that was killed leaves its own to the next."""
    for number in range(_LABS):
        with (Path(tempfile.gettempdir()) / f"tokenlake-lab-{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            network = Network(number)
            network.remove()
            try:
                network.create()
                yield network
            finally:
                network.remove()
            return
    raise RuntimeError(f"{_LABS} labs are running")


def _ip(*commands: str, prefix: list[str] | None = None) -> None:
    result = subprocess.run(
        [*(prefix or []), "ip", "-batch", "-"],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise RuntimeError(f"{commands}: {result.stderr}")
