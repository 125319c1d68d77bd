"""Runs on a cluster of a cluster file, and why they cannot start, against an API server in this process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from etl.cli.app import app
from etl.compute.cluster import Cluster
from etl.compute.connect import steady_workers
from etl.compute.kubernetes import dask_cluster, waiting
from etl.errors import ClusterError
from tests.helpers.kubernetes_api import KubernetesApi, event, kubernetes_api, now, pod
from tests.helpers.kubernetes_operator import Operator, operator
from tests.helpers.listeners import Calls, Recorder
from tests.helpers.ports import free_ports

pytest.importorskip("kr8s", reason="it is in the extra k8s")

FILE = "image: registry.example.com/tokenlake:0.1.0\nworkers: 1\n"
IMAGE = "registry.example.com/tokenlake:0.1.0"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(dask_cluster, "_FATAL_SECONDS", 0.1)
    monkeypatch.setattr(dask_cluster, "_OPERATOR_SECONDS", 0.3)
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(FILE, "utf-8")
    with kubernetes_api(tmp_path) as (api, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield api


@pytest.fixture
def dask(api: KubernetesApi, tmp_path: Path) -> Iterator[Operator]:
    with operator(api, tmp_path / "tls") as running:
        yield running


def left(api: KubernetesApi) -> list[str]:
    """Return what costs money."""
    kinds = ("daskclusters", "daskworkergroups", "pods", "jobs")
    return [name for kind in kinds for name in api.names(kind)]


def connect(**options: Any) -> Cluster:
    return Cluster("k8s:cluster.yaml", **options)


def test_a_run_creates_the_cluster_and_deletes_it(api: KubernetesApi, dask: Operator) -> None:
    listener = Recorder()
    with connect().connect(listener=listener) as client:
        assert client.submit(sum, [1, 2]).result() == 3
        names = [worker["name"] for worker in client.scheduler_info()["workers"].values()]
        assert names == ["tokenlake-default-worker-0"]
        assert str(client.scheduler.address).startswith("tls://127.0.0.1:")
        assert client.dashboard_link.startswith("http://127.0.0.1:")
    assert left(api) == []
    assert api.names("secrets") == ["tokenlake-tls"], "the certificates serve the next run, too"
    assert "cluster    tokenlake created in namespace tokenlake" in listener.lines
    assert listener.lines[-1] == "cluster    tokenlake deleted"


def test_the_verbs_of_a_run_are_those_of_the_roles(api: KubernetesApi, dask: Operator) -> None:
    import yaml

    from tests.helpers.manifests import ROOT

    Path("cluster.yaml").write_text(f"{FILE}spot: {{workers: 1}}\n")
    with connect().connect() as client, steady_workers(client):
        pass
    text = (ROOT / "k8s/base/roles.yaml").read_text()
    (user,) = (r for r in yaml.safe_load_all(text) if r["metadata"]["name"] == "tokenlake-user")
    granted = {(v, r) for rule in user["rules"] for r in rule["resources"] for v in rule["verbs"]}
    assert {*api.calls} <= granted


def test_an_error_and_ctrl_c_leave_nothing_behind(api: KubernetesApi, dask: Operator) -> None:
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), connect().connect():
            raise error
        assert left(api) == []


def test_a_cluster_that_was_up_keeps_running(api: KubernetesApi, dask: Operator) -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["cluster", "up", "cluster.yaml"])
    assert result.exit_code == 0, result.output
    assert "scheduler   ready" in result.stdout
    assert "workers     " in result.stdout
    with connect(workers=3).connect():
        pass
    group = api.item("daskworkergroups", "tokenlake-default")
    assert group["spec"]["worker"]["replicas"] == 3, "workers are added"
    assert api.names("daskclusters") == ["tokenlake"]
    result = runner.invoke(app, ["cluster", "down", "k8s:cluster.yaml"])
    assert "image       not running" in result.stdout
    assert left(api) == []


def test_the_next_driver_of_a_run_deletes_the_cluster_of_the_killed_one(
    api: KubernetesApi, dask: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENLAKE_RUN", "tokenlake-driver")
    with monkeypatch.context() as patch:
        patch.setattr(dask_cluster.DaskCluster, "release", lambda *_: None)
        with connect().connect():
            pass
    assert api.names("daskclusters") == ["tokenlake"], "as after a kill"
    with connect().connect():
        pass
    assert left(api) == []


def test_shuffles_run_without_spot_workers(api: KubernetesApi, dask: Operator) -> None:
    Path("cluster.yaml").write_text(f"{FILE}spot: {{workers: 2}}\n")

    def groups() -> list[str]:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        return sorted(worker["name"].rpartition("-worker-")[0] for worker in workers)

    with connect().connect() as client:
        assert groups() == ["tokenlake-default", "tokenlake-spot", "tokenlake-spot"]
        with steady_workers(client):
            assert groups() == ["tokenlake-default"]
        client.wait_for_workers(3, timeout=10)
    assert left(api) == []


def not_started(reason: str, message: str) -> dict[str, Any]:
    container = {"image": IMAGE, "state": {"waiting": {"reason": reason, "message": message}}}
    return {"phase": "Pending", "containerStatuses": [container]}


BROKEN = "tokenlake-scheduler-1"
QUOTA = 'pods "x" is forbidden: exceeded quota: small, requested: requests.memory=4Gi'
PROBLEMS = {
    "image": (
        [pod(BROKEN, "scheduler", **not_started("ImagePullBackOff", "not found"))],
        [],
        [f"ImagePullBackOff of the image {IMAGE} (not found)", "check `image` of the cluster file"],
    ),
    "crash": (
        [pod(BROKEN, "scheduler", **not_started("CrashLoopBackOff", "back-off"))],
        [],
        ["CrashLoopBackOff", "its last lines: No module named 'etl'"],
    ),
    "Secret": (
        [
            pod(
                BROKEN,
                "scheduler",
                **not_started("CreateContainerConfigError", 'secret "s" not found'),
            )
        ],
        [],
        ['CreateContainerConfigError (secret "s" not found)', "k8s/README.md"],
    ),
    "ConfigMap": (
        [pod(BROKEN, "scheduler", **not_started("ContainerCreating", ""))],
        [event("Pod", BROKEN, "FailedMount", 'configmap "tokenlake-dask" not found')],
        ['FailedMount (configmap "tokenlake-dask" not found)', "kubectl apply -k k8s/base"],
    ),
    "quota": (
        [],
        [event("ReplicaSet", "tokenlake-scheduler-65d", "FailedCreate", QUOTA)],
        [f"no pod of tokenlake-scheduler-65d can be created ({QUOTA})", "larger ResourceQuota"],
    ),
    "quota of the operator": (
        [],
        [event("DaskCluster", "tokenlake", "Logging", f"Handler failed: {QUOTA}\nTraceback (most")],
        [f"no pod of tokenlake can be created (Handler failed: {QUOTA})", "larger ResourceQuota"],
    ),
    "quota of workers": (
        [pod(BROKEN, "scheduler")],
        [event("ReplicaSet", "tokenlake-default-worker-1-65d", "FailedCreate", QUOTA)],
        ["no pod of tokenlake-default-worker-1-65d can be created", "larger ResourceQuota"],
    ),
    "operator": ([], [], ["Dask's operator does not react", "helm install dask-operator"]),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_cluster_that_cannot_start_is_reported_and_deleted(
    case: str, api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods, events, texts = PROBLEMS[case]

    def create(plural: str, item: dict[str, Any]) -> None:
        if plural == "daskclusters":
            for each in pods:
                api.add("pods", json.loads(json.dumps(each)))
            for each in events:
                api.add("events", json.loads(json.dumps(each)) | {"lastTimestamp": now()})

    def delete(plural: str, item: dict[str, Any]) -> None:
        for name in api.names("pods"):
            del api.objects["pods", "tokenlake", name]

    api.on_create, api.on_delete = create, delete
    api.logs[f"{BROKEN} before"] = "No module named 'etl'\n"
    result = CliRunner().invoke(app, ["cluster", "up", "cluster.yaml"])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit), "no traceback"
    error = result.stderr.partition("error: ")[2]
    for text in texts:
        assert text in error
    assert left(api) == []


def test_workers_that_start_outweigh_those_that_cannot(api: KubernetesApi) -> None:
    """A quota that allows some of the workers lets the run start with these."""
    name = "tokenlake-default-worker-2-65d"
    states = iter([not_started("ContainerCreating", "")] * 20 + [None] * 1000)

    def create(plural: str, item: dict[str, Any]) -> None:
        if plural == "daskclusters":
            api.add("pods", pod(BROKEN, "scheduler"))
            api.add("pods", pod("tokenlake-default-worker-1", "worker", **next(states)))
            api.add("events", event("ReplicaSet", name, "FailedCreate", QUOTA))

    api.on_create = create
    shown: list[str] = []

    def report(line: str) -> None:
        shown.append(line)
        if "exceeded quota" in line:
            api.add("pods", pod("tokenlake-default-worker-1", "worker"))

    from etl.compute.kubernetes import cluster_commands

    cluster_commands.start("cluster.yaml", None, Calls(note=report))
    assert any("exceeded quota" in line for line in shown)


REFUSED = [
    *("create daskclusters", "delete daskclusters", "create daskworkergroups", "list pods"),
    *("list events", "get secrets", "get pods/portforward"),
]


@pytest.mark.parametrize("case", REFUSED)
def test_a_missing_permission_is_named_before_anything_is_created(
    case: str, api: KubernetesApi
) -> None:
    verb, _, resource = case.partition(" ")
    api.denied.add((verb, resource))
    with pytest.raises(ClusterError) as caught, connect().connect():
        pass
    assert f"no permission to {verb} {resource}" in str(caught.value)
    assert "tokenlake-user" in str(caught.value.hint)
    assert not api.objects


def test_a_request_that_is_refused_is_explained(api: KubernetesApi) -> None:
    api.denied.add(("get", "jobs"))
    result = CliRunner().invoke(app, ["cluster", "status", "cluster.yaml"])
    assert "error: namespace tokenlake: no permission to get jobs (jobs is forbidden:" in (
        result.stderr
    )


def test_a_missing_operator_and_namespace_are_reported(api: KubernetesApi) -> None:
    api.namespaces.clear()
    with pytest.raises(ClusterError, match="the namespace does not exist"), connect().connect():
        pass
    api.kinds -= {"daskclusters", "daskworkergroups"}
    with pytest.raises(ClusterError, match="Dask's operator is not installed"), connect().connect():
        pass


@pytest.mark.slow
def test_an_unreachable_server_and_missing_credentials_are_reported(
    api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads(Path("kubeconfig").read_text())
    config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{free_ports(1)[0]}"
    Path("kubeconfig").write_text(json.dumps(config))
    with pytest.raises(ClusterError, match="does not respond") as caught, connect().connect():
        pass
    assert caught.value.where == config["clusters"][0]["cluster"]["server"]
    Path("cluster.yaml").write_text(f"{FILE}context: other\n")
    with pytest.raises(ClusterError, match="no credentials .*No such context"), connect().connect():
        pass
    monkeypatch.setenv("KUBECONFIG", "missing")
    Path("cluster.yaml").write_text(FILE)
    with pytest.raises(ClusterError, match="no credentials"), connect().connect():
        pass


def test_the_missing_extra_is_reported(api: KubernetesApi) -> None:
    code = "import sys; sys.modules['kr8s'] = None; from etl.cli.app import main; main()"
    command = [sys.executable, "-c", code, "cluster", "status", "cluster.yaml"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == (
        "error: the library kr8s is not installed\n  hint: pip install 'tokenlake[k8s]'\n"
    )


def test_a_memory_limit_is_refused(api: KubernetesApi) -> None:
    what = "--memory-limit is for workers on this machine"
    with pytest.raises(ClusterError, match=what), connect(memory_limit="2GiB").connect():
        pass
