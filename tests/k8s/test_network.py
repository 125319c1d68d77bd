"""The network policies of k8s/ allow the connections that a run needs, and no others."""

from typing import Any

import pytest

from tests.helpers.manifests import build, of_kind, pods
from tests.helpers.network_policies import End, connections, is_allowed

PORTS = (53, 80, 443, 988, 6443, 8333, 8786, 8787, 8788, 8789, 8790)
OUTSIDE = {
    "kube-dns": End({"k8s-app": "kube-dns"}, "kube-system"),
    "Service of DNS": End(address="10.96.0.10"),
    "DNS of the node": End(address="169.254.20.10"),
    "API server": End(address="10.0.3.7"),
    "web": End(address="52.216.9.9"),
    "web, IPv6": End(address="2600:1fa0::9"),
    "metadata": End(address="169.254.169.254"),
    "metadata of GKE": End(address="169.254.169.252"),
    "metadata of tasks": End(address="169.254.170.2"),
    "metadata, IPv6": End(address="fd00:ec2::254"),
    "monitoring": End({}, "monitoring"),
    "operator": End({}, "dask-operator"),
    "stranger": End({"app.kubernetes.io/name": "tokenlake"}, "default"),
}
INSIDE = {
    ("driver", "scheduler", 8786),
    ("worker", "scheduler", 8786),
    ("scheduler", "worker", 8788),
    ("scheduler", "worker", 8789),
    ("worker", "other worker", 8788),
    ("worker", "other worker", 8789),
    ("monitoring", "scheduler", 8790),
    ("monitoring", "worker", 8790),
    ("operator", "scheduler", 8787),
}
DNS = {("Service of DNS", 53), ("DNS of the node", 53)} | {
    (name, 53) for name in ("kube-dns", "API server", "monitoring", "operator", "stranger")
}
ADDRESSES = ("API server", "Service of DNS", "web", "web, IPv6")  # neither pods nor metadata


def policies(folder: str) -> list[dict[str, Any]]:
    return list(of_kind(folder, "NetworkPolicy").values())


def ends(folder: str) -> dict[str, End]:
    """Return the pods of an overlay by role, and another worker."""
    labels = {
        pod.labels.get("app.kubernetes.io/component", "store"): pod.labels for pod in pods(folder)
    }
    found = {role: End(each) for role, each in labels.items()}
    return found | {"other worker": found["worker"]}


def left(folder: str, also: list[dict[str, Any]] | None = None) -> dict[str, set[tuple[str, int]]]:
    """Return what each role may connect to, besides its cluster."""
    found = ends(folder)
    allowed = {*connections([*policies(folder), *(also or [])], found, OUTSIDE, PORTS)}
    return {
        role: {(target, port) for source, target, port in allowed if source == role}
        for role in ("driver", "scheduler", "worker")
    }


@pytest.mark.parametrize("folder", ["k8s/overlays/aws", "k8s/overlays/trial"])
def test_pods_are_reached_on_the_ports_of_their_role(folder: str) -> None:
    found = ends(folder)
    targets = {name: end for name, end in found.items() if name != "store"}
    allowed = {*connections(policies(folder), {**found, **OUTSIDE}, targets, PORTS)}
    assert {each for each in allowed if "other worker" not in each} | {
        each for each in allowed if each[:2] == ("worker", "other worker")
    } == INSIDE


def test_what_leaves_the_cluster_on_aws() -> None:
    api = {("API server", 443), ("API server", 6443)}
    store = {(name, 443) for name in ADDRESSES}
    expected = {"driver": DNS | store | api, "scheduler": DNS, "worker": DNS | store}
    assert left("k8s/overlays/aws") == expected


def test_the_trial_reaches_its_own_store_only() -> None:
    api = {(name, port) for name in ADDRESSES for port in (443, 6443)}
    assert left("k8s/overlays/trial") == {"driver": DNS | api, "scheduler": DNS, "worker": DNS}
    found = ends("k8s/overlays/trial")
    store = {*connections(policies("k8s/overlays/trial"), found, {"store": found["store"]}, PORTS)}
    assert {(source, port) for source, _, port in store} == {
        *(("driver", 8333), ("worker", 8333), ("other worker", 8333))
    }


def test_the_metadata_address_is_opened_by_a_component_only() -> None:
    component = build("k8s/components/metadata-address")
    before, after = left("k8s/overlays/aws"), left("k8s/overlays/aws", component)
    opened = {("metadata", 80), ("metadata of GKE", 988)}
    assert {role: after[role] - before[role] for role in after} == {
        "driver": opened,
        "scheduler": set(),
        "worker": opened,
    }


def test_names_are_resolved_over_udp_and_not_by_the_metadata_address() -> None:
    found = policies("k8s/base")
    worker = ends("k8s/overlays/aws")["worker"]
    assert is_allowed(found, worker, OUTSIDE["kube-dns"], 53, "UDP")
    assert not is_allowed(found, worker, OUTSIDE["metadata"], 53, "UDP")
    assert not is_allowed(found, worker, OUTSIDE["web"], 53, "UDP")
