"""Many pods: pages of lists, problems by their cause, logs of several pods, and the end of a driver."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from etl.compute.kubernetes import waiting
from etl.compute.kubernetes.log_follower import LogFollower
from etl.compute.kubernetes.pod_problems import PodProblem, find_problems
from etl.compute.listener import Listener
from tests.helpers.cli import etl
from tests.helpers.kubernetes_api import KubernetesApi, event, kubernetes_api, pod

pytest.importorskip("kr8s", reason="it is in the extra k8s")
httpx = pytest.importorskip("httpx")

FILE = "image: registry.example.com/tokenlake:0.1.0\nworkers: 1\n"
RECIPE = "name: mine\nsource: {path: 's3://b/*.jsonl'}\nlake: s3://b/lake\nstages: [dedup_exact]\n"
NAMES = re.compile("tokenlake.*")
HASH = "6c5d7f8b9"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(waiting, "_ITEMS_PER_SECOND", 1_000_000)
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text(FILE, "utf-8")
    Path("recipe.yaml").write_text(RECIPE, "utf-8")
    with kubernetes_api(tmp_path) as (api, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield api


def add_cluster(api: KubernetesApi, workers: int, run: str | None = None) -> None:
    containers = {"spec": {"containers": [{"image": "registry.example.com/tokenlake:0.1.0"}]}}
    annotations = {} if run is None else {"tokenlake/run": run}
    metadata = {"name": "tokenlake", "annotations": annotations}
    cluster = api.add("daskclusters", {"metadata": metadata, "spec": {"scheduler": containers}})
    owner = {"uid": cluster["metadata"]["uid"]}
    for number in range(workers):
        item = pod(f"tokenlake-default-worker-{number:04x}-{HASH}-x2x9k", "worker")
        item["status"]["containerStatuses"] = [{"state": {"running": {}}}]
        item["metadata"]["labels"]["dask.org/workergroup-name"] = "tokenlake-default"
        item["metadata"]["ownerReferences"] = [owner]
        api.add("pods", item)


@pytest.mark.parametrize("expired_pages", [0, 1])
def test_lists_are_read_to_their_end(expired_pages: int, api: KubernetesApi) -> None:
    """A list whose next page has expired is read again."""
    add_cluster(api, 1203)
    api.expired_pages = expired_pages
    result = etl("cluster", "status", "cluster.yaml")
    assert "workers     tokenlake-default: 1,203 ready\n" in result.stdout
    assert api.expired_pages == 0


def problems(pods: list[Any], events: list[Any]) -> list[PodProblem]:
    return find_problems(pods, events, names=NAMES, since="")


def refused(number: int) -> dict[str, Any]:
    name = f"tokenlake-default-worker-{number}-{HASH}"
    text = f'pods "{name}-x2x9k" is forbidden: exceeded quota: q, used: pods={number}, limited: 500'
    return event("ReplicaSet", name, "FailedCreate", f"Error creating: {text}")


def test_a_cause_is_one_problem_with_an_example() -> None:
    (problem,) = problems([], [refused(number) for number in range(487)])
    assert problem.what.startswith(
        "487 pods cannot be created, for example tokenlake-default-worker-0-6c5d7f8b9 (Error "
    )
    assert len(problem.names) == 487
    (one,) = problems([], [refused(7), refused(7)])
    assert one.what.startswith("no pod of tokenlake-default-worker-7-6c5d7f8b9 can be created")


def test_different_causes_are_different_problems() -> None:
    messages = ['secret "tls-1" not found', *['secret "tls-2" not found'] * 2]
    events = [
        event("Pod", f"tokenlake-default-worker-{number}", "FailedMount", message)
        for number, message in enumerate(messages)
    ]
    assert [len(problem.names) for problem in problems([], events)] == [2, 1]


def test_an_event_about_a_pod_that_was_created_later_is_not_a_problem() -> None:
    created = pod(f"tokenlake-default-worker-7-{HASH}-abcde", "worker", phase="Pending")
    assert [each.names for each in problems([created], [refused(7), refused(8)])] == [
        (f"tokenlake-default-worker-8-{HASH}",)
    ]


def test_numbers_that_change_are_reported_every_ten_seconds() -> None:
    lines: list[str] = []

    class Lines(Listener):
        def note(self, text: str) -> None:
            lines.append(text)

    report = waiting.Waiting(Lines())
    for ready in range(200):
        report.report(f"workers {ready} of 1,000 ready", f"{1000 - ready} pods have no node yet")
    report.report("workers 200 of 1,000 ready", "800 pods cannot be created")
    assert len(lines) == 2


def test_lines_of_several_pods_name_their_pod(api: KubernetesApi) -> None:
    add_cluster(api, 40)
    for name in api.names("pods"):
        api.logs[name] = f"INFO of {name}\nERROR of {name}\n"
    result = etl("logs", "cluster.yaml", "--of", "worker", "--grep", "ERROR")
    lines = result.stdout.splitlines()
    assert len(lines) == 40
    first = f"tokenlake-default-worker-0000-{HASH}-x2x9k"
    assert lines[0] == f"default-worker-0000  ERROR of {first}"
    for name in (first, "tokenlake-default-worker-0000", "default-worker-0000"):
        result = etl("logs", "cluster.yaml", "--of", name, "--grep", "ERROR")
        assert result.stdout == f"ERROR of {first}\n"
    add_cluster(api, 60)
    result = etl("logs", "cluster.yaml", "--of", "worker", "--follow")
    assert "60 logs cannot be followed at once, at most 50 can" in result.stderr


def test_previous_logs_are_of_containers_that_have_ended(api: KubernetesApi) -> None:
    add_cluster(api, 3)
    first, restarted, _ = api.names("pods")
    api.logs = dict.fromkeys(api.names("pods"), "now\n")
    result = etl("logs", "cluster.yaml", "--of", "worker", "--previous")
    assert "no container of worker has ended" in result.stderr
    api.item("pods", restarted)["status"]["containerStatuses"][0]["restartCount"] = 1
    api.logs[f"{restarted} before"] = "killed\n"
    result = etl("logs", "cluster.yaml", "--of", "worker", "--previous")
    assert result.stdout == "default-worker-0001  killed\n"
    result = etl("logs", "cluster.yaml", "--of", first, "--previous", "--follow")
    assert result.exit_code == 2
    assert "cannot be followed" in result.stderr


def test_a_log_continues_after_an_outage() -> None:
    stamps = ["2026-01-01T00:00:00.1Z", *["2026-01-01T00:00:00.12Z"] * 2, "2026-01-01T00:00:01Z"]
    log = [f"{stamp} line {number}" for number, stamp in enumerate(stamps)]
    opened: list[str] = []

    async def open_log(_pod: str, _container: str | None, since: str) -> AsyncIterator[str]:
        opened.append(since)
        for line in log[: 3 if len(opened) == 1 else None]:  # the server sends whole seconds
            yield line
        if len(opened) < 3:
            raise httpx.ReadError("the connection is lost")

    async def read() -> list[str]:
        follower = LogFollower(open_log)
        await follower.add({"pod": None})
        lines: list[str] = []
        while follower.is_active:
            with suppress(httpx.ReadError):
                lines += [line for _, line in await follower.read(0.01)]
        return lines

    assert asyncio.run(read()) == [f"line {number}" for number in range(4)]
    assert opened == ["", stamps[1], stamps[3]]


@pytest.mark.parametrize("case", ["of the driver", "of a person"])
def test_a_stopped_driver_leaves_the_cluster_that_it_has_not_created(
    case: str, api: KubernetesApi
) -> None:
    assert etl("submit", "recipe.yaml", "--cluster", "k8s:cluster.yaml").exit_code == 0
    add_cluster(api, 2, "tokenlake-driver" if case == "of the driver" else None)
    result = etl("cluster", "stop", "cluster.yaml")
    assert result.exit_code == 0, result.output
    assert api.names("jobs") == api.names("configmaps") == []
    if case == "of the driver":
        assert "cluster    tokenlake is gone" in result.stderr
        assert api.names("daskclusters") == api.names("pods") == []
    else:
        assert "stays, since the driver has not created it" in result.stderr
        assert api.names("daskclusters") == ["tokenlake"]


@pytest.mark.parametrize(
    "case", ["create configmaps", "patch jobs", "create secrets", "create daskclusters"]
)
def test_a_submission_without_a_permission_creates_nothing(case: str, api: KubernetesApi) -> None:
    verb, _, resource = case.partition(" ")
    is_driver = resource == "daskclusters"
    (api.denied_to_driver if is_driver else api.denied).add((verb, resource))
    result = etl("submit", "recipe.yaml", "--cluster", "k8s:cluster.yaml")
    who = "the account tokenlake-driver has " if is_driver else ""
    assert f"{who}no permission to {verb} {resource}" in result.stderr
    assert not api.objects
