"""The Secret of the certificates: which key a driver has, and what happens when they expire."""

from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
import yaml

import etl
from etl.compute.certificates import ROLES, make_certificates
from etl.compute.cluster import Cluster
from etl.compute.kubernetes import resources, waiting
from etl.compute.kubernetes.cluster_file import ClusterFile
from etl.errors import ClusterError
from etl.job.doctor import Unusable
from tests.helpers.kubernetes_api import KubernetesApi, kubernetes_api
from tests.helpers.kubernetes_operator import operator
from tests.helpers.listeners import Recorder
from tests.helpers.manifests import ROOT

pytest.importorskip("kr8s", reason="it is in the extra k8s")

ADDRESS = "k8s:cluster.yaml"


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.02)
    monkeypatch.chdir(tmp_path)
    Path("cluster.yaml").write_text("image: x\nworkers: 1\n", "utf-8")
    with kubernetes_api(tmp_path) as (api, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield api


def add_secret(api: KubernetesApi, folder: Path, days: int) -> None:
    make_certificates(folder, days=days)
    api.add("secrets", resources.tls_secret(ClusterFile(image="x"), folder))


def test_a_run_and_doctor_warn_a_month_before_the_end(api: KubernetesApi, tmp_path: Path) -> None:
    assert etl.doctor(cluster=ADDRESS).certificates_expire is None, "there is no Secret yet"
    add_secret(api, tmp_path / "certificates", days=12)
    listener = Recorder()
    with operator(api, tmp_path / "tls"), Cluster(ADDRESS).connect(listener=listener):
        pass
    found = etl.doctor(cluster=ADDRESS)
    assert not found.has_problems
    expire = found.certificates_expire
    assert expire is not None
    assert not isinstance(expire, Unusable)
    warning = f"warning: the certificates expire on {expire:%Y-%m-%d}, in 11 days: "
    assert [line for line in listener.lines if line.startswith(warning)]


def test_expired_certificates_are_refused_before_a_cluster_is_created(
    api: KubernetesApi, tmp_path: Path
) -> None:
    add_secret(api, tmp_path / "certificates", days=0)
    with pytest.raises(ClusterError, match="the certificates have expired on") as caught:
        Cluster(ADDRESS).connect().__enter__()
    assert caught.value.where == "Secret tokenlake-tls in namespace tokenlake"
    assert "tokenlake-tls" in str(caught.value.hint)
    assert api.names("daskclusters") == []
    found = etl.doctor(cluster=ADDRESS).certificates_expire
    assert isinstance(found, Unusable)
    assert "have expired" in found.problem


def test_a_driver_connects_with_its_own_key(
    api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the files that its pod mounts, and Dask's settings, which name the files of all roles."""
    settings = ClusterFile(image="x")
    (volume,) = (
        each
        for each in resources.driver_job(settings, [], {}, "recipe")["spec"]["template"]["spec"][
            "volumes"
        ]
        if each["name"] == "tls"
    )
    add_secret(api, tmp_path / "certificates", days=90)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for item in volume["secret"]["items"]:
        content = (tmp_path / "certificates" / item["key"]).read_bytes()
        (mounted / item["path"]).write_bytes(content)
    assert {path.name for path in mounted.iterdir()} == {"ca.pem", "client.pem"}
    monkeypatch.setattr(resources, "TLS_FOLDER", str(mounted))
    text = (ROOT / "k8s/base/dask.yaml").read_text("utf-8")
    tls = yaml.safe_load(text.replace("/etc/tokenlake/tls", str(mounted)))["distributed"]["comm"][
        "tls"
    ]
    of_pod = {
        f"distributed.comm.tls.{role}.{key}": tls[role][key]
        for role in ROLES
        for key in ("cert", "key")
    }
    with (
        operator(api, tmp_path / "tls"),
        dask.config.set(of_pod),
        Cluster(ADDRESS).connect() as client,
        Cluster(client.scheduler.address, tls=str(mounted)).connect() as by_address,
    ):
        assert client.submit(sum, [1, 2]).result() == 3
        assert by_address.submit(sum, [1, 3]).result() == 4
