"""The objects of k8s/, built by kustomize, and the pods that they describe."""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.helpers.kubectl import kubectl

ROOT = Path(__file__).parents[2]


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


def pods(folder: str) -> Iterator[Pod]:
    """Yield the pods that Kubernetes and the operator create from the objects of a folder."""
    for item in build(folder):
        name, spec = item["metadata"]["name"], item.get("spec", {})
        if item["kind"] in ("Job", "Deployment"):
            template = spec["template"]
            yield Pod(name, template["metadata"]["labels"], template["spec"])
        for role in ("scheduler", "worker") if is_of_dask(item) else ():
            if role in spec:
                part = spec[role]
                labels = item["metadata"]["labels"] | part["metadata"]["labels"]
                yield Pod(f"{name}-{role}", labels, part["spec"])


def containers(folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the containers of all pods, with their names."""
    for pod in pods(folder):
        for container in [*pod.spec.get("initContainers", []), *pod.spec["containers"]]:
            yield f"{pod.name}/{container['name']}", container
