"""Small files are read in packs, with the rows of many units in one data file."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.audit.lake_comparison import compare_lakes
from etl.audit.verify.verify import verify
from etl.job import read_step
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake.work_units import WorkResult
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.damage import paths
from tests.helpers.lake_rows import rows_by_table
from tests.helpers.recipes import small_recipe

STAGES: tuple[list[str], ...] = (["dedup_exact"], ["dedup_minhash"], ["dedup_paragraphs"], [])


@pytest.fixture
def packed(place: UPath, tiny_tokenizer: Path) -> Recipe:
    """A recipe that packs its twenty files of four records."""
    for start in range(0, 80, 4):
        write_jsonl(place / "crawl" / f"{start:03}.jsonl", records(start, start + 4))
    return small_recipe(place / "crawl", place / "packed", tiny_tokenizer, split_bytes=1 << 20)


def with_stages(recipe: Recipe, stages: Sequence[str]) -> Recipe:
    first, *_, last = recipe.stages
    return Recipe(name="web", source=recipe.source, lake=recipe.lake, stages=[first, *stages, last])


def alone(recipe: Recipe) -> Recipe:
    """Return the recipe of a lake in which each file is read alone."""
    source = recipe.source.model_copy(update={"split_bytes": 4096})
    return recipe.model_copy(update={"source": source, "lake": f"{recipe.lake}-alone"})


def check(packed: Recipe, client: Client) -> None:
    """Check that a lake is sound, complete, and equal to one whose files are read alone."""
    assert verify(str(packed.lake)) == []
    assert not make_plan(packed).has_work()
    other = alone(packed)
    run(other, cluster=client)
    assert rows_by_table(packed) == rows_by_table(other)
    assert compare_lakes(str(packed.lake), str(other.lake)).is_same


@pytest.mark.parametrize("stages", STAGES, ids=lambda stages: "-".join(stages) or "fused")
def test_packs_make_few_files_with_the_same_rows(
    client: Client, packed: Recipe, stages: Sequence[str]
) -> None:
    recipe = with_stages(packed, stages)
    assert run(recipe, cluster=client).ok
    assert (len(paths(recipe, "documents")), len(paths(recipe, "texts"))) == (2, 1)
    assert stages or len(paths(recipe, "tokens")) == 1
    check(recipe, client)


@pytest.mark.parametrize("stages", [["dedup_exact"], []], ids=["dedup", "fused"])
def test_a_corrupt_file_is_quarantined_alone(
    client: Client, packed: Recipe, place: UPath, stages: Sequence[str]
) -> None:
    recipe = with_stages(packed, stages)
    (place / "crawl" / "021.parquet").write_bytes(b"not Parquet" * 3)
    report = run(recipe, cluster=client)
    assert [note.source.rsplit("/", 1)[-1] for note in report.quarantined] == ["021.parquet"]
    assert len(paths(recipe, "documents")) == 2
    write_parquet(place / "crawl" / "021.parquet", records(100, 104))
    assert run(recipe, cluster=client).ok
    assert len(paths(recipe, "texts")) == 2
    check(recipe, client)


@pytest.mark.parametrize("name", ["_commit_documents", "_commit_derived"])
@pytest.mark.parametrize("stages", [["dedup_exact"], []], ids=["dedup", "fused"])
def test_another_run_commits_some_members_first(
    client: Client,
    packed: Recipe,
    place: UPath,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    stages: Sequence[str],
) -> None:
    recipe = with_stages(packed, stages)
    function = getattr(read_step, name)

    def overlap(run_: object, results: Sequence[WorkResult], *args: object) -> None:
        monkeypatch.setattr(read_step, name, function)
        limited = recipe.source.model_copy(update={"path": str(place / "crawl" / "0[0-3]*.jsonl")})
        run(recipe.model_copy(update={"source": limited}), cluster=client)
        function(run_, results, *args)

    monkeypatch.setattr(read_step, name, overlap)
    run(recipe, cluster=client)
    check(recipe, client)


def test_a_copy_among_the_members_becomes_a_name(
    client: Client, packed: Recipe, place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run commits a file with the rows of a member while the pack is read."""
    function = read_step._commit_documents

    def overlap(*args: object) -> None:
        monkeypatch.setattr(read_step, "_commit_documents", function)
        copy = place / "before" / "copy.jsonl"
        write_jsonl(copy, records(20, 24))
        source = packed.source.model_copy(update={"path": str(place / "before")})
        run(packed.model_copy(update={"source": source}), cluster=client)
        function(*args)

    monkeypatch.setattr(read_step, "_commit_documents", overlap)
    report = run(packed, cluster=client)
    assert report.num_copies == 1
    assert verify(str(packed.lake)) == []
    assert not make_plan(packed).has_work()
    assert (
        sum(len(each) for name, each in rows_by_table(packed).items() if name == "documents") == 80
    )
