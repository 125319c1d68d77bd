"""The manifests of k8s/: every folder builds, is valid by strict schemas, and grants only what is listed."""

import base64
import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from etl.compute.cluster_settings import quantity
from etl.compute.worker_settings import DASK_SETTINGS
from tests.helpers.manifests import (
    KUBERNETES,
    ROOT,
    build,
    containers,
    dask_validators,
    is_of_dask,
    of_kind,
    pods,
)

FOLDERS = sorted(
    str(path.parent.relative_to(ROOT))
    for path in (ROOT / "k8s").rglob("kustomization.yaml")
    if path.parent.parent.name != "components"  # of overlays, see test_network.py
)
OVERLAYS = [folder for folder in FOLDERS if folder.startswith("k8s/overlays/")]
DRIVER = {
    ("kubernetes.dask.org", "daskclusters"): ["get", "list", "create", "patch", "delete"],
    ("kubernetes.dask.org", "daskworkergroups"): ["get", "list", "create", "patch", "delete"],
    ("", "pods"): ["list"],
    ("", "services"): ["list"],
    ("", "events"): ["list"],
    ("apps", "deployments"): ["list"],
    ("apps", "replicasets"): ["list"],
    ("", "pods/log"): ["get"],
    ("batch", "jobs"): ["get"],
}
GRANTS = {
    "tokenlake-driver": DRIVER,
    "tokenlake-user": {
        **DRIVER,
        ("", "pods/portforward"): ["get", "create"],
        ("", "secrets/tokenlake-tls"): ["get"],
        ("", "secrets"): ["create"],
        ("", "configmaps"): ["create"],
        ("batch", "jobs"): ["get", "create", "patch", "delete"],
        ("authorization.k8s.io", "localsubjectaccessreviews"): ["create"],
    },
}
"""All that the roles grant: the verbs for each resource, or for the one of a name."""

SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL", re.IGNORECASE)


@pytest.fixture(scope="module")
def of_dask() -> dict[str, Any]:
    return dask_validators()


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("folder", FOLDERS)
def test_objects_of_kubernetes_are_valid(folder: str, version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="it holds Kubernetes' schemas")
    for item in build(folder):
        if not is_of_dask(item):
            validator.validate(item, version, strict=True)


@pytest.mark.parametrize("folder", FOLDERS)
def test_resources_of_dask_are_valid(folder: str, of_dask: dict[str, Any]) -> None:
    for item in filter(is_of_dask, build(folder)):
        of_dask[item["kind"]].validate(item)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("folder", FOLDERS)
def test_pods_of_the_operator_are_valid(folder: str, version: str) -> None:
    """The schemas of Dask's resources know fewer rules than the schemas of Kubernetes."""
    validator = pytest.importorskip("kubernetes_validate", reason="it holds Kubernetes' schemas")
    for pod in pods(folder):
        metadata = {"name": pod.name, "labels": pod.labels}
        item = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.spec}
        validator.validate(item, version, strict=True)


def test_a_field_that_the_schemas_do_not_know_is_found(of_dask: dict[str, Any]) -> None:
    cluster = copy.deepcopy(of_kind("k8s/cluster", "DaskCluster")["tokenlake"])
    cluster["spec"]["worker"]["spec"]["containers"][0]["resoures"] = {}
    assert "'resoures' was unexpected" in str(next(of_dask["DaskCluster"].iter_errors(cluster)))


@pytest.mark.parametrize("folder", FOLDERS)
def test_everything_is_in_one_namespace_and_labelled(folder: str) -> None:
    for item in build(folder):
        metadata = item["metadata"]
        if item["kind"] != "Namespace":
            assert metadata["namespace"] == "tokenlake", metadata["name"]
        assert metadata["labels"]["app.kubernetes.io/part-of"] == "tokenlake", metadata["name"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_roles_grant_exactly_what_is_listed(folder: str) -> None:
    roles = of_kind(folder, "Role")
    for name, role in roles.items():
        rules = {
            (group, "/".join([resource, *rule.get("resourceNames", [])])): rule["verbs"]
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        assert rules == GRANTS[name]
        assert len(rules) == sum(len(rule["resources"]) for rule in role["rules"])
    assert folder == "k8s/cluster" or roles.keys() == GRANTS.keys()
    assert not of_kind(folder, "ClusterRole", "ClusterRoleBinding")


@pytest.mark.parametrize("folder", FOLDERS)
def test_only_the_driver_gets_a_token_and_its_role(folder: str) -> None:
    accounts = of_kind(folder, "ServiceAccount")
    assert [name for name, item in accounts.items() if item["automountServiceAccountToken"]] == [
        "tokenlake-driver"
    ] * bool(accounts)
    bound = {
        (binding["roleRef"]["name"], subject["kind"], subject["name"])
        for binding in of_kind(folder, "RoleBinding").values()
        for subject in binding["subjects"]
        if subject["kind"] != "Group"
    }
    driver = ("tokenlake-driver", "ServiceAccount", "tokenlake-driver")
    assert bound == ({driver} if accounts else set())
    for pod in pods(folder):
        account = pod.spec.get("serviceAccountName")
        if account is None:
            assert pod.spec["automountServiceAccountToken"] is False, pod.name
        else:
            assert account == f"tokenlake-{pod.labels['app.kubernetes.io/component']}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_pods_are_restricted(folder: str) -> None:
    """By the profile `restricted` of the Pod Security Standards, and with a read-only root."""
    for pod in pods(folder):
        context = pod.spec["securityContext"]
        assert context["runAsNonRoot"] is True, pod.name
        assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] == 1000
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, pod.name
        assert not pod.spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}, pod.name
        allowed = {"emptyDir", "configMap", "secret"}
        kinds = {kind for volume in pod.spec["volumes"] for kind in volume if kind != "name"}
        assert kinds <= allowed, pod.name
        assert pod.spec["enableServiceLinks"] is False, pod.name  # TOKENLAKE_* are settings
    for name, container in containers(folder):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name


@pytest.mark.parametrize("folder", FOLDERS)
def test_containers_request_what_they_use(folder: str) -> None:
    for name, container in containers(folder):
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys(), name
        assert resources["limits"].keys() == {"memory"}, name  # a CPU limit would only slow it down
        assert not container["image"].endswith(":latest"), name


@pytest.mark.parametrize("folder", FOLDERS)
def test_volumes_are_as_large_as_the_requested_disk(folder: str) -> None:
    for pod in pods(folder):
        sizes = [
            each["emptyDir"]["sizeLimit"] for each in pod.spec["volumes"] if "emptyDir" in each
        ]
        requests = [each["resources"]["requests"] for each in pod.spec["containers"]]
        requested = sum(quantity(each["ephemeral-storage"]) for each in requests)
        assert sum(map(quantity, sizes)) == requested, pod.name


@pytest.mark.parametrize("folder", OVERLAYS)
def test_images_have_a_version(folder: str) -> None:
    assert all(":" in container["image"] for _, container in containers(folder))


@pytest.mark.parametrize("folder", FOLDERS)
def test_secrets_are_in_secrets_only(folder: str) -> None:
    secrets = {
        base64.b64decode(value).decode()
        for item in of_kind(folder, "Secret").values()
        for value in item["data"].values()
    }
    for item in build(folder):
        if item["kind"] == "Secret":
            continue
        words = set(re.findall(r"[\w-]+", json.dumps(item.get("spec", item.get("data", {})))))
        assert not words & secrets, item["metadata"]["name"]
    for name, container in containers(folder):
        literal = {env["name"] for env in container.get("env", []) if "value" in env}
        assert not [env for env in literal if SECRET_NAME.search(env.removeprefix("TOKENLAKE_"))], (
            name
        )
    for item in of_kind(folder, "ConfigMap").values():
        assert not [k for k in item["data"] if SECRET_NAME.search(k.removeprefix("TOKENLAKE_"))]


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f != "k8s/base"])
def test_each_role_sees_only_its_own_certificate(folder: str) -> None:
    for pod in pods(folder):
        role = pod.labels.get("app.kubernetes.io/component")
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        if role is None:  # the S3 server
            assert "tls" not in volumes
            continue
        secret = volumes["tls"]["secret"]
        assert secret["secretName"] == "tokenlake-tls"
        assert secret["defaultMode"] == 0o440
        own = "client" if role == "driver" else role
        assert secret["items"] == [{"key": name, "path": name} for name in ("ca.pem", f"{own}.pem")]
        (container,) = pod.spec["containers"]
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert mounts["tls"] == {"name": "tls", "mountPath": "/etc/tokenlake/tls", "readOnly": True}


def test_the_settings_of_dask_are_those_of_other_clusters() -> None:
    settings = yaml.safe_load((ROOT / "k8s/base/dask.yaml").read_text("utf-8"))

    def value(dotted: str) -> Any:
        found = settings
        for key in dotted.split("."):
            found = found[key]
        return found

    assert {key: value(key) for key in DASK_SETTINGS} == DASK_SETTINGS


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f != "k8s/base"])
def test_worker_groups_differ_only_in_size_and_place(folder: str) -> None:
    groups = of_kind(folder, "DaskWorkerGroup")
    assert groups.keys() == {"tokenlake-spot", "tokenlake-high-memory"}
    (cluster,) = of_kind(folder, "DaskCluster").values()
    default = cluster["spec"]["worker"]
    for group in groups.values():
        assert group["spec"]["cluster"] == cluster["metadata"]["name"] == "tokenlake"
        worker = copy.deepcopy(group["spec"]["worker"])
        assert worker["metadata"] == default["metadata"]
        for key in ("nodeSelector", "tolerations"):
            assert worker["spec"].pop(key), key
        worker["spec"]["containers"][0]["resources"] = default["spec"]["containers"][0]["resources"]
        worker["spec"]["volumes"][0] = default["spec"]["volumes"][0]  # /tmp
        assert worker["spec"] == default["spec"]


def test_a_finished_run_with_quarantined_inputs_is_not_retried() -> None:
    from etl.cli.output import QUARANTINED

    job = of_kind("k8s/cluster", "Job")["tokenlake-driver"]["spec"]
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # podFailurePolicy requires it
    (rule,) = [r for r in job["podFailurePolicy"]["rules"] if r["action"] == "FailJob"]
    assert rule["onExitCodes"] == {
        "containerName": job["template"]["spec"]["containers"][0]["name"],
        "operator": "In",
        "values": [2, QUARANTINED],
    }


@pytest.mark.parametrize("folder", OVERLAYS)
def test_the_recipe_of_an_overlay_can_be_loaded(folder: str, tmp_path: Path) -> None:
    from etl.recipe.recipe import Recipe

    maps = of_kind(folder, "ConfigMap")
    recipe = maps["tokenlake-settings"]["data"]["TOKENLAKE_RECIPE"]
    if recipe.startswith("/recipe/"):
        path = tmp_path / Path(recipe).name
        path.write_text(maps["tokenlake-recipe"]["data"][path.name], "utf-8")
        recipe = str(path)
    Recipe.load(recipe)


def test_policies_and_budgets_select_pods_that_exist() -> None:
    labels = [pod.labels for pod in pods("k8s/overlays/trial")]
    for item in of_kind("k8s/overlays/trial", "NetworkPolicy").values():
        selector = item["spec"]["podSelector"].get("matchLabels", {})
        assert any(selector.items() <= pod.items() for pod in labels), item["metadata"]["name"]
    for item in of_kind("k8s/overlays/trial", "PodDisruptionBudget").values():
        selector = item["spec"]["selector"]["matchLabels"]
        assert any(selector.items() <= pod.items() for pod in labels), item["metadata"]["name"]


def test_ports_of_the_policies_are_those_of_the_containers() -> None:
    ports: dict[str, set[int]] = {}
    for pod in pods("k8s/overlays/trial"):
        listed = {p["containerPort"] for c in pod.spec["containers"] for p in c.get("ports", [])}
        name = pod.labels["app.kubernetes.io/name"]
        role = pod.labels.get("app.kubernetes.io/component")
        ports.setdefault("-".join(filter(None, [name, role])), set()).update(listed)
    opened = {
        name: {port["port"] for rule in item["spec"]["ingress"] for port in rule["ports"]}
        for name, item in of_kind("k8s/overlays/trial", "NetworkPolicy").items()
        if "ingress" in item["spec"]
    }
    assert opened == {name: listed for name, listed in ports.items() if listed}


def test_the_lab_has_only_what_kubernetes_1_20_knows() -> None:
    """No schemas of it are installed. policy/v1 came with 1.21, the Job's fields with 1.21, 1.25 and 1.28."""
    items = build("k8s/overlays/lab")
    assert {item["apiVersion"] for item in items} == {
        "v1",
        "apps/v1",
        "batch/v1",
        "kubernetes.dask.org/v1",
        "rbac.authorization.k8s.io/v1",
    }
    job = of_kind("k8s/overlays/lab", "Job")["tokenlake-driver"]["spec"]
    assert not job.keys() & {"podFailurePolicy", "podReplacementPolicy", "ttlSecondsAfterFinished"}
    trial = {(o["kind"], o["metadata"]["name"]) for o in build("k8s/overlays/trial")}
    dropped = trial - {(o["kind"], o["metadata"]["name"]) for o in items}
    assert {kind for kind, _ in dropped} == {"PodDisruptionBudget", "NetworkPolicy"}
