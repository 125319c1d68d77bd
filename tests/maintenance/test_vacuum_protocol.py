"""A vacuum is suspended before any of its operations while others need files again, and the other way round.

Whatever comes in between: the newest versions and each release keep all their files.
"""

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path

import deltalake
import pytest
from distributed import Client
from upath import UPath

from etl import storage
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import ConflictError, TokenlakeError
from etl.job.run import run
from etl.lake import leases, releases
from etl.lake.table_specs import SPECS
from etl.maintenance.repair import repair
from etl.maintenance.vacuum import vacuum
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_parquet
from tests.helpers.paths import NewPlace, at
from tests.helpers.recipes import small_recipe
from tests.helpers.stopping_jobs import SHORT, Ended, StoppingJobs, shorten_leases

pytestmark = pytest.mark.local_only  # the files are made old by hand

NOTHING = timedelta(0)
_TWO_DAYS = 2 * 86_400


def every(step: int) -> pytest.MarkDecorator:
    """Stop before some operations: the first of them, and the distance to the next one."""
    slow = (pytest.param(n, 4, marks=pytest.mark.slow) for n in range(4))
    return pytest.mark.parametrize(("first", "step"), [(3, step), *slow])


@pytest.fixture(scope="module")
def jobs() -> Iterator[StoppingJobs]:
    server = StoppingJobs()
    yield server
    server.close()


@pytest.fixture(scope="module")
def old(client: Client, new_place: NewPlace, tiny_tokenizer: Path) -> Recipe:
    """The recipe of a lake of which one input file was replaced two days ago."""
    folder = new_place("old")
    recipe = small_recipe(folder / "crawl", folder / "lake", tiny_tokenizer)
    write_parquet(folder / "crawl" / "a.parquet", records(0, 20))
    write_parquet(folder / "crawl" / "b.parquet", records(20, 40))
    assert run(recipe, cluster=client).ok
    write_parquet(folder / "crawl" / "a.parquet", records(60, 70))
    assert run(recipe, cluster=client, replace_changed=True).ok
    make_older(Path(recipe.lake))
    return recipe


class Lake:
    """A lake that is copied again for each interleaving."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.url = str(folder / "lake")
        self._source = source
        self.restore()

    def restore(self) -> None:
        shutil.rmtree(self.url, ignore_errors=True)
        shutil.copytree(self._source, self.url)

    def tables(self) -> Iterator[Table]:
        """Yield the newest version of each table, and the versions of all releases."""
        for name in SPECS:
            if Table.exists(url := storage.join(self.url, name)):
                yield Table.open(url)
        for release in releases.list_releases(self.url):
            for name, version in release.versions.items():
                yield releases.open_version(storage.join(self.url, name), version)

    def missing(self) -> list[str]:
        """Return the files that are needed but do not exist."""
        return [
            f"{table.url} version {table.version}: {file['path']}"
            for table in self.tables()
            for file in table.files("path")
            if not at(table.url).joinpath(file["path"]).exists()
        ]

    def delete_rows(self) -> None:
        """Delete all rows of the newest documents, as another program does."""
        deltalake.DeltaTable(f"{self.url}/documents").delete()
        make_older(Path(self.url))


@pytest.fixture
def lake(old: Recipe, place: UPath) -> Lake:
    return Lake(Path(place), Path(old.lake))


def make_older(folder: Path) -> None:
    then = time.time() - _TWO_DAYS
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def create(lake: Lake) -> bool:
    """Create a release of an old version; return whether that was possible."""
    try:
        releases.create_release(lake.url, "old", version=1)
    except TokenlakeError:
        return False
    return True


@every(12)
def test_a_release_during_a_vacuum(jobs: StoppingJobs, lake: Lake, first: int, step: int) -> None:
    outcomes = set()
    for stop in count(first, step):
        lake.restore()
        if jobs.start("vacuum", lake.url, stop) is not None:
            break
        is_created = create(lake)
        ended = jobs.resume()
        assert ended.is_done, ended.output
        assert [release.name for release in releases.list_releases(lake.url)] == [
            "old"
        ] * is_created
        assert lake.missing() == []
        outcomes.add(is_created)
    assert outcomes == {True, False}


def test_a_vacuum_during_a_release(jobs: StoppingJobs, lake: Lake) -> None:
    ends: list[bool] = []
    for stop in count():
        lake.restore()
        if jobs.start("release", lake.url, stop) is not None:
            break
        vacuum(lake.url, retain=NOTHING, delete=True)
        ended = jobs.resume()
        names = [release.name for release in releases.list_releases(lake.url)]
        assert names == ["stopped"] * ended.is_done, ended.output
        assert lake.missing() == []
        ends.append(ended.is_done)
    assert {*ends} == {True, False}


@pytest.mark.slow
@every(12)
def test_a_vacuum_that_sleeps_longer_than_its_lease(
    jobs: StoppingJobs, lake: Lake, first: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another vacuum and a release come first, each of which sees what the other one has left."""
    for name in ("LIFETIME", "_COMMIT_TIME", "_RENEW_SECONDS"):
        monkeypatch.setattr(leases, name, getattr(leases, name))
    shorten_leases()
    ends: list[Ended] = []
    for stop in count(first, 2 * step):
        lake.restore()
        if jobs.start("vacuum", lake.url, stop, is_short=True) is not None:
            break
        time.sleep(SHORT.total_seconds() + 0.1)
        if stop % 2:
            create(lake)
            vacuum(lake.url, retain=NOTHING, delete=True)
        else:
            vacuum(lake.url, retain=NOTHING, delete=True)
            create(lake)
        ends.append(jobs.resume())
        assert lake.missing() == []
        assert vacuum(lake.url, retain=NOTHING, delete=True).deleted
        assert lake.missing() == []
        assert verify(lake.url, quick=True) == []
    stopped = [end.output for end in ends if not end.is_done]
    assert stopped
    assert all("was not renewed" in output for output in stopped)


@every(36)
def test_a_foreign_change_is_undone_during_a_vacuum(
    jobs: StoppingJobs, lake: Lake, first: int, step: int
) -> None:
    for stop in count(first, step):
        lake.restore()
        lake.delete_rows()
        if jobs.start("vacuum", lake.url, stop) is not None:
            break
        if stop % 2:
            with suppress(ConflictError):  # stopped between its record and the copy of that
                assert repair(lake.url, drop=True).restored
        assert jobs.resume().is_done
        repair(lake.url, drop=True)
        assert lake.missing() == []
        assert verify(lake.url) == []


def test_two_vacuums_and_releases_at_once(lake: Lake) -> None:
    def delete(_: int) -> bool:
        try:
            return vacuum(lake.url, retain=NOTHING, delete=True).deleted
        except TokenlakeError:
            return False

    with ThreadPoolExecutor(3) as pool:
        done = pool.map(delete, range(2))
        created = pool.submit(create, lake)
        list(done)
    assert created.result() == bool(releases.list_releases(lake.url))
    assert lake.missing() == []
