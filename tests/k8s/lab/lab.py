"""A cluster for tests: the control plane, the stand-in kubelet, and Dask's operator."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.helpers.kubectl import kubectl
from tests.helpers.manifests import ROOT
from tests.k8s.lab.control_plane import ADMIN_TOKEN, ControlPlane, control_plane, missing_programs
from tests.k8s.lab.network import Network, claim_network

_HERE = Path(__file__).parent
_TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount")


def why_not() -> str | None:
    """Return why a lab cannot run here, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "pods run in namespaces of Linux, which need root"
    if missing := missing_programs():
        return f"KUBEBUILDER_ASSETS is not a folder with {missing[0]}: see tests/k8s/lab/README.md"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"the program {missing[0]} is not installed"
    if kubectl() is None:
        return "no kubectl with kustomize 5: `make` installs it on Linux on x86-64"
    if importlib.util.find_spec("dask_kubernetes") is None:
        return "dask-kubernetes is not installed: it holds the operator"
    return None


@dataclass(frozen=True)
class Lab:
    """A running cluster and its administrator."""

    plane: ControlPlane
    network: Network
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig("admin", ADMIN_TOKEN, "tokenlake")

    def kubectl(self, *words: object, stdin: str | None = None) -> str:
        """Run kubectl as the administrator, in the namespace of Tokenlake; return what it prints."""
        result = self.try_kubectl(*words, stdin=stdin)
        assert result.returncode == 0, f"{words}: {result.stderr}"
        return result.stdout

    def try_kubectl(
        self, *words: object, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        program = kubectl()
        assert program is not None
        command = [program, f"--kubeconfig={self.kubeconfig}", *map(str, words)]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)

    def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind in the namespace of Tokenlake."""
        words = ("get", kind, "--output=json", f"--selector={selector}")
        items: list[dict[str, Any]] = json.loads(self.kubectl(*words))["items"]
        return items

    def names(self, kind: str, selector: str = "") -> list[str]:
        return [item["metadata"]["name"] for item in self.items(kind, selector)]


def wait_until(condition: Callable[[], object], *, seconds: float, what: str) -> None:
    """Wait until a condition holds; fail after a time limit that only a hung cluster reaches."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not after {seconds} seconds: {what}"
        time.sleep(0.3)


@contextmanager
def running_lab(folder: Path, *, operator: bool = True) -> Iterator[Lab]:
    """Start a cluster, with Dask's operator or without it, and remove all of it at the end."""
    with (
        claim_network() as network,
        control_plane(folder / "control-plane", network.services) as plane,
        _kubelet(plane, network, folder / "pods"),
    ):
        lab = Lab(plane, network, folder)
        if operator:
            _install_operator(lab)
        yield lab


@contextmanager
def _kubelet(plane: ControlPlane, network: Network, folder: Path) -> Iterator[None]:
    folder.mkdir()
    arguments: list[str | Path] = [
        plane.kubeconfig("kubelet", ADMIN_TOKEN),
        str(network.number),
        plane.kubelet_certificate,
        folder,
    ]
    with (folder.parent / "kubelet.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL"),
                *(sys.executable, "-m", "tests.k8s.lab.kubelet", *arguments),
            ],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()  # its pods end with it


def install_kinds(lab: Lab) -> Path:
    """Install Dask's resources, and return the operator's Helm chart."""
    spec = importlib.util.find_spec("dask_kubernetes")
    assert spec is not None
    assert spec.origin is not None
    chart = Path(spec.origin).parent / "operator/deployment/helm/dask-kubernetes-operator"
    lab.kubectl("apply", "--server-side", "--filename", chart / "crds")
    lab.kubectl("wait", "--for=condition=Established", "crd/daskclusters.kubernetes.dask.org")
    return chart


def _install_operator(lab: Lab) -> None:
    """Install Dask's resources and operator, with the roles of its Helm chart."""
    chart = install_kinds(lab)
    template = (chart / "templates" / "clusterrole.yaml").read_text("utf-8")
    plain = "\n".join(line for line in template.splitlines() if "{{" not in line)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "dask-operator"},
        "rules": yaml.safe_load(plain)["rules"],
    }
    lab.kubectl("apply", "--filename=-", stdin=json.dumps(role))
    lab.kubectl("apply", "--filename", _HERE / "operator.yaml")
    lab.kubectl(
        *("rollout", "status", "deployment/dask-operator", "--namespace=dask-operator"),
        "--timeout=120s",
    )
