"""A real S3 server for the tests, and buckets on it."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import s3fs

from tests.helpers.ports import free_ports


def new_environment(endpoint: str, patch: pytest.MonkeyPatch) -> None:
    """Configure the environment for an S3 server, with credentials."""
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        patch.delenv(name, raising=False)
    for name, value in environment.items():
        patch.setenv(name, value)


def new_bucket(endpoint: str, patch: pytest.MonkeyPatch) -> str:
    """Create a bucket, configure the environment for it, and return its URL."""
    new_environment(endpoint, patch)
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    s3fs.S3FileSystem(endpoint_url=endpoint).mkdir(bucket)
    return f"s3://{bucket}"


def weed() -> str | None:
    """Return the path of the program ``weed``, if it is installed."""
    return shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")


@contextmanager
def seaweedfs(program: str, folder: Path) -> Iterator[str]:
    """Start a SeaweedFS server on free loopback ports, and yield its URL."""
    roles = ("master", "volume", "filer", "s3")
    names = [f"{role}.{kind}" for role in roles for kind in ("port", "port.grpc")]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    identities = [
        {
            "name": name,
            "credentials": [{"accessKey": name, "secretKey": f"{name}-secret"}],
            "actions": actions,
        }
        for name, actions in (("test", ["Admin"]), ("reader", ["Read", "List"]))
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    command = [
        program,
        f"-logdir={folder}",
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=1000",  # each bucket needs several
        "-filer",
        f"-filer.localSocket={folder}/filer.sock",
        "-s3",
        f"-s3.config={folder}/s3.json",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={folder}/s3.sock",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    try:
        with guarded(command, folder):
            endpoint = f"http://127.0.0.1:{ports['s3.port']}"
            wait_until_ready(f"{endpoint}/healthz", folder / "output.log")
            yield endpoint
    finally:
        for role in roles:  # sockets that it creates in /tmp regardless of its options
            port = ports[f"{role}.port.grpc"]
            Path(f"/tmp/seaweedfs-{role}-grpc-{port}.sock").unlink(missing_ok=True)


@contextmanager
def guarded(command: Sequence[str], folder: Path) -> Iterator[None]:
    """Run a program in a folder, with output to output.log; it ends with the block or this process.

    A shell kills it on a line of input or at the end of input. The line is needed because forked
    processes hold the input open: the workers of a DataLoader live until the garbage collector finds its
    iterator.
    """
    guard = ["sh", "-c", '"$@" & read -r _; kill -9 $!', "sh", *command]
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            guard, cwd=folder, stdin=subprocess.PIPE, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.communicate(b"\n")


def wait_until_ready(url: str, log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError as error:  # an OSError
            if error.code < 500:  # it responds, to a request without credentials
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-3000:]}")
