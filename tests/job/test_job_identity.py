"""A job has one id, however often it plans, and it writes nothing before it holds a lease."""

from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl import schemas
from etl.audit.lake_report import report
from etl.audit.lake_status import lake_status
from etl.job import run as run_module
from etl.job.listing_notes import keep_findings
from etl.job.run import run
from etl.job.shuffle import ShuffleSettings, shuffle
from etl.lake import leases
from etl.lake.quarantine import Quarantine
from etl.lake.table_specs import open_tables
from etl.lake.table_versions import read_versions
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl, write_parquet
from tests.helpers.damage import delete, paths
from tests.helpers.listeners import Calls
from tests.helpers.recipes import small_recipe


def lineage(lake: object) -> list[schemas.Lineage]:
    """Return the lineage records of all tables of a lake."""
    versions = [v for table in open_tables(str(lake)).values() for v in read_versions(table)]
    return [version.lineage for version in versions if version.lineage is not None]


@pytest.fixture
def three(place: UPath, tiny_tokenizer: Path) -> Recipe:
    """A recipe over three small files."""
    for number in range(3):
        write_parquet(place / "in" / f"{number}.parquet", records(10 * number, 10 * number + 10))
    return small_recipe(place / "in", place / "lake", tiny_tokenizer)


def test_a_job_has_one_id(client: Client, three: Recipe, place: UPath) -> None:
    reported = [run(three, cluster=client), run(three, cluster=client, rebuild=True)]
    write_parquet(place / "in" / "1.parquet", records(50, 60))
    reported.append(run(three, cluster=client, replace_changed=True))
    ids = [each.run_id for each in reported]
    assert {record.run_id for record in lineage(three.lake)} == {*ids}
    assert len({record.started for record in lineage(three.lake)}) == 3

    for settings in (ShuffleSettings(), ShuffleSettings(rebuild=True)):
        shuffle(str(three.lake), settings=settings, cluster=client)
    optimize(str(three.lake))
    delete(paths(three, "documents", "kept")[0])
    repair(str(three.lake), drop=True)
    of_jobs = [record for record in lineage(three.lake) if record.run_id not in ids]
    # A table from which the repair drops no rows begins the epoch, too.
    actions = {record.action for record in of_jobs} - {"epoch"}
    assert actions == {"append", "rebuild", "optimize", "repair"}
    assert len({record.run_id for record in of_jobs}) == 4, "two shuffles, one optimize, one repair"
    for job in {record.run_id for record in of_jobs}:
        assert len({each.started for each in of_jobs if each.run_id == job}) == 1

    assert [each.run_id for each in report(str(three.lake)).runs] == ids[::-1]
    last = lake_status(str(three.lake)).last_run
    assert last is not None
    assert last.run_id == ids[-1]


def test_a_run_that_drops_rows_records_what_it_has_done_itself(
    client: Client, three: Recipe, place: UPath
) -> None:
    run(three, cluster=client)
    write_parquet(place / "in" / "1.parquet", records(50, 60))
    last = run(three, cluster=client, replace_changed=True)
    drops = [record for record in lineage(three.lake) if record.action in ("drop", "epoch")]
    assert drops
    for record in drops:
        assert record.run_id == last.run_id
        assert record.run is not None
        assert record.run.documents.rows == 0, "it has read nothing yet"


@pytest.mark.local_only  # S3 has no links
def test_nothing_is_written_without_a_lease(
    client: Client, three: Recipe, place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Client) -> None:
        raise KeyboardInterrupt

    Path(place / "in" / "dangling.jsonl").symlink_to("nowhere")
    with pytest.raises(KeyboardInterrupt):
        run(three, cluster=client, listener=Calls(connected=stop))
    written = [path for path in (place / "lake").rglob("*") if path.is_file()]
    assert written == [], "the lease has been released"

    held: list[str] = []

    def keep(*args: object) -> None:
        held.extend(lease.kind for lease in leases.all_leases(str(three.lake)))
        keep_findings(*args)

    monkeypatch.setattr(run_module, "keep_findings", keep)
    assert run(three, cluster=client).num_quarantined == 1
    assert held == [], "there was work to do"
    assert run(three, cluster=client).num_quarantined == 1
    assert held == ["run"], "it writes the note again"
    (place / "in" / "dangling.jsonl").unlink()
    assert run(three, cluster=client).ok
    assert held == ["run", "run"], "it has removed the note"
    assert run(three, cluster=client).ok
    assert held == ["run", "run"], "it has written nothing"
    assert Quarantine(str(three.lake)).notes() == []


def test_a_run_without_work_and_findings_needs_no_lease(client: Client, place: UPath) -> None:
    write_jsonl(place / "in" / "a.jsonl", records(0, 5))
    source = {"path": str(place / "in"), "columns": {"text": "body"}}
    recipe = Recipe(name="r", source=source, lake=str(place / "lake"), stages=[])
    run(recipe, cluster=client)
    before = {path: path.stat().st_mtime for path in (place / "lake").rglob("*")}
    assert run(recipe, cluster=client).rows == 0
    assert {path: path.stat().st_mtime for path in (place / "lake").rglob("*")} == before
