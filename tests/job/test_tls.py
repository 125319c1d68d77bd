"""A cluster with certificates: it does the work, and speaks to nobody who has none."""

import ssl
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from distributed import Client
from distributed.security import Security

from etl.cluster import Cluster
from etl.errors import ClusterError
from etl.job.run import run
from etl.recipe import Recipe

pytest.importorskip("cryptography")

from etl import certificates


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("tls") / "certs"
    certificates.make(place)
    return str(place)


def test_only_the_owner_can_read_them(folder: str) -> None:
    paths = [Path(path) for path in certificates.files(folder).values()]
    assert sorted(path.name for path in paths) == [
        *("ca.pem", "client.pem", "scheduler.pem", "worker.pem")
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert b"PRIVATE KEY" not in (Path(folder) / "ca.pem").read_bytes()


def test_what_is_there_is_not_overwritten(folder: str) -> None:
    before = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    with pytest.raises(ClusterError, match=r"ca\.pem is there already"):
        certificates.make(folder)
    assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == before


def test_a_run_over_tls(
    recipe: Recipe, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.cluster._TIMEOUT", "2s")
    stranger = tmp_path / "other-certs"
    certificates.make(stranger)
    with Cluster(workers=2, tls=folder).connect() as client:
        address = client.scheduler.address
        workers = client.scheduler_info()["workers"]
        assert [place.partition("://")[0] for place in [address, *workers]] == ["tls"] * 3
        report = run(recipe, cluster=client)
        assert report.ok
        assert report.duplicates > 0, "the shuffle between workers ran over it, too"
        plain = address.replace("tls://", "tcp://")
        for outsider in (Cluster(plain), Cluster(address, tls=str(stranger))):
            with pytest.raises(ClusterError, match="no scheduler answers"), outsider.connect():
                pass
        with Cluster(address, tls=folder).connect() as other:
            assert other.submit(sum, (1, 2)).result() == 3


def test_a_clients_certificate_is_not_enough_to_be_a_scheduler(folder: str) -> None:
    security = Cluster(tls=folder)._security()
    assert security is not None
    shake_hands(security)
    security.tls_scheduler_cert = security.tls_scheduler_key = certificates.files(folder)["client"]
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate purpose"):
        shake_hands(security)


def shake_hands(security: Security) -> None:
    """A client and a scheduler look at each other's certificates."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = security.get_connection_args("client")["ssl_context"]
    answers = security.get_listen_args("scheduler")["ssl_context"]
    client = asks.wrap_bio(back, there)
    server = answers.wrap_bio(there, back, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()


def test_mistakes(folder: str, tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterError, match="certificates are for tls://"),
        Cluster("tcp://127.0.0.1:1", tls=folder).connect(),
    ):
        pass
    with (
        pytest.raises(ClusterError, match="there is no such certificate"),
        Cluster(tls=str(tmp_path)).connect(),
    ):
        pass


def test_without_certificates_tls_is_refused(folder: str) -> None:
    with pytest.raises(ClusterError), Cluster("tls://127.0.0.1:1").connect() as client:
        assert isinstance(client, Client)
