"""A lake that was begun with one split size continues with another: nothing is read twice or left out."""

from collections.abc import Mapping, Sequence

import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.errors import MismatchError
from etl.job import read_step
from etl.job.plan import make_plan
from etl.job.run import run
from etl.job.run_context import RunContext
from etl.lake.quarantine import Quarantine
from etl.lake.work_units import WorkResult
from etl.recipe.recipe import Recipe
from etl.sources import Split
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.killed_runs import outcome
from tests.helpers.lake_rows import addresses, rows


class StoppedError(Exception):
    """A run has ended in the middle of its first pass."""


def stop_early(recipe: Recipe, client: Client, commits: int) -> None:
    """Run until some splits are committed."""
    commit = read_step._commit_documents

    def commit_some(
        context: RunContext, results: Sequence[WorkResult], splits: Mapping[str, Split]
    ) -> None:
        commit(context, results[:commits], splits)
        raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_step, "_commit_documents", commit_some)
        with pytest.raises(StoppedError):
            run(recipe, cluster=client)


def with_splits(recipe: Recipe, split_bytes: int) -> Recipe:
    source = recipe.source.model_copy(update={"split_bytes": split_bytes})
    return recipe.model_copy(update={"source": source})


@pytest.fixture
def cut(recipe: Recipe, place: UPath) -> Recipe:
    """A recipe over a Parquet file of nine row groups and a file of lines."""
    folder = place / "cut"
    write_parquet(folder / "a.parquet", records(0, 90), group=10)
    write_jsonl(folder / "b.jsonl", records(90, 150))
    source = recipe.source.model_copy(update={"path": str(folder)})
    return recipe.model_copy(update={"source": source})


@pytest.mark.slow
def test_a_run_continues_with_another_split_size(client: Client, cut: Recipe) -> None:
    whole = with_splits(cut, 1 << 30).model_copy(update={"lake": f"{cut.lake}-whole"})
    run(whole, cluster=client)
    for split_bytes, commits in ((5000, 2), (1 << 30, 1), (1500, 2)):
        stop_early(with_splits(cut, split_bytes), client, commits)
    report = run(with_splits(cut, 20_000), cluster=client)
    assert 0 < report.rows < 150
    assert outcome(with_splits(cut, 1)) == outcome(whole)
    documents = rows(cut.lake, "documents")
    assert len({*addresses(documents)}) == len(documents) == 150


def test_overlapping_runs_with_different_split_sizes(
    client: Client, cut: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run was planned before the second one committed parts that overlap with its own."""
    commit = read_step._commit_documents

    def commit_after_another_run(*args: object) -> None:
        monkeypatch.setattr(read_step, "_commit_documents", commit)
        stop_early(with_splits(cut, 1500), client, 2)
        commit(*args)

    monkeypatch.setattr(read_step, "_commit_documents", commit_after_another_run)
    with pytest.raises(MismatchError, match="overlaps with ours"):
        run(with_splits(cut, 1 << 30), cluster=client)
    run(cut, cluster=client)
    assert len({*addresses(rows(cut.lake, "documents"))}) == 150
    assert not make_plan(cut).has_work()


def test_the_notes_of_a_file_follow_its_splits(client: Client, cut: Recipe) -> None:
    """A note about a part that is read in other parts now is removed."""
    uri = storage.normalize(cut.source.paths[0]) + "/b.jsonl"
    Quarantine(str(cut.lake)).put("documents", uri, "3-77", "out of memory")
    Quarantine(str(cut.lake)).put("documents", f"{uri}.gz", "", "no longer there")
    assert run(cut, cluster=client).ok
    [note] = Quarantine(str(cut.lake)).notes()
    assert note.source == f"{uri}.gz"
