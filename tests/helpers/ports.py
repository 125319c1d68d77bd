"""Ports on this machine: find free ones, and wait until a server listens."""

import socket
import time
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago; they are held together so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [int(free.getsockname()[1]) for free in sockets]


def wait_for_port(port: int) -> None:
    """Wait until a server listens on a port of this machine; fail after 30 seconds."""
    deadline = time.monotonic() + 30
    while not _answers(port):
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.05)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
