"""Credentials exist only in the environment: searches every artifact of a run for them."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest
from distributed import Client

from etl import storage
from etl.compute.cluster import Cluster
from etl.delta.table import Table
from etl.errors import StorageError
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl, start
from tests.helpers.recipes import MakeRecipe

SECRET = "test-secret"  # set by the fixture of the S3 server
PAGES = (
    *("/status", "/workers", "/tasks", "/metrics"),
    *("/info/main/workers.html", "/info/logs.html", "/json/counts.json", "/json/identity.json"),
)
URLS = (
    "s3://user:hunter2@bucket/a.parquet",
    "https://store/a.parquet?X-Amz-Algorithm=AWS4&X-Amz-Signature=hunter2",
    "https://store/a.parquet?X-Goog-Signature=hunter2",
    "https://store/a.parquet?sv=2024&sig=hunter2",
    "az://box/a.parquet?account_key=hunter2",
    "s3://bucket/a.parquet?aws_secret_access_key=hunter2",
)


def dashboard(client: Client) -> Iterator[str]:
    """Yield the pages of the dashboard, and the pages of workers and tasks that they link to."""
    home = client.dashboard_link.removesuffix("/status")
    urls = [home + page for page in PAGES]
    seen: set[str] = set()
    while urls:
        url = urls.pop()
        if url in seen:
            continue
        seen.add(url)
        try:
            with urllib.request.urlopen(url, timeout=20) as response:
                text = response.read().decode("utf-8", "replace")
        except HTTPError as error:  # a broken page shows its traceback
            text = error.read().decode("utf-8", "replace")
        if "/info/" in url:
            links = re.findall(
                r'href="(?:\.\./)*((?:info/)?(?:worker|logs|task|call-stack)s?/[^"]+)"', text
            )
            urls += [f"{home}/info/{link.removeprefix('info/')}" for link in links]
        yield f"{url}\n{text}"
    assert len(seen) > len(PAGES), "the pages of workers are included"


def tasks(dask_scheduler: object) -> str:
    """Return everything that the scheduler remembers about its tasks."""
    return repr([list(dask_scheduler.transition_log), dask_scheduler.get_events()])


def everything_written(lake: str) -> Iterator[str]:
    """Yield the content of all files of a lake, and all rows and log entries of its tables."""
    fs = storage.filesystem(lake)
    fs.invalidate_cache()
    for path in fs.find(lake):
        yield f"{path}\n{fs.cat_file(path).decode('latin-1')}"
    for name in ("documents", "duplicates", "tokens"):
        table = Table.open(f"{lake}/{name}")
        yield repr(table.dataset().to_table().to_pydict()) + repr(list(table.history()))


def reports(recipe: Path, lake: str) -> Iterator[str]:
    """Yield the output of the commands that describe a recipe or a lake."""
    for words in (
        ("plan", recipe), ("plan", recipe, "--json"), ("history", f"{lake}/tokens"),
        ("lineage", f"{lake}/tokens", "--json"), ("lineage", f"{lake}/tokens", "--openlineage"),
        ("report", lake), ("verify", lake), ("trace", lake, "--id", "doc-00001"),
        ("show", f"{lake}/documents"), ("run", recipe),
    ):  # fmt: skip
        yield etl(*words).output


@pytest.mark.slow
def test_no_artifact_contains_a_secret(
    s3: str, corpus: Path, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    storage.filesystem(s3).put(f"{corpus}/", f"{s3}/raw/", recursive=True)
    storage.filesystem(s3).pipe(f"{s3}/raw/broken.parquet", b"not a Parquet file")
    lake = f"{s3}/lake"
    recipe = make_recipe(lake)
    recipe = recipe.model_copy(
        update={"source": recipe.source.model_copy(update={"path": f"{s3}/raw"})}
    )
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    texts: list[str] = []
    with Cluster(workers=2).connect() as client:
        report = run(recipe, cluster=client)
        texts += dashboard(client)
        logs = [client.get_scheduler_logs(), client.get_worker_logs()]
        texts += [repr(vars(report)), repr(logs), client.run_on_scheduler(tasks)]
    assert len(report.quarantined) == 1
    texts += everything_written(lake)
    texts += reports(tmp_path / "recipe.yaml", lake)
    assert any("gopher_quality" in text for text in texts)
    assert [text for text in texts if SECRET in text] == []


def test_the_error_about_a_wrong_secret_does_not_contain_it(
    s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "no-such-secret")
    recipe = {"name": "a", "source": {"path": f"{s3}/raw"}, "lake": f"{s3}/lake", "stages": []}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    process = start("--debug", "run", tmp_path / "recipe.yaml")
    output = "".join(process.communicate(timeout=60))
    assert process.returncode == 1
    assert "cannot be reached" in output
    assert "SignatureDoesNotMatch" in output
    assert "no-such-secret" not in output


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("key", ["source", "lake"])
def test_a_url_with_credentials_is_refused_without_repeating_them(
    url: str, key: str, tmp_path: Path
) -> None:
    fields = {"source": "a.jsonl", "lake": "lake"} | {key: url}
    recipe = {
        "name": "a",
        "source": {"path": fields["source"]},
        "lake": fields["lake"],
        "stages": [],
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    for words in (("plan", tmp_path / "recipe.yaml"), ("plan", "demo", f"--{key}", url)):
        result = etl(*words)
        assert result.exit_code == 1
        assert "must not contain credentials" in result.output
        assert "hunter2" not in result.output
    with pytest.raises(StorageError, match="must not contain credentials"):
        Recipe.model_validate({**recipe, "lake": fields["lake"]})


@pytest.mark.parametrize(
    "url",
    ["s3://b/a?c=1.parquet", "s3://b/x@y/a.parquet", "file:///a@b/c", "s3://b/key=1/*.parquet"],
)
def test_a_url_without_credentials_is_accepted(url: str) -> None:
    assert storage.normalize(url) == url
