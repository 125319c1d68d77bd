"""Twenty copies of the sample: the result of a local run, and what the cluster costs."""

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import s3fs
import yaml

from etl import storage
from etl.compute.cluster import Cluster
from etl.delta.table import Table
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.lake_rows import rows_by_table
from tests.helpers.manifests import ROOT
from tests.k8s.lab.job import Site

COPIES = 20
SAMPLE = ROOT / "pipelines" / "sample"


@pytest.fixture(scope="module")
def copies(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write distinct copies of the sample to the S3 server, and the recipe of the demo for them."""
    store = s3fs.S3FileSystem(endpoint_url=site.endpoint)
    for number in range(COPIES):
        for name, content in copy_of_sample(number):
            store.pipe_file(f"tokenlake/copies/{number:02}-{name}", content)
    store.put_file(str(SAMPLE / "tokenizer.json"), "tokenlake/tokenizer.json")
    recipe = yaml.safe_load((ROOT / "pipelines" / "demo.yaml").read_text())
    recipe["source"] |= {"path": "s3://tokenlake/copies/*", "split_bytes": 1 << 22}
    recipe["stages"][-1] = {"tokenize": "s3://tokenlake/tokenizer.json"}
    file = tmp_path_factory.mktemp("copies") / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe))
    return file


def copy_of_sample(number: int) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the sample, with its damaged lines, in which each text begins with a number."""
    for file in sorted(SAMPLE.glob("*.parquet")):
        table = pq.read_table(file)
        text = pc.binary_join_element_wise(f"Copy {number}.\n", table["content"], "")
        sink = io.BytesIO()
        position = table.column_names.index("content")
        pq.write_table(table.set_column(position, "content", text), sink)
        yield file.name, sink.getvalue()
    for file in sorted(SAMPLE.glob("*.jsonl*")):
        content = file.read_bytes()
        lines = gzip.decompress(content) if file.suffix == ".gz" else content
        start = b'"content": "'
        yield file.name.removesuffix(".gz"), lines.replace(start, start + b"Copy %d. " % number)


def test_a_cluster_gives_the_tables_of_a_local_run(
    site: Site, copies: Path, figures: list[str]
) -> None:
    recipes = {
        name: Recipe.load(copies, settings=[f"lake=s3://tokenlake/copies-{name}"])
        for name in ("local", "cluster")
    }
    report = run(recipes["local"], cluster=Cluster(workers=2))
    used = site.lab.plane.cpu_seconds()
    with site.run(copies, {"TOKENLAKE_LAKE": str(recipes["cluster"].lake)}, workers=2):
        site.wait_for_end()
        spent = sum(site.lab.plane.cpu_seconds().values()) - sum(used.values())
    assert rows_by_table(recipes["cluster"]) == rows_by_table(recipes["local"])

    megabytes = report.text_bytes / 1e6
    seconds = {name: seconds_of(recipe) for name, recipe in recipes.items()}
    figures.append(
        f"{megabytes:.0f} MB of text, from the first commit to the last: {json.dumps(seconds)} s; "
        f"CPU of the control plane in the whole run: {spent:.1f} s"
    )


def seconds_of(recipe: Recipe) -> float:
    """Return the time from the first commit of a lake to its last."""
    tables = [Table.open(storage.join(str(recipe.lake), name)) for name in recipe.steps]
    times = [entry["timestamp"] for table in tables for entry in table.history()]
    return round((max(times) - min(times)) / 1000, 1)
