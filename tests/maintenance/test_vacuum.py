"""A vacuum lists unneeded files first, and deletes only those."""

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed import Client
from upath import UPath

from etl.audit.verify.verify import verify
from etl.cli.commands.vacuum import lines
from etl.dataframe import read_table
from etl.delta.added_files import read_added_files
from etl.delta.table import Table
from etl.delta.vacuum_records import read_records, write_record
from etl.errors import ConflictError, LoaderError, TableError
from etl.job.run import run
from etl.lake import leases, releases
from etl.lake.scratch import remove_scratch
from etl.loader import TokenDataset
from etl.maintenance.vacuum import vacuum
from etl.parquet.data_file import DataFile, DataFileWriter
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_parquet
from tests.helpers.lakes import with_copied_input, with_copied_lake
from tests.helpers.paths import NewPlace, at, copy
from tests.helpers.uploads import begin_uploads
from tests.helpers.vacuums import announce

NOTHING = timedelta(0)
ORPHAN = "a" * 32 + "-0123456789ab-0.parquet"
aged = pytest.mark.local_only  # object stores do not let tests set a file's time


def files(lake: str) -> set[str]:
    """Return all files of a lake except the records of vacuums."""
    paths = (p for p in at(lake).rglob("*") if p.is_file() and "_vacuumed" not in p.parts)
    return {p.relative_to(at(lake)).as_posix() for p in paths}


def add_orphan(recipe: Recipe, kind: str = "tokens", *, days: float = 0.0) -> str:
    """Write a file that no commit names, with an age in days; return its path."""
    path = at(recipe.lake) / kind / ORPHAN
    path.write_bytes(b"PAR1")
    if days:
        then = time.time() - days * 86400
        os.utime(path, (then, then))
    return f"{kind}/{ORPHAN}"


@pytest.fixture(scope="module")
def replaced_once(client: Client, made: Recipe, new_place: NewPlace) -> Recipe:
    """The recipe of a shared lake in which one input file was replaced, read-only."""
    recipe = with_copied_input(made, new_place("replaced"))
    run(recipe, cluster=client)
    write_parquet(at(recipe.source.path) / "a.parquet", records(200, 230))
    run(recipe, cluster=client, replace_changed=True)
    return recipe


@pytest.fixture
def replaced(replaced_once: Recipe, place: UPath) -> Recipe:
    """The same recipe with a copy of its lake."""
    return with_copied_lake(replaced_once, place)


def test_a_lake_that_only_grew_keeps_all_files(recipe: Recipe) -> None:
    before = files(recipe.lake)
    result = vacuum(recipe.lake, retain=NOTHING, delete=True)
    assert (result.files, result.deleted) == ([], True)
    assert files(recipe.lake) == before
    assert len(read_table(recipe.lake, "tokens", 1))


@aged
def test_files_listed_first_are_those_deleted_later(replaced: Recipe) -> None:
    orphan = add_orphan(replaced, days=8)
    before = files(replaced.lake)
    shown = vacuum(replaced.lake, retain=NOTHING)
    assert files(replaced.lake) == before
    done = vacuum(replaced.lake, retain=NOTHING, delete=True)
    assert done.files == shown.files
    deleted = {f"{file.table}/{file.file}" for file in done.files}
    assert files(replaced.lake) == before - deleted
    assert orphan in deleted
    tables = {"documents", "texts", "duplicates", "keys", "tokens"}
    assert {file.table for file in done.files} == tables
    assert done.size == sum(file.size for file in done.files) > 0
    assert verify(replaced.lake) == []
    assert vacuum(replaced.lake, retain=NOTHING, delete=True).files == []


@aged
def test_files_within_the_retention_stay(replaced: Recipe) -> None:
    old, young = add_orphan(replaced, days=8), add_orphan(replaced, "documents", days=6)
    before = files(replaced.lake)
    vacuum(replaced.lake, delete=True)
    assert files(replaced.lake) == before - {old}
    vacuum(replaced.lake, retain=timedelta(days=5), delete=True)
    assert files(replaced.lake) == before - {old, young}
    assert len(read_table(replaced.lake, "tokens", 1)), "replaced just now"


@aged
def test_an_old_file_that_was_just_replaced_stays(replaced: Recipe) -> None:
    for path in Path(replaced.lake).rglob("*.parquet"):
        os.utime(path, (0, 0))
    assert vacuum(replaced.lake).files == []
    assert vacuum(replaced.lake, retain=NOTHING).files


@aged
@pytest.mark.parametrize("stamp", [b'"timestamp":0,', b""])
def test_the_time_of_a_removal_is_the_time_of_its_log_entry(replaced: Recipe, stamp: bytes) -> None:
    """The clock of the writer does not matter, nor whether the commit has a timestamp."""
    for path in Path(replaced.lake).rglob("*.parquet"):
        os.utime(path, (0, 0))
    for entry in Path(replaced.lake).glob("*/_delta_log/*.json"):
        content = re.sub(rb'"timestamp":\d+,', stamp, entry.read_bytes())
        entry.write_bytes(re.sub(rb',"(previous|checksum)":"[0-9a-f]*"', b"", content))
    assert vacuum(replaced.lake).files == []
    for entry in Path(replaced.lake).glob("*/_delta_log/*.json"):
        os.utime(entry, (0, 0))
    assert vacuum(replaced.lake).files


def test_a_minimum_retention_is_enforced(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etl.maintenance.vacuum.MIN_RETAIN", timedelta(hours=1))
    with pytest.raises(TableError, match="retained for at least 60 minutes, not 0.5"):
        vacuum(recipe.lake, retain=timedelta(seconds=30))


def test_a_run_with_a_wrong_clock_loses_no_file(
    client: Client, changing: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is behind when the run commits: its log entries and data files name earlier times."""
    behind = SimpleNamespace(time=lambda: time.time() - 20 * 60)
    assert run(changing, cluster=client).ok
    monkeypatch.setattr("etl.delta.commit.time", behind)
    write_parquet(at(changing.source.path) / "e.parquet", records(300, 330))
    before = files(changing.lake)
    report = run(changing, cluster=client)
    assert report.ok
    assert vacuum(changing.lake, retain=NOTHING, delete=True).files == []
    assert files(changing.lake) > before
    assert verify(changing.lake) == []


def test_a_run_whose_lease_has_expired_stops_before_it_commits(
    client: Client, changing: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, clock = DataFileWriter.close, time.clock_gettime

    def sleep(writer: DataFileWriter) -> list[DataFile]:
        slept = leases.LIFETIME.total_seconds()
        monkeypatch.setattr(time, "clock_gettime", lambda name: clock(name) + slept)
        return write(writer)

    monkeypatch.setattr(DataFileWriter, "close", sleep)
    with pytest.raises(TableError, match="the lease of this run was not renewed"):
        run(changing, cluster=client)
    assert Table.open(changing.table_url("documents")).data_files().num_rows == 0
    monkeypatch.undo()
    assert run(changing, cluster=client).ok


def test_the_files_of_a_release_stay(replaced: Recipe) -> None:
    releases.create_release(replaced.lake, "first", version=1)
    rows = read_table(replaced.lake, "tokens", 1).compute()
    vacuum(replaced.lake, retain=NOTHING, delete=True)
    again = read_table(replaced.lake, "tokens", "first").compute()
    assert again.equals(rows)
    assert TokenDataset(replaced.lake, seq_len=8, version="first").num_tokens == sum(
        rows["num_tokens"]
    )
    releases.remove_release(replaced.lake, "first")
    assert vacuum(replaced.lake, retain=NOTHING, delete=True).files


def test_opening_a_vacuumed_version_raises(replaced: Recipe) -> None:
    vacuum(replaced.lake, retain=NOTHING, delete=True)
    what = "data files of version 1 were deleted by a vacuum"
    with pytest.raises(LoaderError, match=what):
        TokenDataset(replaced.lake, seq_len=8, version=1)
    with pytest.raises(TableError, match=what):
        read_table(replaced.lake, "tokens", 1)
    with pytest.raises(TableError, match="were deleted by a vacuum"):
        releases.create_release(replaced.lake, "late", version=1)
    newest = Table.open(replaced.table_url("tokens")).version
    assert TokenDataset(replaced.lake, seq_len=8, version=newest).num_tokens


@aged
def test_files_that_a_running_job_may_need_stay(replaced: Recipe) -> None:
    with leases.hold_lease(replaced.lake, "run"):
        young, old = add_orphan(replaced), add_orphan(replaced, "documents", days=1)
        result = vacuum(replaced.lake, retain=NOTHING, delete=True)
        assert [job.split()[0] for job in result.jobs] == ["run"]
        assert young in files(replaced.lake)
        assert old not in files(replaced.lake)
    vacuum(replaced.lake, retain=NOTHING, delete=True)
    assert young not in files(replaced.lake)


def test_a_second_concurrent_vacuum_is_refused(recipe: Recipe) -> None:
    with (
        leases.hold_lease(recipe.lake, "vacuum"),
        pytest.raises(ConflictError, match="another vacuum"),
    ):
        vacuum(recipe.lake, delete=True)
    assert not any(path.startswith("leases/") for path in files(recipe.lake))


@aged
def test_foreign_files_are_left_alone(recipe: Recipe, tmp_path: Path) -> None:
    foreign = ("tokens/notes.txt", "tokens/part-00000-x.parquet", "other/" + ORPHAN, "tokens/_x/y")
    for name in foreign:
        (Path(recipe.lake) / name).parent.mkdir(exist_ok=True)
        (Path(recipe.lake) / name).write_bytes(b"")
        os.utime(Path(recipe.lake) / name, (0, 0))
    assert vacuum(recipe.lake, retain=NOTHING, delete=True).files == []
    assert set(foreign) <= files(recipe.lake)
    with pytest.raises(TableError, match="no lake at this URL"):
        vacuum(str(tmp_path / "none"))


@pytest.mark.slow
def test_vacuums_during_a_run_delete_nothing(
    client: Client, changing: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl.job.commit_policy._MOST_RESULTS", 1)
    write_parquet(at(changing.source.path) / "d.parquet", records(300, 700), group=10)
    results = []
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, changing, cluster=client)
        while not running.done():
            if Table.exists(changing.table_url("documents")):
                results.append(vacuum(changing.lake, retain=NOTHING, delete=True))
        assert running.result().ok
    assert any(result.jobs for result in results)
    assert not any(result.files for result in results)
    assert verify(changing.lake) == []


@pytest.mark.slow
def test_a_vacuum_on_s3_deletes_the_same_files(replaced: Recipe, s3: str) -> None:
    add_orphan(replaced)
    copy(replaced.lake, at(f"{s3}/lake"))
    time.sleep(1.1)  # its timestamps have a resolution of one second
    result = vacuum(f"{s3}/lake", retain=NOTHING, delete=True)
    assert len(result.files) == len(vacuum(replaced.lake, retain=NOTHING).files)
    assert verify(f"{s3}/lake") == []
    assert vacuum(f"{s3}/lake", retain=NOTHING).files == []
    with pytest.raises(TableError, match="deleted by a vacuum"):
        read_table(f"{s3}/lake", "tokens", 1)


@pytest.mark.slow
def test_a_vacuum_on_s3_aborts_old_uploads(recipe: Recipe, s3: str) -> None:
    copy(recipe.lake, at(f"{s3}/lake"))
    (uri,) = begin_uploads(f"{s3}/lake", f"tokens/{ORPHAN}")
    time.sleep(1.1)
    with leases.hold_lease(f"{s3}/lake", "run"):
        pass
    assert vacuum(f"{s3}/lake", delete=True).uploads == [], "it is young"
    shown = vacuum(f"{s3}/lake", retain=NOTHING)
    assert [upload.uri for upload in shown.uploads] == [uri]
    assert f"{uri}  unfinished upload since 20" in "\n".join(lines(shown))
    assert vacuum(f"{s3}/lake", retain=NOTHING, delete=True).uploads == shown.uploads
    assert vacuum(f"{s3}/lake", retain=NOTHING).uploads == []


@aged
def test_a_file_that_was_removed_twice_is_kept_for_a_release_of_its_first_time(
    replaced: Recipe,
) -> None:
    """A repair may add a file again that another program has removed; an optimize removes it then."""
    releases.create_release(replaced.lake, "first", version=1)
    tokens = Table.open(replaced.table_url("tokens"))
    removed = {file for commit in tokens.commits() for file in commit.remove}
    gone = {file.path for file in removed}
    again = tokens.commit(read_added_files(tokens.url, removed), transactions={})
    again.commit([], remove=gone, transactions={})
    for path in Path(replaced.lake).rglob("*"):
        os.utime(path, (0, 0))
    deleted = {file.file for file in vacuum(replaced.lake, retain=NOTHING, delete=True).files}
    assert not deleted & gone
    assert len(read_table(replaced.lake, "tokens", "first"))


@aged
def test_tables_of_others_below_a_lake_are_left_alone(recipe: Recipe, tmp_path: Path) -> None:
    """Another lake in a folder of a table, or in the scratch space, has files with our names."""
    part = "c0ffee00" * 4
    names = ("tokens/inner", "documents/verdict=kept", f"scratch/shuffle/{part}", "scratch/mine")
    foreign = []
    for name in names:
        folder = Path(recipe.lake) / name
        (folder / "_delta_log").mkdir(parents=True)
        for file in (ORPHAN, "plan.json", f"{part}.bin", f"_delta_log/{0:020}.json"):
            (folder / file).write_bytes(b"{}")
            foreign.append(f"{name}/{file}")
    notes = Path(recipe.lake) / "scratch" / "shuffle" / "notes.json"
    notes.write_bytes(b"{}")
    ours = Path(recipe.lake) / "scratch" / "shuffle" / part[::-1] / "plan.json"
    ours.parent.mkdir()
    ours.write_bytes(b"{}")
    for path in Path(recipe.lake).rglob("*"):
        os.utime(path, (0, 0))
    result = vacuum(recipe.lake, retain=NOTHING, delete=True)
    assert [f"{file.table}/{file.file}" for file in result.files] == [
        ours.relative_to(recipe.lake).as_posix()
    ]
    assert {*foreign, "scratch/shuffle/notes.json"} <= files(recipe.lake)
    remove_scratch(f"{recipe.lake}/scratch/shuffle")
    assert {*foreign, "scratch/shuffle/notes.json"} <= files(recipe.lake)
    assert not ours.parent.exists()


def test_a_vacuum_beside_a_repair_is_refused(recipe: Recipe) -> None:
    with (
        leases.hold_lease(recipe.lake, "repair"),
        pytest.raises(ConflictError, match="a repair of this lake is running"),
    ):
        vacuum(recipe.lake, delete=True)


@aged
def test_a_dry_run_writes_nothing(replaced: Recipe) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(replaced.lake).rglob("*")}
    assert vacuum(replaced.lake, retain=NOTHING).files
    assert {path: path.stat().st_mtime_ns for path in Path(replaced.lake).rglob("*")} == before


@aged
def test_the_next_vacuum_takes_over_the_records_of_dead_ones(replaced: Recipe) -> None:
    tokens = replaced.table_url("tokens")
    with leases.hold_lease(replaced.lake, "vacuum") as dead:
        announced = announce(tokens, dead, last=0)
    with leases.hold_lease(replaced.lake, "vacuum") as dead:
        decided = replace(announced, key=dead.key, versions=((0, 0),), is_decided=True)
    write_record(tokens, decided)
    vacuum(replaced.lake, retain=NOTHING, delete=True)
    (record,) = read_records(tokens)
    assert record.is_decided
    assert record.key not in (announced.key, decided.key)
    assert record.includes(0)
    assert record.includes(1)
