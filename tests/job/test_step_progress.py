"""The progress of a step includes the documents of splits that workers still read."""

import pytest
from upath import UPath

from etl.compute import unit_log
from etl.job import step_progress, tasks
from etl.job.progress import Progress
from etl.job.run import run
from etl.recipe.recipe import Recipe
from tests.helpers.cluster import cluster
from tests.helpers.corpus import records, write_parquet


def test_documents_of_a_running_split_are_reported(
    place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_log, "_SECONDS", (0.0,))
    monkeypatch.setattr(step_progress, "_SECONDS", 0.0)
    monkeypatch.setattr(tasks, "_BATCH_BYTES", 20_000)
    write_parquet(place / "in" / "a.parquet", records(0, 2000))
    recipe = Recipe(
        name="web",
        source={"path": str(place / "in"), "columns": {"text": "body"}},
        lake=str(place / "lake"),
        stages=["gopher_quality"],
    )
    seen: list[Progress] = []
    with cluster() as client:  # its worker has the changed constants
        report = run(recipe, cluster=client, on_progress=seen.append)
    running = [each for each in seen if each.done == 0 and each.rows]
    assert running, "one split, and no progress before its end"
    rows = [each.rows for each in seen]
    assert rows == sorted(rows)
    assert rows[-1] == report.rows == 2000
    assert all(0 < each.done_bytes < each.total_bytes for each in running)
    assert all(each.kept <= each.rows and each.seconds_left is not None for each in running)
    assert (seen[-1].done, seen[-1].total, seen[-1].kept) == (1, 1, report.kept)
