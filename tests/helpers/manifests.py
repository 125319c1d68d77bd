"""The objects of k8s/, built by kustomize, and the pods that they describe."""

import importlib.util
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.helpers.kubectl import kubectl

ROOT = Path(__file__).parents[2]
KUBERNETES = ("1.31", "1.37")
"""The oldest version for which the manifests are written, and the newest with known schemas."""


class Pod(NamedTuple):
    """A pod that a manifest describes: its name, its labels and its specification."""

    name: str
    labels: dict[str, str]
    spec: dict[str, Any]


@cache
def _text(folder: str) -> str:
    """Return what kustomize prints; skip the test without a kustomize."""
    program = kubectl()
    if program is None:
        pytest.skip("no kubectl with kustomize 5: `make` installs it on Linux on x86-64")
    command = [program, "kustomize", ROOT / folder]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "deprecated" not in result.stderr.lower(), result.stderr
    return result.stdout


def build(folder: str) -> list[dict[str, Any]]:
    """Return the objects that kustomize builds from a folder."""
    return list(yaml.safe_load_all(_text(folder)))


def of_kind(folder: str, *kinds: str) -> dict[str, dict[str, Any]]:
    """Return the objects of some kinds by name."""
    return {o["metadata"]["name"]: o for o in build(folder) if o["kind"] in kinds}


def is_of_dask(item: dict[str, Any]) -> bool:
    """Return whether an object is one of the Dask operator's."""
    return str(item["apiVersion"]).startswith("kubernetes.dask.org/")


def strict(schema: Any) -> Any:
    """Return a schema of a custom resource as a schema that JSON Schema understands, without unknown keys."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    result = {
        key: value if key in ("enum", "required") else strict(value)
        for key, value in schema.items()
    }
    is_open = schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("type") == "object" and "properties" in schema and not is_open:
        result.setdefault("additionalProperties", False)
    return result


@cache
def dask_validators() -> dict[str, Any]:
    """Return a strict validator for each kind of Dask's: the API server drops unknown fields silently."""
    spec = importlib.util.find_spec("dask_kubernetes")
    if spec is None or spec.origin is None:
        pytest.skip("dask-kubernetes is not installed: it holds the schemas of Dask's resources")
    jsonschema = pytest.importorskip("jsonschema")
    chart = Path(spec.origin).parent / "operator/deployment/helm/dask-kubernetes-operator"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    validators = {}
    for kind in ("DaskCluster", "DaskWorkerGroup"):
        text = (chart / "crds" / f"{kind.lower()}.yaml").read_text("utf-8")
        (version,) = yaml.load(text, loader)["spec"]["versions"]
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
        validators[kind] = jsonschema.Draft202012Validator(schema)
    return validators


def pods(folder: str) -> Iterator[Pod]:
    """Yield the pods that Kubernetes and the operator create from the objects of a folder."""
    for item in build(folder):
        yield from pods_of(item)


def pods_of(item: dict[str, Any]) -> Iterator[Pod]:
    """Yield the pods that Kubernetes and the operator create from an object."""
    name, spec = item["metadata"]["name"], item.get("spec", {})
    if item["kind"] in ("Job", "Deployment"):
        template = spec["template"]
        yield Pod(name, template["metadata"]["labels"], template["spec"])
    for role in ("scheduler", "worker") if is_of_dask(item) else ():
        if role in spec:
            part = spec[role]
            labels = item["metadata"]["labels"] | part["metadata"]["labels"]
            yield Pod(f"{name}-{role}", labels, part["spec"])


def validate(item: dict[str, Any]) -> None:
    """Check an object, and the pods that the operator makes of it, with the strictest schemas."""
    validator = pytest.importorskip("kubernetes_validate", reason="it holds Kubernetes' schemas")
    if not is_of_dask(item):
        for version in KUBERNETES:
            validator.validate(item, version, strict=True)
        return
    dask_validators()[item["kind"]].validate(item)
    for pod in pods_of(item):
        metadata = {"name": pod.name, "labels": pod.labels}
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.spec}
        for version in KUBERNETES:
            validator.validate(whole, version, strict=True)


def containers(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the containers of all pods, with their names."""
    for pod in pods(folder):
        for container in [*pod.spec.get("initContainers", []), *pod.spec["containers"]]:
            yield f"{pod.name}/{container['name']}", container
