"""Small files are read in packs, with the rows of many units in one data file."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl.audit.lake_comparison import compare_lakes
from etl.audit.verify.verify import verify
from etl.compact_collections import SpilledList
from etl.job import read_step, tokenize_step
from etl.job.packs import pack_units
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake.work_units import WorkResult
from etl.recipe.recipe import Recipe
from etl.sources import Split
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.damage import paths
from tests.helpers.lake_rows import rows_by_table
from tests.helpers.paths import at
from tests.helpers.recipes import small_recipe

STAGES: tuple[list[str], ...] = (["dedup_exact"], ["dedup_minhash"], ["dedup_paragraphs"], [])


SPLITS = st.lists(st.tuples(st.integers(0, 300), st.booleans(), st.integers(0, 2)), max_size=200)


@given(SPLITS, st.integers(1, 1000))
def test_packs_have_all_units_within_limits(
    sizes: list[tuple[int, bool, int]], split_bytes: int
) -> None:
    splits = [
        Split(
            uri=f"file:///{number:03}",
            size=size,
            fingerprint=str(kind),
            format="jsonl",
            start=int(is_part),
            bytes=size,
        )
        for number, (size, is_part, kind) in enumerate(sizes)
    ]
    packs = list(pack_units(splits, split_bytes=split_bytes, held=lambda s: s.fingerprint))
    assert sorted((split for pack in packs for split in pack), key=lambda s: s.uri) == splits
    for pack in packs:
        assert list(pack) == sorted(pack, key=lambda split: split.uri)
        assert len({split.fingerprint for split in pack}) == 1
        if len(pack) > 1:
            assert len(pack) <= 64
            assert sum(split.work for split in pack) <= split_bytes
            assert all(split.is_whole and split.work <= split_bytes / 4 for split in pack)
    # Few packs could be joined: at most the last one of each kind is incomplete.
    small = [s for s in splits if s.is_whole and s.work <= split_bytes // 4]
    kinds = len({split.fingerprint for split in small})
    assert len(packs) - (len(splits) - len(small)) <= (
        kinds + len(small) / 64 + 4 / 3 * sum(s.work for s in small) / split_bytes
    )


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


def num_files(recipe: Recipe) -> tuple[int, ...]:
    return tuple(len(paths(recipe, name)) for name in ("documents", "texts", "tokens"))


@pytest.mark.parametrize("stages", STAGES, ids=lambda stages: "-".join(stages) or "fused")
def test_packs_make_few_files_with_the_same_rows(
    client: Client, packed: Recipe, stages: Sequence[str]
) -> None:
    recipe = with_stages(packed, stages)
    assert run(recipe, cluster=client).ok
    assert num_files(recipe) == (2, 1, 1)
    check(recipe, client)


@pytest.mark.parametrize("stages", [["dedup_exact"], []], ids=["dedup", "fused"])
def test_a_corrupt_file_is_quarantined_alone(
    client: Client, packed: Recipe, place: UPath, stages: Sequence[str]
) -> None:
    recipe = with_stages(packed, stages)
    (place / "crawl" / "021.parquet").write_bytes(b"not Parquet" * 3)
    report = run(recipe, cluster=client)
    assert [note.source.rsplit("/", 1)[-1] for note in report.quarantined] == ["021.parquet"]
    assert num_files(recipe) == (2, 1, 1)
    write_parquet(place / "crawl" / "021.parquet", records(100, 104))
    assert run(recipe, cluster=client).ok
    assert len(paths(recipe, "texts")) == 2
    check(recipe, client)


@pytest.mark.parametrize("stages", [["dedup_exact"], []], ids=["dedup", "fused"])
def test_a_run_that_died_between_its_tables_leaves_few_files(
    client: Client, packed: Recipe, monkeypatch: pytest.MonkeyPatch, stages: Sequence[str]
) -> None:
    recipe = with_stages(packed, stages)

    def die(*_: object) -> None:
        raise RuntimeError("died")

    with monkeypatch.context() as patch:
        patch.setattr(read_step, "_commit_derived", die)
        with pytest.raises(RuntimeError, match="died"):
            run(recipe, cluster=client)
    for start in range(80, 96, 4):
        write_jsonl(at(recipe.source.path) / f"{start:03}.jsonl", records(start, start + 4))
    assert run(recipe, cluster=client).ok
    assert num_files(recipe) == (4, 2, 1 if stages else 2)
    check(recipe, client)


def test_another_run_tokenizes_some_members_first(
    client: Client, packed: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = tokenize_step.run_packs

    def overlap(packs: SpilledList[Any], do: Callable[[SpilledList[Any]], Iterator[Any]]) -> None:
        assert not list(do(SpilledList(pack[:3] for pack in packs)))
        function(packs, do)

    monkeypatch.setattr(tokenize_step, "run_packs", overlap)
    run(packed, cluster=client)
    assert 10 < num_files(packed)[2] < 20
    check(packed, client)


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
