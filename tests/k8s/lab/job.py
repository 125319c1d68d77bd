"""Runs of the driver's Job in a lab: start one, follow it, kill its pods, and clean up."""

import copy
import json
import os
import re
import signal
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.helpers.manifests import build, is_of_dask, of_kind
from tests.k8s.lab.lab import Lab, wait_until

OVERLAY = "k8s/overlays/lab"
WORKERS = "app.kubernetes.io/component=worker"
SCHEDULER = "app.kubernetes.io/component=scheduler"
DRIVER = "job-name=tokenlake-driver"


@dataclass(frozen=True)
class Site:
    """A lab with everything of the overlay that stays between runs."""

    lab: Lab

    @property
    def endpoint(self) -> str:
        """The URL of the S3 server, as this machine reaches it."""
        (service,) = [
            s for s in self.lab.items("services") if s["metadata"]["name"] == "tokenlake-s3"
        ]
        return f"http://{service['spec']['clusterIP']}:8333"

    def store(self) -> dict[str, str]:
        """Return the settings with which this machine uses the S3 server."""
        settings = of_kind(OVERLAY, "Secret")["tokenlake-s3"]
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            **{name: b64decode(value).decode() for name, value in settings["data"].items()},
        }

    def kubeconfig(self, account: str) -> Path:
        """Return the file with which a service account reaches the API server."""
        name = "kubernetes.io/service-account.name"

        def secrets() -> list[dict[str, Any]]:
            found = self.lab.items("secrets")
            return [s for s in found if s["metadata"].get("annotations", {}).get(name) == account]

        wait_until(secrets, seconds=60, what=f"{account} has a token")
        token = b64decode(secrets()[0]["data"]["token"]).decode()
        return self.lab.plane.kubeconfig(account, token, "tokenlake")

    def new_account(self, name: str, *, role: str | None) -> Path:
        """Create a service account with a role, in place of a person; return its kubeconfig."""
        self.lab.kubectl("create", "serviceaccount", name)
        if role is not None:
            subject = f"--serviceaccount=tokenlake:{name}"
            self.lab.kubectl("create", "rolebinding", name, f"--role={role}", subject)
        return self.kubeconfig(name)

    def inventory(self) -> set[tuple[str, str]]:
        """Return all objects of the namespace by kind and name, without events."""
        kinds = self.lab.kubectl(
            *("api-resources", "--namespaced", "--verbs=list", "--output=name")
        ).split()
        listed = [kind for kind in kinds if not kind.startswith("events")]
        output = self.lab.kubectl("get", ",".join(listed), "--output=json")
        return {(item["kind"], item["metadata"]["name"]) for item in json.loads(output)["items"]}

    @contextmanager
    def run(self, recipe: Path, settings: Mapping[str, str], *, workers: int) -> Iterator[None]:
        """Start a run of the recipe file of a folder; delete it at the end with all its pods.

        The objects are as in the overlay, with other settings and another number of workers.
        """
        files = {path.name: path.read_text("utf-8") for path in recipe.parent.iterdir()}
        values = of_kind(OVERLAY, "ConfigMap")["tokenlake-settings"]["data"]
        values = values | {"TOKENLAKE_RECIPE": f"/recipe/{recipe.name}", **settings}
        costly = copy.deepcopy([item for item in build(OVERLAY) if is_costly(item)])
        for item in costly:
            if item["kind"] == "DaskCluster":
                item["spec"]["worker"]["replicas"] = workers
        self._apply(
            _config_map("tokenlake-recipe", files), _config_map("tokenlake-settings", values)
        )
        try:
            self._apply(*costly)
            yield
        finally:
            self.delete()

    def delete(self) -> None:
        """Delete what costs money, and wait until its pods have ended."""
        self.lab.kubectl("delete", "--kustomize", "k8s/cluster", "--ignore-not-found")
        wait_until(
            lambda: not self.lab.names("pods", "app.kubernetes.io/name=tokenlake"),
            seconds=60,
            what="all pods end",
        )

    def _apply(self, *items: Mapping[str, Any]) -> None:
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        self.lab.kubectl(
            *("apply", "--server-side", "--force-conflicts", "--filename=-"), stdin=content
        )

    def wait_for_end(self) -> None:
        """Wait until the Job is complete; show the driver's output if it is not."""

        def ended() -> bool:
            (job,) = self.lab.items("jobs")
            conditions = [each["type"] for each in job.get("status", {}).get("conditions", [])]
            assert "Failed" not in conditions, self.driver_log()
            return "Complete" in conditions

        wait_until(ended, seconds=400, what="the Job is complete")

    def is_running(self) -> bool:
        """Return whether the Job has not ended yet."""
        (job,) = self.lab.items("jobs")
        return not job.get("status", {}).get("conditions")

    def driver_log(self) -> str:
        """Return the output of all drivers that still exist."""
        return self.lab.try_kubectl("logs", f"--selector={DRIVER}", "--tail=-1").stdout

    def wait_for_splits(self, number: int) -> None:
        """Wait until a driver has reported that this many splits of documents are done."""

        def done() -> bool:
            assert self.is_running(), self.driver_log()
            counts = re.findall(r"^documents +(\d+)/", self.driver_log(), re.MULTILINE)
            return any(int(count) >= number for count in counts)

        wait_until(done, seconds=200, what=f"{number} splits are done")

    def lose(self, pod: str) -> None:
        """Delete a pod at once, as if its node were lost."""
        self.lab.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    def crash(self, pod: str) -> None:
        """Kill the processes of a pod, as the kernel does when memory runs out."""
        found = [p for p in psutil.process_iter(["environ"]) if _is_of(p, pod)]
        assert found, pod
        for process in found:
            with suppress(ProcessLookupError):  # it may end with its parent
                os.kill(process.pid, signal.SIGKILL)


def is_costly(item: Mapping[str, Any]) -> bool:
    """Return whether an object is one of those that `kubectl delete -k k8s/cluster` deletes."""
    return is_of_dask(dict(item)) or item["kind"] == "Job"


def _is_of(process: psutil.Process, pod: str) -> bool:
    return bool((process.info["environ"] or {}).get("HOSTNAME") == pod)


def _config_map(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    labels = {"app.kubernetes.io/part-of": "tokenlake"}
    metadata = {"name": name, "namespace": "tokenlake", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def use_store(site: Site, patch: pytest.MonkeyPatch) -> None:
    """Configure this process for the S3 server of the lab."""
    for name, value in site.store().items():
        patch.setenv(name, value)
