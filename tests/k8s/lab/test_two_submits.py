"""Submissions at one moment, and submissions that are killed: each driver has its own recipe."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import etl as library
from etl.errors import ClusterError
from tests.helpers.cli import ROOT, etl
from tests.k8s.lab.api import Json
from tests.k8s.lab.job import Site
from tests.k8s.lab.lab import wait_until

CLUSTER = "image: registry.example.com/tokenlake:0.1.0\n"
RECIPE = """
name: {name}
source: {{path: "s3://bucket/{name}/*.jsonl"}}
lake: s3://bucket/{name}
stages: [dedup_exact]
"""
PEOPLE = ("ada", "bob", "cyd")
KILLED = """
import os, sys
import etl
from etl.compute.kubernetes import resources
from etl.compute.kubernetes.requests import Requests

resources._SUBMIT_SECONDS = 3
request, number = Requests.send, int(sys.argv[1])

async def send(self, method, *words, **options):
    global number
    result = await request(self, method, *words, **options)
    number -= method in ("POST", "PATCH")
    if number == 0:
        os._exit(9)
    return result

Requests.send = send
etl.submit("ada.yaml", cluster="k8s:cluster.yaml")
"""


@pytest.fixture
def folder(bare: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "cluster.yaml").write_text(CLUSTER, "utf-8")
    for name in PEOPLE:
        (tmp_path / f"{name}.yaml").write_text(RECIPE.format(name=name), "utf-8")
    person = "two-submits"
    if person not in bare.lab.names("serviceaccounts"):
        bare.new_account(person, role="tokenlake-user")
    monkeypatch.setenv("KUBECONFIG", str(bare.kubeconfig(person)))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    bare.lab.kubectl("delete", "jobs", "--all")
    bare.lab.kubectl("delete", "secret", "tokenlake-tls", "--ignore-not-found")
    wait_until(lambda: recipes(bare) == [], seconds=60, what="the recipe goes with its Job")


def recipes(site: Site) -> list[Json]:
    """Return the ConfigMaps of submitted recipes."""
    return [each for each in site.lab.items("configmaps") if "recipe.yaml" in each["data"]]


def job(site: Site) -> Json:
    (item,) = site.lab.items("jobs")
    return item


def submit_at_once(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Submit several recipes at one moment; return the accepted names, and why the others were refused."""
    accepted: list[str] = []
    refused: list[str] = []
    gate = threading.Barrier(len(names))

    def submit(name: str) -> None:
        gate.wait()
        try:
            library.submit(f"{name}.yaml", cluster="k8s:cluster.yaml")
            accepted.append(name)
        except ClusterError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=submit, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return accepted, refused


def check_driver(site: Site, name: str) -> None:
    """Check that the driver has the recipe of a person, and that nothing of another exists."""
    driver = job(site)
    assert "activeDeadlineSeconds" not in driver["spec"]
    pod = driver["spec"]["template"]["spec"]
    assert f"--lake=s3://bucket/{name}" in pod["containers"][0]["args"]
    (mounted,) = (each["configMap"] for each in pod["volumes"] if each["name"] == "recipe")
    wait_until(lambda: len(recipes(site)) == 1, seconds=60, what="one recipe is left")
    (recipe,) = recipes(site)
    assert mounted["name"] == recipe["metadata"]["name"]
    assert yaml.safe_load(recipe["data"]["recipe.yaml"])["name"] == name
    (owner,) = recipe["metadata"]["ownerReferences"]
    assert owner["uid"] == driver["metadata"]["uid"]


def end(site: Site) -> None:
    """End the driver as its controller does."""
    status = '{"status": {"conditions": [{"type": "Complete", "status": "True"}]}}'
    as_controller = ("--subresource=status", "--type=merge", f"--patch={status}")
    site.lab.kubectl("patch", "job", "tokenlake-driver", *as_controller)


def test_of_submissions_at_one_moment_one_driver_runs_its_own_recipe(
    bare: Site, folder: Path
) -> None:
    """In later rounds, all of them replace the driver that has ended."""
    for _ in range(5):
        accepted, refused = submit_at_once(PEOPLE)
        assert len(accepted) == 1, refused
        assert all("a driver is running" in error for error in refused)
        check_driver(bare, accepted[0])
        end(bare)


@pytest.mark.parametrize("requests", [1, 2, 3])
def test_a_killed_submission_ends_and_can_be_replaced(
    requests: int, bare: Site, folder: Path
) -> None:
    """It is killed after the Job, after the ConfigMap, and after the Secret."""
    command = [sys.executable, "-c", KILLED, str(requests)]
    environment = {"PYTHONPATH": str(ROOT), "KUBECONFIG": str(bare.kubeconfig("two-submits"))}
    killed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == 9, killed.stderr
    driver = job(bare)
    assert len(recipes(bare)) == (requests > 1)

    def deadline() -> bool:
        conditions = job(bare).get("status", {}).get("conditions", [])
        return [each.get("reason") for each in conditions] == ["DeadlineExceeded"]

    wait_until(deadline, seconds=60, what="the Job ends at its deadline")
    wait_until(lambda: not bare.lab.names("pods"), seconds=60, what="its pod ends")
    library.submit("bob.yaml", cluster="k8s:cluster.yaml")
    assert job(bare)["metadata"]["uid"] != driver["metadata"]["uid"]
    check_driver(bare, "bob")


def test_a_refused_submission_leaves_nothing(bare: Site, folder: Path) -> None:
    before = bare.inventory()
    quota = ("create", "quota", "small")
    for limit, what in (("configmaps=0", "configmaps"), ("count/jobs.batch=0", "jobs")):
        bare.lab.kubectl(*quota, f"--hard={limit}")
        wait_until(
            lambda: bare.lab.items("resourcequotas")[0].get("status", {}).get("used"),
            seconds=60,
            what="the quota is known",
        )
        result = etl("submit", "ada.yaml", "--cluster", "k8s:cluster.yaml")
        bare.lab.kubectl("delete", "quota", "small")
        assert result.exit_code == 1
        assert f"the quota does not allow to create {what}" in result.stderr
    bare.lab.kubectl("delete", "rolebinding", "tokenlake-driver")
    try:
        result = etl("submit", "ada.yaml", "--cluster", "k8s:cluster.yaml")
        assert "the account tokenlake-driver has no permission to get daskclusters" in result.stderr
    finally:
        subject = "--serviceaccount=tokenlake:tokenlake-driver"
        role = ("create", "rolebinding", "tokenlake-driver", "--role=tokenlake-driver")
        bare.lab.kubectl(*role, subject)
    wait_until(lambda: bare.inventory() == before, seconds=60, what="nothing is left")
