"""`etl status` prints live and dead jobs, tables, quarantined inputs and the last run."""

import json
import os
import socket
from datetime import timedelta
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.audit.lake_report import report
from etl.audit.lake_status import lake_status
from etl.compute.listener import Progress
from etl.errors import TableError
from etl.job.run import run
from etl.lake import leases
from etl.lake.leases import LIFETIME, hold_lease
from etl.recipe.recipe import Recipe
from tests.helpers.cli import etl
from tests.helpers.lake_rows import rows
from tests.helpers.listeners import Calls


def test_a_lake_without_jobs_says_so_and_shows_its_last_run(made: Recipe) -> None:
    status = lake_status(str(made.lake))
    assert status.jobs == []
    assert [table.name for table in status.tables] == list(
        reversed(["tokens", "keys", "duplicates", "texts", "documents"])
    )
    assert {t.name: t.rows for t in status.tables}["tokens"] == len(list(rows(made.lake, "tokens")))
    last = status.last_run
    assert last is not None
    versions = {table.name: table.version for table in status.tables}
    assert last.versions == versions, "the last run wrote all tables"
    assert (last.recipe, last.run.quarantined) == (made.name, len(status.quarantined))
    assert last.run.documents.rows == last.run.documents.kept + sum(
        last.run.documents.rejected.values()
    )
    assert last.run.tokens["tokens"].tokens > 0
    text = etl("status", made.lake).stdout
    assert "no job is running" in text
    assert f"last run    {last.run_id} of {made.name}, ended " in text
    assert (
        json.loads(etl("status", made.lake, "--json").stdout)["last_run"]["run_id"] == last.run_id
    )


def test_the_report_prints_what_runs_have_used(made: Recipe) -> None:
    last, first = report(str(made.lake)).runs
    assert last.estimate is not None
    assert 0 < last.used.stored_bytes < first.used.stored_bytes
    text = etl("report", made.lake).stdout
    (header,) = [line for line in text.splitlines() if line.startswith("cost ")]
    assert header.split() == ["cost", "estimated", "run", last.run_id, "all", "2", "runs"]
    assert "core-hours" in text


def test_a_live_run_shows_its_plan_and_progress(
    client: Client, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_RENEW_SECONDS", 0.01)
    seen: list[str] = []

    def look(progress: Progress) -> None:
        if progress.step != "documents" or not progress.done or seen:
            return
        while (state := lake_status(str(recipe.lake)).jobs[0].run) is None or not state.done:
            pass
        seen.append(etl("status", recipe.lake).stdout)
        (job,) = lake_status(str(recipe.lake)).jobs
        assert (job.kind, job.host, job.process) == ("run", socket.gethostname(), os.getpid())
        assert job.is_alive
        assert state.total == state.splits == progress.total > 1
        assert 0 < state.done_bytes < state.total_bytes == state.input_bytes
        assert job.bytes_per_second is not None
        assert job.step_ends is not None

    assert run(recipe, cluster=client, listener=Calls(progress=look)).ok
    (text,) = seen
    assert f" on {socket.gethostname()}, process {os.getpid()}, started " in text
    assert "  documents  1/" in text
    assert " left (until " in text
    assert lake_status(str(recipe.lake)).jobs == []


def test_the_lease_of_a_dead_job_is_shown_as_dead(place: UPath) -> None:
    lake = str(place)
    with hold_lease(lake, "optimize") as held:
        status = lake_status(lake)
        assert [(job.kind, job.is_alive, job.run) for job in status.jobs] == [
            ("optimize", True, None)
        ]
        assert (status.tables, status.last_run) == ([], None)
        (job,) = lake_status(lake, now=held.now() + LIFETIME + timedelta(seconds=1)).jobs
        assert not job.is_alive


def test_a_damaged_lease_is_a_job_of_an_unknown_kind(place: UPath) -> None:
    (place / "leases").mkdir(parents=True)
    (place / "leases" / "run-a.json").write_text("{")
    (job,) = lake_status(str(place)).jobs
    assert (job.kind, job.run) == ("unknown", None)
    assert "unknown" in etl("status", place).stdout


def test_no_lake_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="no lake at this URL"):
        lake_status(str(tmp_path / "none"))
    assert etl("status", tmp_path / "none").exit_code == 1
