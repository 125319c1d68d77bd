"""Several runs use one cluster: the last one deletes it, and uses of dead runs end."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from etl.cli.app import app
from etl.compute.cluster import Cluster
from etl.compute.kubernetes import cluster_use, outage, requests, waiting
from etl.compute.kubernetes.cluster_use import Use, uses_of
from tests.helpers.kubernetes_api import KubernetesApi, kubernetes_api
from tests.helpers.kubernetes_operator import Operator, operator
from tests.helpers.listeners import Recorder

pytest.importorskip("kr8s", reason="it is in the extra k8s")

FILE = "image: registry.example.com/tokenlake:0.1.0\nworkers: 1\n"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.02)
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


def connect(listener: Recorder | None = None) -> Any:
    return Cluster("k8s:cluster.yaml").connect(listener=listener)


def etl(*words: str) -> str:
    """Run a command, and return what it prints and its error."""
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code in (0, 1)
    return result.output


def uses(api: KubernetesApi) -> list[Use]:
    return uses_of(api.item("daskclusters", "tokenlake"))


def use_of_another(run: str, *, machine: str | None = None, process: int = 1, age: int = 0) -> Use:
    now = datetime.now(UTC)
    mine = Use.of_this_process(run, since=now, now=now - timedelta(seconds=age))
    values = {"user": "anna@laptop", "machine": machine, "process": process}
    return Use(**{**vars(mine), **values})


def add_cluster(api: KubernetesApi, name: str, *recorded: Use) -> None:
    annotations = {"tokenlake/run": recorded[0].run}
    for use in recorded:
        annotations |= use.annotation()
    image = {"containers": [{"image": "registry.example.com/tokenlake:0.1.0"}]}
    api.add(
        "daskclusters",
        {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"scheduler": {"spec": image}, "worker": {"replicas": 1}},
        },
    )


@pytest.mark.parametrize("creator_is_last", [False, True])
def test_the_last_of_two_runs_deletes_the_cluster(
    api: KubernetesApi, dask: Operator, creator_is_last: bool
) -> None:
    listeners = Recorder(), Recorder()
    first, second = connect(listeners[0]), connect(listeners[1])
    # Two runs are two processes as a rule. Dask keeps its default client in the context: each has its own.
    context_of = {first: copy_context(), second: copy_context()}
    context_of[first].run(first.__enter__)
    context_of[second].run(second.__enter__).submit(sum, [1, 2]).result()
    assert len(uses(api)) == 2
    assert any("is up in namespace tokenlake, in use by" in line for line in listeners[1].lines)
    ends = [(second, listeners[1]), (first, listeners[0])]
    if not creator_is_last:
        ends.reverse()
    (earlier, earlier_listener), (later, later_listener) = ends
    context_of[earlier].run(earlier.__exit__, None, None, None)
    assert "cluster    tokenlake stays, in use by" in earlier_listener.lines[-1]
    assert len(uses(api)) == 1
    context_of[later].run(later.__exit__, None, None, None)
    assert later_listener.lines[-1] == "cluster    tokenlake deleted"
    assert api.names("daskclusters") == []


def test_runs_that_start_and_end_at_once_share_the_cluster(
    api: KubernetesApi, dask: Operator
) -> None:
    together = threading.Barrier(3, timeout=60)
    seen: list[int] = []

    def run() -> None:
        with connect():
            together.wait()
            seen.append(len(uses(api)))
            together.wait()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [3, 3, 3]
    assert api.names("daskclusters") == []


def test_a_run_that_joins_while_the_last_one_leaves_keeps_the_cluster(
    api: KubernetesApi, dask: Operator
) -> None:
    """The deletion names the version in which nobody else used the cluster."""
    joining = use_of_another("late")

    def join(method: str, _path: str) -> None:
        if method == "DELETE" and "late" not in [use.run for use in uses(api)]:
            cluster = api.item("daskclusters", "tokenlake")
            cluster["metadata"]["annotations"] |= joining.annotation()
            cluster["metadata"]["resourceVersion"] = "late"

    listener = Recorder()
    with connect(listener):
        api.fault = join
    assert api.names("daskclusters") == ["tokenlake"]
    assert listener.lines[-1].startswith("cluster    tokenlake stays, in use by anna@laptop since")


def test_a_use_is_renewed(
    api: KubernetesApi, dask: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_use, "_RENEW_SECONDS", 0.01)
    with connect():
        cluster = api.item("daskclusters", "tokenlake")
        version = cluster["metadata"]["resourceVersion"]
        while cluster["metadata"]["resourceVersion"] == version:
            pass
    assert api.names("daskclusters") == []


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


DEAD = {
    "not renewed": lambda: use_of_another("killed", age=601),
    "ended here": lambda: use_of_another(
        "killed", machine=cluster_use._machine(), process=dead_process()
    ),
}


@pytest.mark.parametrize("why", DEAD)
def test_the_cluster_of_a_killed_run_is_named_used_and_deleted(
    api: KubernetesApi, dask: Operator, why: str
) -> None:
    with connect():  # for the certificates
        pass
    add_cluster(api, "tokenlake", DEAD[why]())
    dask.create("daskclusters", api.item("daskclusters", "tokenlake"))
    dask.create(
        "daskworkergroups", {"metadata": {"name": "x"}, "spec": {"worker": {"replicas": 1}}}
    )
    status = etl("cluster", "status", "cluster.yaml")
    assert "abandoned   the cluster tokenlake was abandoned by anna@laptop since" in status
    listener = Recorder()
    with connect(listener):
        assert [use.run != "killed" for use in uses(api)] == [True]
    assert any("abandoned by anna@laptop" in line and "uses it" in line for line in listener.lines)
    assert api.names("daskclusters") == []


def test_clusters_of_other_names_that_were_abandoned_are_named(
    api: KubernetesApi, dask: Operator
) -> None:
    add_cluster(api, "old", use_of_another("killed", age=601))
    add_cluster(api, "busy", use_of_another("alive"))
    command = "kubectl -n tokenlake delete daskcluster old"
    listener = Recorder()
    with connect(listener):
        pass
    (line,) = [line for line in listener.lines if "abandoned" in line]
    assert line.startswith("warning: the cluster old was abandoned by anna@laptop since")
    assert line.endswith(command)
    assert command in etl("cluster", "status", "cluster.yaml")
    assert api.names("daskclusters") == ["busy", "old"]


def test_down_is_refused_while_a_run_uses_the_cluster(api: KubernetesApi, dask: Operator) -> None:
    add_cluster(api, "tokenlake", use_of_another("alive"))
    assert "in use by   anna@laptop since" in etl("cluster", "status", "cluster.yaml")
    error = etl("cluster", "down", "cluster.yaml")
    assert "the cluster is in use by anna@laptop since" in error
    assert "--force" in error
    assert api.names("daskclusters") == ["tokenlake"]
    etl("cluster", "down", "cluster.yaml", "--force")
    assert api.names("daskclusters") == []


def test_a_run_does_not_delete_a_cluster_that_was_started_during_it(
    api: KubernetesApi, dask: Operator
) -> None:
    with connect():
        assert "scheduler   ready" in etl("cluster", "up", "cluster.yaml")
    assert api.names("daskclusters") == ["tokenlake"]
    assert uses(api) == []
    etl("cluster", "down", "cluster.yaml")


def test_a_cluster_that_cannot_be_deleted_is_named_with_the_command(
    api: KubernetesApi, dask: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_SECONDS", 0.1)
    listener = Recorder()

    def fail() -> None:
        api.fault = lambda _method, _path: "lost"
        raise ValueError("own")

    with pytest.raises(ValueError, match="own"), connect(listener):
        fail()
    assert listener.lines[-1].startswith(
        "warning: the cluster tokenlake in namespace tokenlake may"
    )
    assert listener.lines[-1].endswith("delete it with `etl cluster down cluster.yaml`")
    api.fault = lambda _method, _path: None


def add_job(api: KubernetesApi, *, failed: int, **status: Any) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    api.add(
        "jobs",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "tokenlake-driver"},
            "spec": {"backoffLimit": 6, "podFailurePolicy": {"rules": [rule]}},
            "status": {"failed": failed, **status},
        },
    )


ENDED = {"conditions": [{"type": "Failed", "status": "True"}]}


STAYS: dict[
    str, tuple[int, dict[str, Any], bool, bool]
] = {  # failed pods, the status of the Job, whether the node is drained
    "first": (0, {}, False, True),
    "last but one": (5, {}, False, True),
    "last": (6, {}, False, False),
    "last, drained": (6, {}, True, True),
    "of a Job that has failed": (0, ENDED, False, False),
}


@pytest.mark.parametrize("case", STAYS)
def test_a_driver_leaves_the_cluster_if_its_job_starts_it_again(
    api: KubernetesApi, dask: Operator, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    failed, status, is_drained, stays = STAYS[case]
    monkeypatch.setenv("TOKENLAKE_RUN", "tokenlake-driver")
    monkeypatch.setenv("HOSTNAME", "tokenlake-driver-1")
    add_job(api, failed=failed, **status)
    labels = {"job-name": "tokenlake-driver"}
    condition = {"type": "DisruptionTarget", "status": str(is_drained)}
    metadata = {"name": "tokenlake-driver-1", "labels": labels}
    api.add("pods", {"metadata": metadata, "status": {"conditions": [condition]}})
    with pytest.raises(KeyboardInterrupt), connect():
        raise KeyboardInterrupt
    assert api.names("daskclusters") == (["tokenlake"] if stays else [])
    if stays:
        owners = api.item("daskclusters", "tokenlake")["metadata"]["ownerReferences"]
        assert [owner["name"] for owner in owners] == ["tokenlake-driver"]
        with connect():
            pass
    assert api.names("daskclusters") == []


def test_a_shared_cluster_does_not_end_with_the_job_of_its_creator(
    api: KubernetesApi, dask: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(api, failed=0)
    with monkeypatch.context() as patch:
        patch.setenv("TOKENLAKE_RUN", "tokenlake-driver")
        driver = connect()
        driver.__enter__()
    with connect():
        cluster = json.dumps(api.item("daskclusters", "tokenlake"))
        assert "ownerReferences" not in json.loads(cluster)["metadata"]
    driver.__exit__(None, None, None)
    assert api.names("daskclusters") == []
