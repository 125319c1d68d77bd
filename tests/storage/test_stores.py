"""Lakes on every store, at URLs with characters that URL parsers treat specially."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from etl import storage
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import StorageError
from etl.job.run import run
from etl.loader import TokenDataset
from etl.maintenance.vacuum import vacuum
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.paths import at
from tests.helpers.recipes import small_recipe
from tests.helpers.s3_server import new_bucket
from tests.helpers.stores import STORES, abfss

NAMES = ("lake", "l#1", "q?x=1", "a%20b", "a b+c", "ü[1]*", "lake/")


@pytest.fixture(scope="module", params=["local", "seaweedfs", *STORES, "azurite-abfss"])
def bucket(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[str]:
    """The URL of a folder or bucket on each store; each is skipped if it is not installed."""
    kind = request.param.removesuffix("-abfss")
    folder = tmp_path_factory.mktemp(kind)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        if kind == "local":
            yield storage.normalize(folder)
        elif kind == "seaweedfs":
            yield new_bucket(request.getfixturevalue("s3_endpoint"), patch)
        else:
            url = stack.enter_context(STORES[kind](folder, patch))
            yield url if kind == request.param else abfss(url)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_a_lake_is_created_continued_and_read(
    bucket: str, name: str, tmp_path: Path, tiny_tokenizer: Path, client
) -> None:
    base = f"{bucket}/{NAMES.index(name)}"
    raw, lake = f"{base}/raw/{name}", f"{base}/{name}"
    write_parquet(at(tmp_path / "a.parquet"), records(0, 40))
    write_jsonl(at(tmp_path / "b.jsonl"), records(40, 60))
    recipe = small_recipe(raw, lake, tiny_tokenizer)

    storage.write_bytes(storage.join(raw, "a.parquet"), (tmp_path / "a.parquet").read_bytes())
    assert run(recipe, cluster=client).ok
    storage.write_bytes(storage.join(raw, "b.jsonl"), (tmp_path / "b.jsonl").read_bytes())
    report = run(recipe, cluster=client)

    assert report.ok
    assert report.rows == 20
    prefixes = tuple(f"{url.rstrip('/')}/" for url in (raw, lake))
    assert all(uri.startswith(prefixes) for uri in _all_files(base))
    assert verify(lake) == []
    tokens = Table.open(storage.join(lake, "tokens"))
    assert [entry["version"] for entry in tokens.history()] == [*range(tokens.version, -1, -1)]
    assert vacuum(lake).files == []
    assert next(iter(TokenDataset(lake, seq_len=16, seed=1).batches(2)))["input_ids"].shape == (
        2,
        16,
    )
    found = storage.find_files(storage.join(lake, "tokens"))
    assert {file.uri.removeprefix(f"{tokens.url}/") for file in found} == set(
        tokens.data_files()["path"].to_pylist()
    )
    if storage.get_protocol(lake) == "gs":
        return  # delta-rs lists by Google's XML API, which fake-gcs-server does not have
    if name == "a%20b" or (name == "ü[1]*" and storage.is_local(lake)):
        with pytest.raises(StorageError, match="delta-rs cannot open"):
            tokens.dataset()
    else:
        num_rows = sum(tokens.data_files(["rows"])["rows"].to_pylist())
        assert tokens.dataset().count_rows() == num_rows


def _all_files(url: str) -> list[str]:
    """Return the URLs of all files below a folder, including hidden ones."""
    authority = storage.split_authority(url)[0]
    paths = storage.filesystem(url).find(url)
    if storage.is_local(url):
        return [f"file://{path}" for path in paths]
    return [storage.join(authority, path.partition("/")[2]) for path in paths]
