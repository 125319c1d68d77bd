"""`etl shuffle` of the table of a named tokenizer, which all commands know like ``tokens_shuffled``."""

from datetime import timedelta
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.trace import trace
from etl.audit.verify.verify import verify
from etl.cli.commands.shuffle import lines
from etl.delta.table import Table
from etl.errors import TableError
from etl.job.run import run
from etl.job.shuffle import ShuffleReport, ShuffleSettings, shuffle
from etl.lake.missing_tables import tables_of
from etl.lake.releases import create_release
from etl.lake.table_digest import table_digest
from etl.loader import TokenDataset, View
from etl.maintenance import vacuum
from etl.maintenance.drop_tokens import drop_tokens
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import write_corpus
from tests.helpers.damage import delete, paths
from tests.helpers.recipe_changes import maker

FEWER = "url NOT LIKE '%7'"
STAGES = ["gopher_quality", {"where": {"keep": FEWER}}]
SMALL_BUCKETS = ShuffleSettings(bucket_bytes=1 << 15)
NAMES = ("tokens", "tokens_sample")


def shuffled(recipe: Recipe, name: str, client: Client) -> ShuffleReport:
    return shuffle(str(recipe.table_url(name)), settings=SMALL_BUCKETS, cluster=client)


def digest(recipe: Recipe, name: str) -> int:
    return table_digest(Table.open(recipe.table_url(name)))


@pytest.fixture
def lake(client: Client, place: UPath, tiny_tokenizer: Path) -> tuple[Recipe, Recipe]:
    """A lake of two tokenizers, both shuffled: its recipe, and one that keeps fewer documents."""
    write_corpus(place / "corpus")
    recipe = maker(place, tiny_tokenizer)
    old, changed = (recipe(place / "lake", STAGES[:n], named="sample") for n in (1, 2))
    assert run(old, cluster=client).ok
    for name in NAMES:
        shuffled(old, name, client)
    return old, changed


def test_each_table_has_its_own_shuffled_table(client: Client, lake: tuple[Recipe, Recipe]) -> None:
    recipe, _ = lake
    url = str(recipe.lake)
    assert tables_of(url)[-2:] == ["tokens_sample_shuffled", "tokens_shuffled"]
    assert [*verify(url)] == []
    for name in NAMES:
        assert digest(recipe, f"{name}_shuffled") == digest(recipe, name)
    assert digest(recipe, "tokens") != digest(recipe, "tokens_sample")
    report = shuffled(recipe, "tokens_sample", client)
    assert (report.table, report.added_rows) == ("tokens_sample_shuffled", 0)
    assert report.lake == storage.normalize(url)
    assert [*lines(report)][1] == (
        f"tokens_sample_shuffled version {report.version}, of tokens_sample version "
        f"{report.tokens_version}"
    )
    optimize(url)
    assert [*verify(url)] == []


def test_a_lake_means_the_tokenizer_without_a_name(
    client: Client, place: UPath, tiny_tokenizer: Path
) -> None:
    write_corpus(place / "corpus")
    named = {"name": "sample", "tokenizer": str(tiny_tokenizer)}
    recipe = maker(place, tiny_tokenizer)(place / "lake", STAGES[:1], tokenize=named)
    run(recipe, cluster=client)
    with pytest.raises(TableError, match="the lake has no table tokens") as caught:
        shuffle(str(recipe.lake), cluster=client)
    assert f"its tokenizers have names: use {recipe.table_url('tokens_sample')}" in str(
        caught.value
    )
    with pytest.raises(TableError, match="the lake has no table tokens_other"):
        shuffle(str(recipe.table_url("tokens_other")), cluster=client)
    assert shuffle(str(recipe.table_url("tokens_sample")), cluster=client).rows > 0


def test_readers_know_the_table(lake: tuple[Recipe, Recipe], tmp_path: Path) -> None:
    recipe, _ = lake
    url = recipe.table_url("tokens_sample_shuffled")
    release = create_release(str(recipe.lake), "first")
    assert release.versions["tokens_sample_shuffled"] == Table.open(url).version
    dataset = TokenDataset(url, seq_len=8, version="first", shuffle=False)
    record = dataset.tokenizer()
    assert record is not None
    assert not record.append_eos
    assert len(dataset) == len(TokenDataset(recipe.table_url("tokens_sample"), seq_len=8))
    viewed = TokenDataset(url, seq_len=8, view=View(where=FEWER, cache=str(tmp_path)))
    assert 0 < len(viewed) < len(dataset)
    document = dataset.locate(0)[0]
    (traced,) = trace(str(recipe.lake), source=document.source, row=document.row)
    assert list(traced.shuffled) == ["tokens_shuffled", "tokens_sample_shuffled"]
    assert traced.shuffled["tokens_sample_shuffled"].row == 0


def test_a_change_empties_both_tables(client: Client, lake: tuple[Recipe, Recipe]) -> None:
    _, changed = lake
    run(changed, cluster=client, apply_change=True)
    assert [*verify(str(changed.lake))] == []
    for name in NAMES:
        assert Table.open(changed.table_url(f"{name}_shuffled")).data_files().num_rows == 0
        assert shuffled(changed, name, client).rows > 0
        assert digest(changed, f"{name}_shuffled") == digest(changed, name)
    assert [*verify(str(changed.lake))] == []


def test_damage_is_found_and_repaired(client: Client, lake: tuple[Recipe, Recipe]) -> None:
    recipe, _ = lake
    delete(paths(recipe, "tokens_sample_shuffled")[0])
    assert {problem.table for problem in verify(str(recipe.lake))} == {"tokens_sample_shuffled"}
    assert repair(str(recipe.lake), drop=True).left == []
    assert [*verify(str(recipe.lake))] == []
    shuffled(recipe, "tokens_sample", client)
    assert digest(recipe, "tokens_sample_shuffled") == digest(recipe, "tokens_sample")


def test_files_are_deleted_with_the_table_or_once_no_version_needs_them(
    client: Client, lake: tuple[Recipe, Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum, "MIN_RETAIN", timedelta(0))
    recipe, _ = lake
    url = str(recipe.lake)
    old = paths(recipe, "tokens_sample_shuffled")
    settings = ShuffleSettings(bucket_bytes=1 << 15, rebuild=True, seed=1)
    shuffle(str(recipe.table_url("tokens_sample")), settings=settings, cluster=client)
    vacuum.vacuum(url, retain=timedelta(0), delete=True)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in paths(recipe, "tokens_sample_shuffled"))
    assert [*verify(url)] == []
    dropped = drop_tokens(url, "tokens_sample", delete=True)
    assert {each.table for each in dropped} == {"tokens_sample", "tokens_sample_shuffled"}
    assert not storage.is_folder(storage.join(url, "tokens_sample_shuffled"))
    assert "tokens_shuffled" in tables_of(url)
    assert [*verify(url)] == []
