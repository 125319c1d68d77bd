"""RBAC denies everything that the roles do not grant."""

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from tests.helpers.manifests import of_kind
from tests.k8s.lab.api import Api
from tests.k8s.lab.job import Site

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
EVERYONE = {  # Kubernetes lets each account ask what it may do
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
}


async def allowed(file: Path, namespace: str) -> set[tuple[str, str, str]]:
    """Ask the API server for each verb of each resource that it knows."""
    api = Api(file)
    slots = asyncio.Semaphore(20)

    async def ask(group: str, resource: str, verb: str) -> bool:
        name, _, subresource = resource.partition("/")
        attributes = {"namespace": namespace, "group": group, "resource": name, "verb": verb}
        body = {"spec": {"resourceAttributes": attributes | {"subresource": subresource}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        async with slots:
            return bool((await api.request("POST", path, body))["status"]["allowed"])

    try:
        groups = (await api.get("/apis"))["groups"]
        paths = {"/api/v1": ""} | {
            f"/apis/{version['groupVersion']}": group["name"]
            for group in groups
            for version in group["versions"]
        }
        resources = {
            (group, resource["name"])
            for path, group in paths.items()
            for resource in (await api.get(path))["resources"]
        }
        assert len(resources) > 80
        questions = [(*pair, verb) for pair, verb in itertools.product(resources, VERBS)]
        answers = await asyncio.gather(*(ask(*question) for question in questions))
        return {question for question, yes in zip(questions, answers, strict=True) if yes}
    finally:
        await api.close()


def granted(role: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in of_kind("k8s/base", "Role")[role]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("role", ["driver", "scheduler", "worker"])
def test_an_account_may_do_what_its_role_grants_and_nothing_else(site: Site, role: str) -> None:
    account = f"tokenlake-{role}"
    file = site.kubeconfig(account)
    rights = asyncio.run(allowed(file, "tokenlake"))
    assert rights - EVERYONE == (granted(account) if role == "driver" else set())
    assert asyncio.run(allowed(file, "default")) - EVERYONE == set()


def test_the_driver_is_refused_pods_and_secrets(site: Site) -> None:
    file = site.kubeconfig("tokenlake-driver")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "intruder"},
        "spec": {"containers": [{"name": "a", "image": "registry.example.com/tokenlake:0.1.0"}]},
    }
    as_driver = (f"--kubeconfig={file}", "--namespace=tokenlake")
    for words, stdin in (
        (("create", "--filename=-"), json.dumps(pod)),
        (("get", "secret", "tokenlake-s3"), None),
        (("delete", "job", "--all"), None),
        (("get", "pods", "--all-namespaces"), None),
    ):
        result = site.lab.try_kubectl(*words, *as_driver, stdin=stdin)
        assert result.returncode != 0
        assert "Forbidden" in result.stderr
        assert "tokenlake-driver" in result.stderr
