"""Requests are sent again, and links are made again, while an API server does not respond."""

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from etl.compute.cluster import Cluster
from etl.compute.kubernetes import link_relay, outage, requests
from etl.compute.kubernetes.api import Api
from etl.compute.kubernetes.link_relay import Relay, greet
from etl.compute.kubernetes.port_forward import port_of
from etl.compute.kubernetes.resumable_stream import Link, LostLinkError, ResumableStream
from etl.errors import ClusterError
from tests.helpers.kubernetes_api import KubernetesApi, kubernetes_api
from tests.helpers.kubernetes_operator import Operator, operator
from tests.helpers.listeners import Recorder

pytest.importorskip("kr8s", reason="it is in the extra k8s")

FILE = "image: registry.example.com/tokenlake:0.1.0\nworkers: 1\n"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    monkeypatch.setattr(outage, "_PAUSES", (0.02,))
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(FILE, "utf-8")
    with kubernetes_api(tmp_path) as (api, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield api


@pytest.fixture
def dask(api: KubernetesApi, tmp_path: Path) -> Iterator[Operator]:
    with operator(api, tmp_path / "tls") as running:
        yield running


class Faults:
    """Faults of the next requests, one for each."""

    def __init__(self, *faults: str | int) -> None:
        self.remaining = list(faults)

    def __call__(self, _method: str, _path: str) -> str | int | None:
        return self.remaining.pop(0) if self.remaining else None


def job(name: str) -> dict[str, Any]:
    return {"kind": "Job", "metadata": {"name": name}, "spec": {}}


@pytest.mark.parametrize("faults", [["lost"], [503, "lost", 429], ["unanswered"], ["lost", 403]])
def test_requests_are_sent_again(api: KubernetesApi, faults: list[str | int]) -> None:
    listener = Recorder()
    with Api.connect("tokenlake", listener=listener) as reached:
        api.fault = Faults(*faults)
        created = reached.create(job("a"))
        assert created is not None
        assert created["metadata"]["uid"] == api.item("jobs", "a")["metadata"]["uid"]
        api.fault = Faults(*faults)
        assert reached.patch("Job", "a", {"spec": {"suspend": True}}) is not None
        api.fault = Faults(*faults)
        assert [item["spec"] for item in reached.list("Job")] == [{"suspend": True}]
        api.fault = Faults(*faults)
        assert reached.delete("Job", "a")
        assert reached.get("Job", "a") is None
    assert "the API server does not respond" in listener.lines[0]
    assert "the API server responds again" in listener.lines[1]


def test_an_object_of_another_program_is_not_taken_for_the_own_one(api: KubernetesApi) -> None:
    with Api.connect("tokenlake") as reached:
        api.add("jobs", job("a"))
        assert reached.create(job("a")) is None
        api.fault = Faults("lost")
        assert reached.create(job("a")) is None


def test_a_version_that_has_changed_is_not_deleted(api: KubernetesApi) -> None:
    with Api.connect("tokenlake") as reached:
        created = reached.create(job("a"))
        assert created is not None
        reached.patch("Job", "a", {"spec": {"suspend": True}})
        assert not reached.delete("Job", "a", version=created["metadata"]["resourceVersion"])
        assert api.names("jobs") == ["a"]


def test_waiting_for_an_api_server_has_an_end(
    api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_SECONDS", 0.3)
    with Api.connect("tokenlake") as reached:
        reached.list("Job")
        api.fault = lambda _method, _path: "lost"
        with pytest.raises(ClusterError, match="the API server of Kubernetes does not respond"):
            reached.list("Job")
        api.fault = lambda _method, _path: 503
        with pytest.raises(ClusterError, match="refused to list jobs"):
            reached.list("Job")


def slow(number: int) -> int:
    time.sleep(0.05)
    return number


def test_work_continues_while_links_are_cut(api: KubernetesApi, dask: Operator) -> None:
    """Dask would forget all tasks of a client that it has lost."""
    listener, ended = Recorder(), threading.Event()

    def cut() -> None:
        while not ended.wait(0.2):
            api.cut()

    with Cluster("k8s:cluster.yaml").connect(listener=listener) as client:
        cutting = threading.Thread(target=cut)
        cutting.start()
        try:
            futures = client.map(slow, range(60))
            assert client.gather(futures) == list(range(60))
            assert client.submit(bytes, 3 << 20).result() == bytes(3 << 20)
            # A connection that is made while there is no link waits for it.
            api.fault = lambda _method, _path: "lost"
            threading.Timer(1.0, lambda: setattr(api, "fault", lambda _method, _path: None)).start()
            assert len(client.scheduler_info()["workers"]) == 1
        finally:
            ended.set()
            cutting.join()
    assert any("the scheduler's pod responds again" in line for line in listener.lines)
    assert api.names("daskclusters") == []


def test_a_link_that_stays_lost_is_reported(
    api: KubernetesApi, dask: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etl.compute.dask_tasks import map_unordered
    from etl.compute.kubernetes import connect_k8s, scheduler_link

    monkeypatch.setattr(scheduler_link, "MAX_SECONDS", 0.3)
    monkeypatch.setattr(connect_k8s, "_TIMEOUT", "2s")

    def lose(method: str, path: str) -> str | None:
        return "lost" if path.endswith("portforward") else None

    def work(client: Client) -> None:
        for _ in map_unordered(client, slow, ((n,) for n in range(100)), label="slow"):
            api.fault = lose
            api.cut()

    with pytest.raises(ClusterError) as caught, Cluster("k8s:cluster.yaml").connect() as client:
        work(client)
    assert "the scheduler was not reachable for" in caught.value.what
    assert "run again" in str(caught.value.hint)
    assert api.names("daskclusters") == []


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


class CutLinks:
    """The end of connections whose links are cut after a random number of bytes."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self.port = port
        self.chance = chance
        self.number = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = ResumableStream(reader, writer)
        is_known = False
        while True:
            self.number += 1
            link_reader, link_writer = await asyncio.open_connection("127.0.0.1", self.port)
            link = link_of(link_reader, link_writer, self.chance.randrange(4 << 20))
            try:
                confirmed = await greet(link, b"k" * 16, stream.received, is_new=not is_known)
                if confirmed is None:  # it has ended
                    break
                is_known = True
                await stream.carry(link, confirmed)
                break
            except LostLinkError:
                continue
            finally:
                link_writer.close()
        stream.close()


def link_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, num_bytes: int) -> Link:
    """Return a link that is cut after a number of bytes in both directions together."""
    left = num_bytes

    def count(data: bytes) -> bytes:
        nonlocal left
        left -= len(data)
        if left < 0:
            writer.transport.abort()
        return data

    async def read() -> bytes:
        return count(await reader.read(1 << 16))

    async def send(data: bytes) -> None:
        writer.write(count(data))
        await writer.drain()

    return Link(read, send)


@pytest.mark.parametrize("seed", range(3))
def test_no_byte_is_lost_or_doubled_on_links_that_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    content = chance.randbytes(20 << 20)

    async def check() -> int:
        scheduler = await asyncio.start_server(echo, "127.0.0.1", 0)
        relay = await Relay(lambda: f"tls://127.0.0.1:{port_of(scheduler)}").listen(0, "127.0.0.1")
        links = CutLinks(port_of(relay), chance)
        local = await asyncio.start_server(links.serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(local))
        sending = asyncio.create_task(_send(writer, content))
        assert await reader.readexactly(len(content)) == content
        await sending
        writer.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others)  # until all ends have closed the connection
        for server in (local, relay, scheduler):
            server.close()
        return links.number

    assert asyncio.run(check()) > 3


async def _send(writer: asyncio.StreamWriter, content: bytes) -> None:
    for start in range(0, len(content), 1 << 18):
        writer.write(content[start : start + (1 << 18)])
        await writer.drain()


def test_a_scheduler_without_a_relay_is_reported(
    api: KubernetesApi, dask: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etl.compute.kubernetes import api as module

    monkeypatch.setattr(module, "_RELAY_SECONDS", 0.1)

    def create(plural: str, item: dict[str, Any]) -> None:
        dask.create(plural, json.loads(json.dumps(item)))
        api.ports[link_relay.LINK_PORT] = 1

    api.on_create = create
    match = "another version of Tokenlake has started it"
    with pytest.raises(ClusterError, match=match), Cluster("k8s:cluster.yaml").connect():
        pass
