"""A forwarded port carries bytes both ways, and every end of a connection closes it and nothing else."""

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl.compute.kubernetes.api import Api
from etl.errors import ClusterError
from tests.helpers.kubernetes_api import KubernetesApi, kubernetes_api

pytest.importorskip("kr8s", reason="it is in the extra k8s")

PORT = 8786
RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    with kubernetes_api(tmp_path) as (api, kubeconfig), _echo() as port:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        api.ports[PORT] = port
        yield api


@contextlib.contextmanager
def _echo() -> Iterator[int]:
    """Serve what is sent, on a free port."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1 << 18):
                connection.sendall(data)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def echo(connection: socket.socket, content: bytes) -> bytes:
    sender = threading.Thread(target=connection.sendall, args=(content,))
    sender.start()
    received = b""
    while len(received) < len(content):
        received += connection.recv(1 << 20)
    sender.join()
    return received


def test_connections_are_copied_both_ways_at_once(api: KubernetesApi) -> None:
    content = os.urandom(3 << 20)
    with (
        Api.connect("tokenlake") as reached,
        reached.forward("p", PORT) as port,
        connect(port) as one,
        connect(port) as two,
    ):
        assert echo(one, content) == content
        assert echo(two, content) == content
        assert echo(one, b"again") == b"again"


def test_a_pod_that_is_gone_closes_the_connection_with_one_request(api: KubernetesApi) -> None:
    """The PortForward of kr8s 0.20.15 asks again without a pause, also when the client has left."""
    with Api.connect("tokenlake") as reached, reached.forward("p", PORT) as port:
        api.denied.add(("get", "pods/portforward"))
        for _ in range(3):
            with connect(port) as connection:
                assert connection.recv(1) == b""
        assert api.calls["get", "pods/portforward"] == 1 + 3  # one to try it
        api.denied.clear()
        with connect(port) as connection:
            assert echo(connection, b"it is back") == b"it is back"


def test_a_client_that_is_lost_leaves_no_trace(
    api: KubernetesApi, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The PortForward of kr8s 0.20.15 prints a traceback for each."""
    caplog.set_level(logging.WARNING)
    with Api.connect("tokenlake") as reached, reached.forward("p", PORT) as port:
        for num_bytes in (1, 1 << 20):
            connection = connect(port)
            connection.sendall(b"x" * num_bytes)
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()
        with connect(port) as connection:
            assert echo(connection, b"others continue") == b"others continue"
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_an_open_connection_does_not_delay_the_end(
    api: KubernetesApi, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A browser keeps its connections to the dashboard: kr8s 0.20.15 waits for them from Python 3.12."""
    caplog.set_level(logging.WARNING)
    with Api.connect("tokenlake") as reached, reached.forward("p", PORT) as port:
        connection = connect(port)
        assert echo(connection, b"open") == b"open"
    with connection:
        assert connection.recv(1) == b""
    with pytest.raises(OSError, match="refused"):
        connect(port)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_a_port_in_use_is_reported(api: KubernetesApi) -> None:
    with (
        Api.connect("tokenlake") as reached,
        reached.forward("p", PORT) as port,
        pytest.raises(ClusterError, match=f"the port {port} of this machine cannot be used"),
        reached.forward("p", PORT, port),
    ):
        pass
