"""A cluster of Kubernetes without Dask's operator is refused with what to install."""

from pathlib import Path

import pytest

from etl.compute.cluster import Cluster
from etl.errors import ClusterError
from tests.k8s.lab.lab import ADMIN_TOKEN, running_lab, why_not


def test_the_operator_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    file = tmp_path / "cluster.yaml"
    file.write_text("image: registry.example.com/tokenlake:0.1.0\nnamespace: default\n", "utf-8")
    with running_lab(tmp_path, operator=False) as lab:
        monkeypatch.setenv("KUBECONFIG", str(lab.plane.kubeconfig("admin", ADMIN_TOKEN)))
        with (
            pytest.raises(ClusterError, match="operator") as caught,
            Cluster(address=f"k8s:{file}").connect(),
        ):
            pass
    assert "helm" in str(caught.value.hint)
