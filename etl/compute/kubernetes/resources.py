"""Build the resources of a cluster file: the shipped manifests of ``k8s/cluster``, with its values.

The pods are described there and nowhere else; this module only replaces names, images, sizes and nodes.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from etl.compute import certificates
from etl.compute.kubernetes.cluster_file import SCHEME, ClusterFile
from etl.compute.kubernetes.pod_group import PodGroup
from etl.settings_files.settings import Settings
from etl.settings_files.yaml_file import FileKind, YamlFile

Resource = dict[str, Any]

TLS_SECRET: Final = "tokenlake-tls"  # noqa: S105 - a name
TLS_FOLDER: Final = "/etc/tokenlake/tls"
RUN: Final = "tokenlake/run"
"""The annotation of a cluster that a run has created, and whose last user deletes it: the run."""
RUN_VARIABLE: Final = "TOKENLAKE_RUN"
"""The environment variable that names the run of a driver, which may be started several times."""
RECIPE_FOLDER: Final = "/recipe"
CLUSTER_KEY: Final = "cluster.yaml"
_LABELS: Final = {"app.kubernetes.io/name": "tokenlake", "app.kubernetes.io/part-of": "tokenlake"}
_BASE_NAME: Final = "tokenlake"  # of the cluster in the manifests
_SUBMIT_SECONDS: Final = 300  # a submission that is killed halfway ends then


def cluster_labels(settings: ClusterFile, **components: str) -> dict[str, str]:
    """Return the labels that the operator gives to the pods of a cluster."""
    return {"dask.org/cluster-name": settings.name} | {
        f"dask.org/{name}": value for name, value in components.items()
    }


def dask_cluster(settings: ClusterFile, workers: int) -> Resource:
    """Return the DaskCluster with its on-demand workers."""
    (cluster,) = _manifests("dask.yaml", "DaskCluster")
    _name(cluster, settings, settings.name)
    spec = cluster["spec"]
    spec["idleTimeout"] = settings.idle_timeout
    spec["scheduler"]["spec"]["containers"][0]["image"] = settings.image
    service = spec["scheduler"]["service"]
    service["selector"]["dask.org/cluster-name"] = settings.name
    _place(spec["scheduler"], settings.scheduler, cluster_labels(settings, component="scheduler"))
    _fill_worker(spec["worker"], settings, "default", workers)
    return cluster


def worker_group(settings: ClusterFile, group: str, workers: int) -> Resource:
    """Return the DaskWorkerGroup of the workers besides the on-demand ones: spot or high-memory."""
    (resource,) = (
        item
        for item in _manifests("dask.yaml", "DaskWorkerGroup")
        if item["metadata"]["name"] == f"{_BASE_NAME}-{group}"
    )
    _name(resource, settings, f"{settings.name}-{group}")
    resource["spec"]["cluster"] = settings.name
    _fill_worker(resource["spec"]["worker"], settings, group, workers)
    return resource


def driver_job(
    settings: ClusterFile, arguments: Sequence[str], paths: Mapping[str, str], recipe: str
) -> Resource:
    """Return the Job of a driver that runs ``etl`` with arguments.

    ``recipe`` is the ConfigMap of ``recipe_map``, without which the pod does not start; ``paths`` has its
    keys with their paths below ``/recipe``. The Job ends at a deadline that is removed once all of it exists.
    """
    (job,) = _manifests("driver.yaml", "Job")
    _name(job, settings, driver_name(settings))
    job["spec"]["activeDeadlineSeconds"] = _SUBMIT_SECONDS
    template = job["spec"]["template"]
    template["metadata"]["labels"] |= _LABELS
    _place(template, settings.driver, template["metadata"]["labels"])
    pod = template["spec"]
    container = pod["containers"][0]
    container["image"] = settings.image
    container["args"] = ["etl", *arguments]
    environment = {
        item["name"]: item["value"]
        for item in container["env"]
        if item["name"] != "TOKENLAKE_CLUSTER"
    }
    environment |= settings.environment | {
        "TOKENLAKE_CLUSTER": f"{SCHEME}{RECIPE_FOLDER}/{CLUSTER_KEY}",
        RUN_VARIABLE: driver_name(settings),
    }
    container["env"] = _environment(environment)
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "recipe")
    items = [{"key": key, "path": path} for key, path in paths.items()]
    volume["configMap"] = {"name": recipe, "items": items}
    return job


def driver_name(settings: ClusterFile) -> str:
    """Return the name of the Job of the driver."""
    return f"{settings.name}-driver"


def recipe_map(settings: ClusterFile, contents: Mapping[str, bytes], submission: str) -> Resource:
    """Return the ConfigMap of a submitted recipe, with the content of each key.

    Its name is a hash of the content and of what identifies the submission, so that no two share it.
    """
    texts = {key: text for key, content in contents.items() if (text := _text(content)) is not None}
    binary = {key: _base64(content) for key, content in contents.items() if key not in texts}
    hashed = json.dumps([submission, texts, binary], sort_keys=True)
    digest = hashlib.sha256(hashed.encode()).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{settings.name}-recipe-{digest[:10]}",
            "namespace": settings.namespace,
            "labels": dict(_LABELS),
        },
        "immutable": True,
        "data": texts,
        "binaryData": binary,
    }


def owned_by(resource: Resource, job: Resource) -> Resource:
    """Return a resource that Kubernetes deletes with a Job."""
    owner = {key: job[key] for key in ("apiVersion", "kind")}
    owner |= {key: job["metadata"][key] for key in ("name", "uid")}
    return resource | {"metadata": resource["metadata"] | {"ownerReferences": [owner]}}


def tls_secret(settings: ClusterFile, folder: Path) -> Resource:
    """Return the Secret with the certificates that ``make_certificates`` has written to a folder."""
    names = [certificates.AUTHORITY, *(f"{role}.pem" for role in certificates.ROLES)]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": TLS_SECRET,
            "namespace": settings.namespace,
            "labels": dict(_LABELS),
        },
        "data": {name: _base64((folder / name).read_bytes()) for name in names},
    }


def _fill_worker(worker: Resource, settings: ClusterFile, group: str, workers: int) -> None:
    worker["replicas"] = workers
    container = worker["spec"]["containers"][0]
    container["image"] = settings.image
    container["args"] = [
        argument.replace(f"//{_BASE_NAME}-", f"//{settings.name}-")
        for argument in container["args"]
    ]
    container["env"] = _environment(settings.environment)
    labels = {"workergroup-name": f"{settings.name}-{group}"}
    _place(worker, settings.worker_pods(group), cluster_labels(settings, **labels))


def _place(template: Resource, group: PodGroup, labels: Mapping[str, str]) -> None:
    """Set the size and place of the pods of a template, which have some labels.

    What the group does not set is as in the manifest.
    """
    metadata, pod = template["metadata"], template["spec"]
    metadata["labels"] = (group.labels or {}) | metadata["labels"]
    if group.annotations is not None:
        metadata["annotations"] = metadata.get("annotations", {}) | group.annotations
    resources = pod["containers"][0]["resources"]
    sizes = {"cpu": group.cpu, "memory": group.memory, "ephemeral-storage": group.ephemeral_storage}
    resources["requests"] |= {name: size for name, size in sizes.items() if size is not None}
    resources["limits"] |= {"memory": resources["requests"]["memory"]}
    for volume in pod["volumes"]:
        if "emptyDir" in volume:  # its files count as ephemeral storage
            volume["emptyDir"]["sizeLimit"] = resources["requests"]["ephemeral-storage"]
    selector = {"labelSelector": {"matchLabels": dict(labels)}}
    fields = {
        "nodeSelector": group.node_selector,
        "tolerations": _listed(group.tolerations),
        "topologySpreadConstraints": _listed(group.topology_spread, **selector),
        "priorityClassName": group.priority_class,
        "imagePullSecrets": None
        if group.image_pull_secrets is None
        else [{"name": name} for name in group.image_pull_secrets],
    }
    pod |= {name: value for name, value in fields.items() if value is not None}


def _listed(items: Sequence[Settings] | None, **also: Resource) -> list[Resource] | None:
    """Return settings with the names of Kubernetes, such as ``topologyKey``."""
    if items is None:
        return None
    dumps = (item.model_dump(exclude_none=True) for item in items)
    return [{_camel(name): value for name, value in dump.items()} | also for dump in dumps]


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _name(resource: Resource, settings: ClusterFile, name: str) -> None:
    metadata = resource["metadata"]
    metadata |= {"name": name, "namespace": settings.namespace}
    metadata["labels"] = {**metadata.get("labels", {}), **_LABELS}
    metadata.setdefault("annotations", {})


def _environment(variables: Mapping[str, str]) -> list[Resource]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _text(content: bytes) -> str | None:
    """Return content as text; None if it is not."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _manifests(file: str, kind: str) -> Iterable[Resource]:
    """Return copies of the resources of one kind in a shipped manifest."""
    data = _read(file)
    items = data["items"] if data["kind"] == "List" else [data]
    # Aliases of YAML are one object in several places: through JSON, each gets its own.
    return [json.loads(json.dumps(item)) for item in items if item["kind"] == kind]


@cache
def _read(file: str) -> dict[str, Any]:
    with as_file(files("etl") / "k8s" / "cluster" / file) as path:
        return YamlFile.read(path, FileKind(noun="manifest", hint="install Tokenlake again")).data
