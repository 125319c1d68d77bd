"""`etl doctor`: this machine, a store that works or does not, and a cluster."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

import etl
from etl.compute.certificates import make_certificates
from etl.job.doctor import StoreCheck, Unusable
from etl.kernels.compile_clock import NUM_KERNELS
from tests.helpers.cli import etl as run_etl
from tests.helpers.paths import NewPlace


def test_a_store_that_works_is_left_as_it_was(new_place: NewPlace) -> None:
    folder: UPath = new_place("doctor") / "lake"
    found = etl.doctor(str(folder))
    assert isinstance(found.store, StoreCheck)
    assert abs(found.store.clock_ahead_seconds) < 60
    # Some stores keep empty folders.
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert folder.protocol == "s3" or not folder.exists()
    assert not found.has_problems


def test_the_page_names_what_a_bug_report_needs(tmp_path: Path) -> None:
    result = run_etl("doctor", tmp_path)
    assert result.exit_code == 0, result.output
    labels = [line.split()[0] for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert list(dict.fromkeys(labels)) == [
        "tokenlake", "libraries", "extras", "processor", "memory", "disk", "kernels", "store",
    ]  # fmt: skip
    found = json.loads(run_etl("doctor", "--json").stdout)
    assert found["versions"]["pyarrow"]
    assert found["extras"]["train"] == []
    lacks = ["gcsfs"] if find_spec("gcsfs") is None else []
    assert found["extras"]["gs"] == lacks, "the requirement names no version"
    assert sum(map(len, found["kernels"].values())) + found["missing_kernels"] >= NUM_KERNELS
    assert (found["store"], found["cluster"]) == (None, None)


def test_a_folder_that_cannot_be_written_and_a_scheduler_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run_etl("doctor", tmp_path / "file" / "lake", "--cluster", "k8s:none.yaml")
    assert result.exit_code == 1
    store, hint, cluster, *_ = result.stdout.partition("store ")[2].splitlines()
    assert "cannot be written" in store
    assert "hint: check the permissions" in hint
    assert "none.yaml" in cluster
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("days", "line"),
    [
        (90, "tls         the certificates expire on "),
        (20, "tls         the certificates expire on "),
        (0, "tls         error: "),
    ],
)
def test_certificates_are_examined(days: int, line: str, tmp_path: Path) -> None:
    make_certificates(tmp_path / "certs", days=days)
    result = run_etl("doctor", "--tls", tmp_path / "certs")
    assert result.exit_code == (days == 0), result.output
    (found,) = (each for each in result.stdout.splitlines() if each.startswith("tls "))
    assert found.startswith(line)
    assert ("in 19 days: write new ones" in found) == (days == 20)
    expire = json.loads(run_etl("doctor", "--json", "--tls", tmp_path / "certs").stdout)
    assert expire["certificates_expire"]


def test_a_scheduler_is_asked_for_its_workers(client: Client) -> None:
    assert client.scheduler is not None
    found = etl.doctor(cluster=client.scheduler.address)
    assert found.cluster is not None
    assert not isinstance(found.cluster, Unusable)
    assert f"{len(client.nthreads())} workers" in found.cluster


@pytest.mark.parametrize("address", ["ftp://host", "tls://127.0.0.1:1"])
def test_an_address_of_no_cluster_is_a_problem(address: str) -> None:
    assert isinstance(etl.doctor(cluster=address).cluster, Unusable)
