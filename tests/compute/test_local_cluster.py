"""Workers on this machine: why they do not start, and ports that other programs use."""

import re
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import dask
import pytest

from etl.compute.cluster import Cluster
from etl.compute.cluster_request import ClusterRequest
from etl.compute.local_cluster import start_in_process, start_local_cluster
from etl.errors import ClusterError
from tests.helpers.listeners import Calls


@pytest.fixture
def port_in_use() -> Iterator[int]:
    """Return a port at which this process listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("preload", "timeout", "message"),
    [
        ("", "0.5ms", r"in time: the machine is busy\)\n  hint: use fewer --workers"),
        ("import os; os._exit(9)", "10s", r"one ended while it started\)\n  hint: free memory"),
        ("raise ValueError('no such setting')", "10s", r"no such setting\)"),
    ],
)
def test_the_cause_is_named_if_workers_do_not_start(
    preload: str, timeout: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "preload.py").write_text(preload)
    settings = {
        "distributed.comm.timeouts.connect": timeout,
        "distributed.worker.preload": [str(tmp_path / "preload.py")],
    }
    request = ClusterRequest(workers=1, planned_bytes=1000)
    with (
        dask.config.set(settings),
        pytest.raises(ClusterError, match=message),
        start_local_cluster(None, request),
    ):
        pass


def test_a_dashboard_whose_port_is_in_use_has_another(port_in_use: int) -> None:
    lines: list[str] = []
    cluster = Cluster(workers=1, dashboard=f"127.0.0.1:{port_in_use}")
    with cluster.connect(1000, listener=Calls(note=lines.append)) as client:
        link = client.dashboard_link
    assert not re.search(rf":{port_in_use}\b", link)
    in_use = f"dashboard  port {port_in_use} is in use, so it has another"
    assert lines == [in_use, f"dashboard  {link}"]


def test_a_cluster_without_a_dashboard_leaves_the_port_of_dask_alone() -> None:
    with closing(socket.socket()) as server:
        with suppress(OSError):  # another program has it
            server.bind(("127.0.0.1", 8787))
            server.listen()
        lines: list[str] = []
        with start_in_process() as client:  # a warning would be an error
            assert client.submit(sum, [1, 2]).result() == 3
        with Cluster().connect(1000, listener=Calls(note=lines.append)):
            assert lines == []
