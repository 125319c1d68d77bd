"""Between a repair and the next run, a duplicate may name a keeper that this run reads again."""

from contextlib import suppress

import pytest
from distributed import Client

from etl.audit.verify.verify import verify
from etl.job.run import run
from etl.lake.unit_files import unit_files
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_parquet
from tests.helpers.damage import file_of, open_table
from tests.helpers.lake_rows import rows, rows_by_table
from tests.helpers.overlapping_runs import KilledError, killed_at
from tests.helpers.paths import at


@pytest.fixture
def grown(client: Client, changing: Recipe) -> Recipe:
    """A lake of a file in several splits, and a later file that repeats some documents of the last split."""
    for path in at(changing.source.path).iterdir():
        path.unlink()
    write_parquet(at(changing.source.path) / "a.parquet", records(0, 140), group=20)
    assert run(changing, cluster=client).ok
    write_parquet(at(changing.source.path) / "b.parquet", records(130, 160))
    assert run(changing, cluster=client).ok
    return changing


def lose_keepers(recipe: Recipe, *, all_splits: bool) -> None:
    """Lose the documents of ``a.parquet``, or those that ``b.parquet`` repeats, and repair the lake."""
    for data_file in unit_files(open_table(recipe, "documents"), "partition.verdict"):
        is_lost = all_splits or data_file["max.row"] > 130
        if is_lost and data_file["min.source"].endswith("a.parquet"):
            file_of(recipe, "documents", data_file["path"]).unlink(missing_ok=True)
    assert repair(recipe.lake, drop=True).left == []


def sources(recipe: Recipe) -> set[str]:
    """Return the names of the input files with documents in the lake."""
    return {row["source"].rpartition("/")[2] for row in rows(recipe.lake, "documents")}


@pytest.mark.parametrize("all_splits", [True, False])
def test_a_keeper_that_the_next_run_reads_again_is_not_a_problem(
    client: Client, grown: Recipe, monkeypatch: pytest.MonkeyPatch, *, all_splits: bool
) -> None:
    """Neither before that run, nor if it ends between its commits."""
    before = rows_by_table(grown)
    lose_keepers(grown, all_splits=all_splits)
    assert ("a.parquet" in sources(grown)) != all_splits
    commits = 0
    while rows_by_table(grown) != before:
        assert verify(grown.lake) == []
        assert not repair(grown.lake).has_changes
        commits += 1
        with killed_at(1, monkeypatch), suppress(KilledError):
            run(grown, cluster=client)
    assert commits > 1
    assert run(grown, cluster=client).ok
    assert rows_by_table(grown) == before


@pytest.mark.parametrize("all_splits", [True, False])
def test_a_keeper_whose_input_file_is_gone_is_a_problem(
    client: Client, grown: Recipe, *, all_splits: bool
) -> None:
    """A repair drops the decisions that name it: a document that was left out for it is not lost."""
    lose_keepers(grown, all_splits=all_splits)
    (at(grown.source.path) / "a.parquet").unlink()
    assert {problem.table for problem in verify(grown.lake)} == {"duplicates"}
    assert repair(grown.lake, drop=True).left == []
    assert verify(grown.lake) == []
    assert run(grown, cluster=client, drop_missing=True).ok
    assert verify(grown.lake) == []
    assert sources(grown) == {"b.parquet"}
