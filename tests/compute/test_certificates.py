"""A cluster with certificates runs jobs and refuses clients without them."""

import ssl
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from distributed import Client
from distributed.security import Security

from etl.compute.cluster import Cluster
from etl.errors import ClusterError
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.listeners import Recorder

pytest.importorskip("cryptography")

from etl.compute import certificates


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tls") / "certs"
    certificates.make_certificates(path)
    return str(path)


def test_only_the_owner_can_read_the_certificates(folder: str) -> None:
    paths = [Path(path) for path in certificates.find_certificates(folder).values()]
    assert sorted(path.name for path in paths) == [
        *("ca.pem", "client.pem", "scheduler.pem", "worker.pem")
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
    assert b"PRIVATE KEY" not in (Path(folder) / "ca.pem").read_bytes()


def test_existing_certificates_are_not_overwritten(folder: str) -> None:
    before = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
    with pytest.raises(ClusterError, match=r"ca\.pem already exists"):
        certificates.make_certificates(folder)
    assert {path.name: path.read_bytes() for path in Path(folder).iterdir()} == before


def test_a_run_works_over_tls_and_outsiders_are_refused(
    recipe: Recipe, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.compute.connect._TIMEOUT", "2s")
    stranger = tmp_path / "other-certs"
    certificates.make_certificates(stranger)
    with Cluster(workers=2, tls=folder).connect() as client:
        address = client.scheduler.address
        workers = client.scheduler_info()["workers"]
        assert [url.partition("://")[0] for url in [address, *workers]] == ["tls"] * 3
        report = run(recipe, cluster=client)
        assert report.ok
        assert report.duplicates > 0, "the shuffle between workers also used TLS"
        plain = address.replace("tls://", "tcp://")
        for outsider in (Cluster(plain), Cluster(address, tls=str(stranger))):
            with (
                pytest.raises(ClusterError, match="the scheduler does not respond"),
                outsider.connect(),
            ):
                pass
        with Cluster(address, tls=folder).connect() as other:
            assert other.submit(sum, (1, 2)).result() == 3


def test_a_client_certificate_is_not_valid_for_a_scheduler(folder: str) -> None:
    security = certificates.tls_settings(folder)
    shake_hands(security)
    security.tls_scheduler_cert = security.tls_scheduler_key = certificates.find_certificates(
        folder
    )["client"]
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate purpose"):
        shake_hands(security)


def shake_hands(security: Security) -> None:
    """Do a TLS handshake between a client and a scheduler in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_context = security.get_connection_args("client")["ssl_context"]
    server_context = security.get_listen_args("scheduler")["ssl_context"]
    client = client_context.wrap_bio(to_client, to_server)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()


def test_certificates_without_tls_and_missing_certificates_are_refused(
    folder: str, tmp_path: Path
) -> None:
    with (
        pytest.raises(ClusterError, match="certificates require a tls://"),
        Cluster("tcp://127.0.0.1:1", tls=folder).connect(),
    ):
        pass
    with (
        pytest.raises(ClusterError, match="certificate not found"),
        Cluster(tls=str(tmp_path)).connect(),
    ):
        pass


def test_a_client_needs_its_own_certificate_only(folder: str, tmp_path: Path) -> None:
    """As in the pod of a driver, which has no key of the scheduler or a worker."""
    for name in ("ca.pem", "client.pem"):
        (tmp_path / name).write_bytes((Path(folder) / name).read_bytes())
    with Cluster(workers=1, tls=folder).connect() as client:
        address = client.scheduler.address
        with Cluster(address, tls=str(tmp_path)).connect() as other:
            assert other.submit(sum, (1, 2)).result() == 3
    with (
        pytest.raises(ClusterError, match="certificate not found"),
        Cluster(tls=str(tmp_path)).connect(),
    ):
        pass


@pytest.mark.parametrize(("days", "warns"), [(29, True), (32, False)])
def test_a_run_warns_a_month_before_certificates_expire(
    days: int, warns: bool, tmp_path: Path
) -> None:
    certificates.make_certificates(tmp_path / "certs", days=days)
    listener = Recorder()
    with Cluster(workers=1, tls=str(tmp_path / "certs")).connect(listener=listener) as client:
        expires = certificates.expires_at(client.security)
    assert expires is not None
    assert round((expires - datetime.now(UTC)) / timedelta(days=1)) == days
    text = f"warning: the certificates expire on {expires:%Y-%m-%d}, in {days - 1} days: write new"
    assert any(line.startswith(text) for line in listener.lines) == warns


def test_the_first_certificate_that_expires_counts(folder: str, tmp_path: Path) -> None:
    """The certificate of a role may be another authority's, or replaced alone."""
    certificates.make_certificates(tmp_path / "old", days=3)
    for name in ("ca.pem", "scheduler.pem", "worker.pem"):
        (tmp_path / "old" / name).write_bytes((Path(folder) / name).read_bytes())
    expires = certificates.expires_at(certificates.tls_settings(tmp_path / "old"))
    assert expires is not None
    assert (expires - datetime.now(UTC)).days == 2
    assert certificates.expires_at(Security()) is None


def test_expired_certificates_are_reported_before_anything_starts(tmp_path: Path) -> None:
    certificates.make_certificates(tmp_path / "certs", days=0)
    for address in (None, "tls://127.0.0.1:1"):
        with (
            pytest.raises(ClusterError, match="the certificates have expired on") as caught,
            Cluster(address, tls=str(tmp_path / "certs")).connect(),
        ):
            pass
        assert "etl certificates DIR" in str(caught.value.hint)


def test_a_file_that_is_not_a_certificate_is_reported(folder: str, tmp_path: Path) -> None:
    for path in Path(folder).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes()[:100])
    with pytest.raises(ClusterError, match="a certificate cannot be read"):
        certificates.tls_settings(tmp_path)


def test_tls_without_certificates_is_refused(folder: str) -> None:
    with pytest.raises(ClusterError), Cluster("tls://127.0.0.1:1").connect() as client:
        assert isinstance(client, Client)
