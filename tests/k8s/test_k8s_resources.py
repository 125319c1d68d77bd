"""The resources of a cluster file are valid, and differ from the shipped manifests in its values only."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from etl.compute.certificates import make_certificates
from etl.compute.cluster_settings import BYTES_PER_WORKER
from etl.compute.kubernetes import resources
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.compute.kubernetes.pod_group import Toleration, TopologySpread, WorkerGroup
from etl.compute.slurm import SlurmFile
from etl.errors import ClusterError
from etl.job.prices import SHIPPED, Prices
from tests.helpers.manifests import ROOT, pods_of, validate

FILES: dict[str, dict[str, Any]] = {
    "smallest": {"image": "registry.example.com/tokenlake:0.1.0"},
    "everything": {
        "image": "registry.example.com/tokenlake:0.1.0",
        "namespace": "research",
        "context": "eks",
        "name": "crawl",
        "workers": 3,
        "max_workers": 500,
        "spot": {
            "workers": "auto",
            "node_selector": {"eks.amazonaws.com/capacityType": "SPOT"},
            "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "high_memory": {"workers": 2, "memory": "32Gi"},
        "cpu": "500m",
        "memory": "8Gi",
        "idle_timeout": 600,
        "environment": {"AWS_REGION": "eu-central-1"},
    },
    "every key": yaml.safe_load((ROOT / "k8s/cluster-file.yaml").read_text("utf-8")),
}


def write(path: Path, data: Any) -> Path:
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data), "utf-8")
    return path


@pytest.fixture(params=FILES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> ClusterFile:
    return ClusterFile.load(write(tmp_path / "cluster.yaml", FILES[request.param]))


def of(settings: ClusterFile) -> list[dict[str, Any]]:
    sizes = settings.sizes(None)
    groups = [resources.worker_group(settings, g, n) for g, n in sizes.items() if g != "default"]
    files = resources.recipe_map(settings, {"cluster.yaml": b"image: x", "model": b"\xff"}, "one")
    name = files["metadata"]["name"]
    job = resources.driver_job(settings, ["run", "demo"], {"cluster.yaml": "cluster.yaml"}, name)
    return [resources.dask_cluster(settings, sizes["default"]), *groups, job, files]


def test_all_resources_are_valid(settings: ClusterFile, tmp_path: Path) -> None:
    make_certificates(tmp_path / "certificates")
    for item in [*of(settings), resources.tls_secret(settings, tmp_path / "certificates")]:
        validate(item)
        assert item["metadata"]["namespace"] == settings.namespace
        assert item["metadata"]["labels"]["app.kubernetes.io/part-of"] == "tokenlake"


def test_the_values_of_the_file_are_in_the_resources(tmp_path: Path) -> None:
    settings = ClusterFile.load(write(tmp_path / "cluster.yaml", FILES["everything"]))
    cluster, spot, high_memory, job, files = of(settings)
    names = [item["metadata"]["name"] for item in (cluster, spot, high_memory, job)]
    assert names == ["crawl", "crawl-spot", "crawl-high-memory", "crawl-driver"]
    assert files["metadata"]["name"].startswith("crawl-recipe-")
    assert cluster["spec"]["idleTimeout"] == 600
    selector = cluster["spec"]["scheduler"]["service"]["selector"]
    assert selector["dask.org/cluster-name"] == "crawl"
    sizes = [item["spec"]["worker"]["replicas"] for item in (cluster, spot, high_memory)]
    assert sizes == [3, 1, 2]
    for item, memory in ((cluster, "8Gi"), (spot, "8Gi"), (high_memory, "32Gi")):
        worker = item["spec"]["worker"]["spec"]["containers"][0]
        assert worker["resources"]["requests"]["memory"] == memory
        assert worker["resources"]["limits"] == {"memory": memory}
        assert worker["resources"]["requests"]["cpu"] == "500m"
        assert "tls://crawl-scheduler:8786" in worker["args"]
        assert worker["env"] == [{"name": "AWS_REGION", "value": "eu-central-1"}]
    pod = spot["spec"]["worker"]["spec"]
    assert pod["nodeSelector"] == FILES["everything"]["spot"]["node_selector"]
    assert pod["tolerations"] == FILES["everything"]["spot"]["tolerations"]
    assert high_memory["spec"]["worker"]["spec"]["nodeSelector"] == {"pool": "high-memory"}
    driver = job["spec"]["template"]["spec"]["containers"][0]
    environment = {each["name"]: each["value"] for each in driver["env"]}
    assert environment == {
        "AWS_REGION": "eu-central-1",
        "TOKENLAKE_TLS": "/etc/tokenlake/tls",
        "TOKENLAKE_CLUSTER": "k8s:/recipe/cluster.yaml",
        "TOKENLAKE_RUN": "crawl-driver",
    }
    assert driver["args"] == ["etl", "run", "demo"]
    assert files["data"] == {"cluster.yaml": "image: x"}
    assert files["binaryData"] == {"model": "/w=="}


def test_nothing_else_differs_from_the_manifests() -> None:
    """A field that is changed in k8s/cluster is changed for cluster files, too."""
    none: dict[str, Any] = {"workers": 1}
    settings = ClusterFile(image="tokenlake", spot=none, high_memory=none)
    path = ROOT / "k8s/cluster"
    shipped = [
        *yaml.safe_load((path / "dask.yaml").read_text("utf-8"))["items"],
        yaml.safe_load((path / "driver.yaml").read_text("utf-8")),
    ]
    *built, job = (
        resources.dask_cluster(settings, 4),
        resources.worker_group(settings, "spot", 0),
        resources.worker_group(settings, "high-memory", 0),
        resources.driver_job(settings, [], {}, "recipe"),
    )
    for item, manifest in zip(built, shipped, strict=False):
        worker = item["spec"]["worker"]["spec"]["containers"][0]
        assert worker.pop("env") == []
        assert item["spec"] == json.loads(json.dumps(manifest["spec"]))
    pod, manifest = job["spec"]["template"]["spec"], shipped[-1]["spec"]["template"]["spec"]
    for each in (pod, manifest):
        del each["containers"][0]["args"], each["containers"][0]["env"]
        (recipe,) = (volume for volume in each["volumes"] if volume["name"] == "recipe")
        each["volumes"].remove(recipe)
    assert pod == manifest


def keys_of(data: Any, prefix: str = "") -> set[str]:
    """Return the dotted keys of a file; those of labels and variables belong to the user."""
    if isinstance(data, list):
        return {key for item in data for key in keys_of(item, prefix)}
    found = {f"{prefix}{key}" for key in data}
    for key, value in data.items():
        if isinstance(value, dict | list) and key not in ("environment", *OPEN):
            found |= keys_of(value, f"{prefix}{key}.") if is_nested(value) else set()
    return found


OPEN = ("node_selector", "labels", "annotations")


def is_nested(value: Any) -> bool:
    return isinstance(value, dict) or all(isinstance(each, dict) for each in value)


def test_the_example_has_every_key() -> None:
    found = keys_of(FILES["every key"])
    assert {key for key in found if "." not in key} == {*ClusterFile.model_fields}
    of_groups = {key.partition(".")[2] for key in found if "." in key}
    nested = {
        *(f"tolerations.{name}" for name in Toleration.model_fields),
        *(f"topology_spread.{name}" for name in TopologySpread.model_fields),
    }
    assert of_groups == {*WorkerGroup.model_fields} | nested


SIZED = {
    "cpu": "1500m",
    "memory": "6Gi",
    "ephemeral_storage": "33Gi",
    "node_selector": {"pool": "mine"},
    "tolerations": [{"operator": "Exists", "effect": "NoExecute", "toleration_seconds": 9}],
    "topology_spread": [{"topology_key": "zone", "when_unsatisfiable": "DoNotSchedule"}],
    "priority_class": "high",
    "image_pull_secrets": ["one", "two"],
    "labels": {"example.com/team": "data"},
    "annotations": {"example.com/owner": "me"},
}
LABELS = {
    "scheduler": {"dask.org/cluster-name": "tokenlake", "dask.org/component": "scheduler"},
    "driver": {"app.kubernetes.io/component": "driver"},
    **{
        group: {
            "dask.org/cluster-name": "tokenlake",
            "dask.org/workergroup-name": f"tokenlake-{group.replace('_', '-')}",
        }
        for group in ("default", "spot", "high_memory")
    },
}
"""The labels by which pods of a group are counted for their spread, at least."""


def templates(settings: ClusterFile) -> dict[str, dict[str, Any]]:
    """Return the templates of the pods of each group."""
    cluster, *groups, job, _ = of(settings)
    workers = (each["spec"]["worker"] for each in groups)
    return {
        "scheduler": cluster["spec"]["scheduler"],
        "default": cluster["spec"]["worker"],
        **dict(zip(("spot", "high_memory"), workers, strict=True)),
        "driver": job["spec"]["template"],
    }


@pytest.mark.parametrize("group", LABELS)
def test_a_group_has_its_own_size_and_place_and_no_other_group_changes(group: str) -> None:
    both: dict[str, Any] = {"spot": {"workers": 1}, "high_memory": {"workers": 1}}
    before = templates(ClusterFile(image="x", workers=1, **both))
    own = {group: SIZED | both.get(group, {})}
    after = templates(ClusterFile(image="x", workers=1, **(both | own)))
    changed = after.pop(group)
    assert after == {name: each for name, each in before.items() if name != group}
    pod = changed["spec"]
    resources_ = pod["containers"][0]["resources"]
    assert resources_["requests"] == {"cpu": "1500m", "memory": "6Gi", "ephemeral-storage": "33Gi"}
    assert resources_["limits"] == {"memory": "6Gi"}
    assert [v["emptyDir"] for v in pod["volumes"] if "emptyDir" in v] == [{"sizeLimit": "33Gi"}]
    assert pod["nodeSelector"] == {"pool": "mine"}
    assert pod["tolerations"] == [
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}
    ]
    (spread,) = pod["topologySpreadConstraints"]
    selector = spread.pop("labelSelector")["matchLabels"]
    assert selector.items() >= LABELS[group].items()
    assert spread == {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    assert pod["priorityClassName"] == "high"
    assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert changed["metadata"]["labels"].items() > {"example.com/team": "data"}.items()
    assert changed["metadata"]["labels"].items() >= before[group]["metadata"]["labels"].items()
    assert changed["metadata"]["annotations"]["example.com/owner"] == "me"


def test_volumes_are_as_large_as_the_requested_disk(settings: ClusterFile) -> None:
    for item in of(settings):
        for pod in pods_of(item):
            (container,) = pod.spec["containers"]
            disk = container["resources"]["requests"]["ephemeral-storage"]
            sizes = [each["emptyDir"] for each in pod.spec["volumes"] if "emptyDir" in each]
            assert sizes == [{"sizeLimit": disk}], pod.name


def test_images_are_those_of_the_file(settings: ClusterFile) -> None:
    images = {
        container["image"]
        for item in of(settings)
        for pod in pods_of(item)
        for container in pod.spec["containers"]
    }
    assert images == {settings.image}


IMAGE = "image: x\n"
WRONG = {
    "unknown key": (f"{IMAGE}workrs: 3", "2: unknown key 'workrs'", "did you mean 'workers'?"),
    "unknown key of a group": (
        f"{IMAGE}spot: {{workers: 2, node_selecter: {{a: b}}}}",
        "2: unknown key 'spot.node_selecter'",
        "did you mean 'node_selector'?",
    ),
    "unit": (f"{IMAGE}memory: 4GB", "2: memory: '4GB' is not a quantity of Kubernetes", ""),
    "bytes": (f"{IMAGE}memory: 4", "2: memory: '4' is 4 bytes; at least 512Mi", ""),
    "no CPU": (f"{IMAGE}driver: {{cpu: 0}}", "2: driver.cpu: '0' is less than 1m", ""),
    "small disk": (
        f"{IMAGE}default: {{ephemeral_storage: 20}}",
        "2: default.ephemeral_storage: '20' is 20 bytes; at least 100Mi, e.g. 20Gi",
        "",
    ),
    "key of a label": (
        f"{IMAGE}driver: {{labels: {{a b: x}}}}",
        "2: driver.labels: 'a b' is not a key of Kubernetes",
        "",
    ),
    "value of a label": (
        f"{IMAGE}scheduler: {{node_selector: {{pool: a b}}}}",
        "2: scheduler.node_selector: 'a b' is not a value of Kubernetes' labels",
        "",
    ),
    "label of the operator": (
        f"{IMAGE}driver: {{labels: {{dask.org/component: x}}}}",
        "2: driver.labels: dask.org/component is set by Tokenlake",
        "",
    ),
    "toleration": (
        f"{IMAGE}spot: {{workers: 1, tolerations: [{{key: a, operator: Exists, value: b}}]}}",
        "2: spot.tolerations: with the operator Exists there is no value, not 'b'",
        "",
    ),
    "key of a toleration": (
        f"{IMAGE}spot: {{workers: 1, tolerations: [{{key: a, effct: NoExecute}}]}}",
        "2: unknown key 'spot.tolerations.effct'",
        "did you mean 'effect'?",
    ),
    "spread": (
        f"{IMAGE}default: {{topology_spread: [{{topology_key: zone}}, {{topology_key: zone}}]}}",
        "2: default.topology_spread: zone occurs twice",
        "",
    ),
    "secret of an image": (
        f"{IMAGE}driver: {{image_pull_secrets: [My_Secret]}}",
        "2: driver.image_pull_secrets: 'My_Secret' is not a name of Kubernetes",
        "",
    ),
    "no workers": (f"{IMAGE}workers: 0", "2: workers: input should be greater than", ""),
    "some workers": (f"{IMAGE}workers: some", "2: workers: input should be a valid int", ""),
    "name": (f"{IMAGE}name: My_Cluster", "2: name: string should match pattern", ""),
    "no image": ("workers: 3", "'image' is missing", ""),
    "secret": (
        f"{IMAGE}environment: {{AWS_SECRET_ACCESS_KEY: x}}",
        "2: environment: AWS_SECRET_ACCESS_KEY may hold a secret",
        "",
    ),
    "secret of another name": (
        f"{IMAGE}environment: {{AWS_REGION: x, DATABASE_URL: y}}",
        "2: environment: DATABASE_URL may hold a secret",
        "",
    ),
    "two autos": (f"{IMAGE}spot: {{workers: auto}}", "cannot both be auto", ""),
    "no mapping": ("- image", "must be a mapping", "write at least `image: "),
    "not YAML": ("image: [", "invalid YAML", ""),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_with_its_line(case: str, tmp_path: Path) -> None:
    text, what, hint = WRONG[case]
    path = write(tmp_path / "cluster.yaml", text)
    with pytest.raises(ClusterError) as caught:
        ClusterFile.load(path)
    assert what in str(caught.value)
    assert str(caught.value).startswith(f"cluster file {path}")
    assert hint in str(caught.value.hint)


def test_a_missing_file_is_reported_with_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path / "cluster.yaml", IMAGE)
    with pytest.raises(ClusterError, match=r"cluster file .*/clutser\.yaml: not found") as caught:
        ClusterFile.load(tmp_path / "clutser.yaml")
    assert re.search("did you mean '.*/cluster.yaml'", str(caught.value.hint))


@pytest.mark.parametrize(
    ("workers", "planned_bytes", "size"),
    [
        (7, 10**15, 7),
        ("auto", None, 1),
        ("auto", 10 * BYTES_PER_WORKER, 10),
        ("auto", 10 * BYTES_PER_WORKER + 1, 11),
        ("auto", 10**15, 20),
    ],
)
def test_auto_is_the_number_of_workers_for_the_input(
    workers: Any, planned_bytes: int | None, size: int
) -> None:
    settings = ClusterFile(image="x", max_workers=20).with_workers(workers)
    assert settings.sizes(planned_bytes) == {"default": size}
    spot = ClusterFile(image="x", workers=3, max_workers=20, spot={"workers": "auto"})
    sizes = spot.with_workers(workers).sizes(planned_bytes)
    assert sizes == {"default": 3, "spot": size}, "shuffles run at a fixed size"


def test_files_of_clusters_and_prices_contain_no_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may be another person's: what looks like a variable is text, as in a line of shell."""
    monkeypatch.setenv("GITHUB_PAT", "hunter2")
    cluster = write(tmp_path / "cluster.yaml", "image: host/${GITHUB_PAT}/x\n")
    assert ClusterFile.load(cluster).image == "host/${GITHUB_PAT}/x"
    slurm = write(tmp_path / "slurm.yaml", "partition: p\nsetup: ['export X=${GITHUB_PAT}']\n")
    assert SlurmFile.load(slurm).setup == ("export X=${GITHUB_PAT}",)
    prices = Path(SHIPPED).read_text("utf-8").replace("name: ", "name: ${GITHUB_PAT} ")
    assert Prices.load(write(tmp_path / "prices.yaml", prices)).name.startswith("${GITHUB_PAT} ")
