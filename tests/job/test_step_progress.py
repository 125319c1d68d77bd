"""The progress of a step includes the documents of splits that workers still read."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from etl.compute import unit_log
from etl.compute.listener import Progress
from etl.compute.print_listener import progress_line
from etl.job import step_progress, tasks
from etl.job.run import run
from etl.job.step_progress import add_unit
from etl.lake.work_units import WorkResult
from etl.recipe.recipe import Recipe
from tests.helpers.cluster import cluster
from tests.helpers.corpus import records, write_parquet
from tests.helpers.listeners import Calls


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
        report = run(recipe, cluster=client, listener=Calls(progress=seen.append))
    running = [each for each in seen if each.done == 0 and each.rows]
    assert running, "one split, and no progress before its end"
    rows = [each.rows for each in seen]
    assert rows == sorted(rows)
    assert rows[-1] == report.rows == 2000
    assert all(0 < each.done_bytes < each.total_bytes for each in running)
    assert all(each.kept <= each.rows for each in running)
    assert running[-1].seconds_left is not None
    assert (seen[-1].done, seen[-1].total, seen[-1].kept) == (1, 1, report.kept)


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[int], int, float, float, float]:
    """Return the sizes of units, largest first, the workers, and their seconds per byte, unit and start."""
    sizes = sorted(draw(st.lists(st.integers(1_000, 10_000_000), min_size=1, max_size=200)))[::-1]
    seconds = st.floats(0, 100)
    return (
        sizes,
        draw(st.integers(1, 16)),
        draw(st.floats(1e-8, 1e-5)),
        draw(seconds),
        draw(seconds),
    )


@given(steps())
def test_the_time_left_is_that_of_the_simulated_rest(
    step: tuple[list[int], int, float, float, float],
) -> None:
    """Workers that start and compile for a minute do not make the rest of a step longer."""
    sizes, workers, per_byte, start, compiling = step
    progress = Progress("documents", 0, len(sizes), total_bytes=sum(sizes))
    free, clock = [start + compiling] * workers, 0.0
    ends = []
    for size in sizes:  # each unit goes to the worker that is free first
        at = free.index(min(free))
        free[at] += per_byte * size
        ends.append((free[at], size))
    compiled = compiling
    for clock, size in sorted(ends):
        costs = {"read": per_byte * size / 3, "write": per_byte * size * 2 / 3}
        result = WorkResult(key="", source="", rows=1, costs=costs, compile_seconds=compiled)
        progress = add_unit(progress, result, num_bytes=size, workers=workers)
        progress, compiled = replace(progress, seconds=clock), 0.0
        left, whole = progress.seconds_left, per_byte * sum(sizes)
        if progress.done == progress.total:
            assert left is None
        elif left is not None:
            rest = per_byte * (sum(sizes) - progress.done_bytes)
            assert left == pytest.approx(rest / min(workers, progress.total - progress.done))
            assert left <= whole
    assert clock == max(free)


def test_no_time_left_is_shown_after_a_tiny_unit() -> None:
    """Its share of the bytes says nothing: opening a file of 10 bytes takes as long as one of a megabyte."""
    tiny = WorkResult(key="", source="", rows=1, costs={"read": 0.02})
    start = Progress("documents", 0, 10_000, total_bytes=10**12)
    progress = add_unit(start, tiny, num_bytes=10, workers=4)
    assert progress.seconds_left is None
    assert " left" not in progress_line(progress)
    large = WorkResult(key="", source="", rows=1, costs={"read": 4.0})
    progress = add_unit(progress, large, num_bytes=10**8, workers=4)
    assert progress.seconds_left == pytest.approx(9_999 * 4.02 / 4, rel=0.01)
