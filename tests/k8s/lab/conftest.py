"""A cluster for all tests of this folder, and input in its S3 server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import s3fs

from etl.compute.certificates import make_certificates
from etl.compute.cluster import Cluster
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.killed_runs import Outcome, outcome
from tests.helpers.manifests import ROOT, build
from tests.k8s.lab.job import OVERLAY, Site, is_costly, use_store
from tests.k8s.lab.lab import Lab, running_lab, wait_until, why_not
from tests.k8s.lab.outside import FILE
from tests.k8s.lab.stand_ins import site_without_nodes

NUM_FILES = 24
NUM_DOCUMENTS = 30  # in each file

RECIPE = """
name: copies
source: {path: "s3://tokenlake/input/*.jsonl", columns: {text: text, id: id}}
stages:
  - python: slow:keep
  - gopher_quality: {min_alpha_word_ratio: 0.7}
  - dedup_exact
  - tokenize: s3://tokenlake/tokenizer.json
"""
SLOW = """
import os
import time


def keep(table):
    time.sleep(float(os.environ.get("LAB_SECONDS", "0")))
    return [True] * table.num_rows
"""


_FIGURES = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash[_FIGURES]:
        terminalreporter.write_line(line)


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> list[str]:
    """Return the list of measured figures, which are printed at the end."""
    return request.config.stash[_FIGURES]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.k8s)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start a cluster with Dask's operator."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with running_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(scope="session")
def site(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Apply what stays between runs, with certificates and an S3 server."""
    certificates = tmp_path_factory.mktemp("site") / "certificates"
    make_certificates(certificates)
    items = [item for item in build(OVERLAY) if not is_costly(item)]
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    lab.kubectl("apply", "--server-side", "--filename=-", stdin=content)
    secret = ("create", "secret", "generic", "tokenlake-tls")
    lab.kubectl(*secret, f"--from-file={certificates}", "--namespace=tokenlake")
    lab.kubectl("rollout", "status", "deployment/tokenlake-s3", "--timeout=60s")
    site = Site(lab)
    with pytest.MonkeyPatch.context() as patch:
        use_store(site, patch)
        yield site


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start a control plane with accounts and roles, but without nodes and operator."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with site_without_nodes(tmp_path_factory.mktemp("bare")) as site:
        yield site


@pytest.fixture(scope="session")
def recipe_file(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write documents of the sample to the S3 server, a split per file, and a recipe for them.

    A quarter of the documents occur twice, in different files.
    """
    sample = ROOT / "pipelines" / "sample"
    table = pq.read_table(sample / "handbook-00000.parquet", columns=["content"])
    texts = [text for text in table["content"].to_pylist() if text and len(text) < 20_000]
    store = s3fs.S3FileSystem(endpoint_url=site.endpoint)
    for number in range(NUM_FILES):
        lines = []
        for key in range(number * NUM_DOCUMENTS, (number + 1) * NUM_DOCUMENTS):
            text = texts[key % len(texts)]
            lines.append({"id": str(key), "text": text if key % 4 == 0 else f"{key}\n{text}"})
        content = "".join(json.dumps(line) + "\n" for line in lines)
        store.pipe_file(f"tokenlake/input/{number:03}.jsonl", content.encode())
    store.put_file(str(sample / "tokenizer.json"), "tokenlake/tokenizer.json")
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "slow.py").write_text(SLOW)
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder / "recipe.yaml"


@pytest.fixture(scope="session")
def expected(recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Return the rows of all tables after a run of the recipe on this machine."""
    lake = tmp_path_factory.mktemp("local") / "lake"
    recipe = Recipe.load(recipe_file, settings=[f"lake={lake}"])
    assert run(recipe, cluster=Cluster(workers=2)).ok
    return outcome(recipe)


@pytest.fixture(scope="session")
def person(site: Site) -> Path:
    """Return the kubeconfig of a person with the role `tokenlake-user`."""
    return site.new_account("person", role="tokenlake-user")


@pytest.fixture
def folder(
    recipe_file: Path, person: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return a folder with a cluster file and a recipe."""
    for path in recipe_file.parent.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "cluster.yaml").write_text(FILE, "utf-8")
    monkeypatch.setenv("KUBECONFIG", str(person))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unchanged(site: Site) -> Iterator[None]:
    """Check that a test leaves no object behind."""
    before = site.inventory()
    yield
    wait_until(lambda: site.inventory() == before, seconds=60, what="nothing is left")


@pytest.fixture
def slow(site: Site, request: pytest.FixtureRequest) -> Iterator[None]:
    """Let each split take some seconds, so that a run is in progress when something happens to it."""
    seconds = getattr(request, "param", 1.5)
    patch = ("patch", "configmap", "tokenlake-settings", "--type=merge", "--patch")
    site.lab.kubectl(*patch, f'{{"data": {{"LAB_SECONDS": "{seconds}"}}}}')
    yield
    site.lab.kubectl(*patch, '{"data": {"LAB_SECONDS": null}}')
