"""After a power failure, no log refers to a file that is missing or short, and a run continues.

The recorded tests run everywhere: they check the order in which a run syncs, creates and names files. Tests
with a disk lose what has not reached it; they need root, loop devices and ext4.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from distributed import Client

from etl import storage
from etl.audit.verify.verify import verify
from etl.delta.log_damage import find_damage
from etl.delta.table import Table
from etl.errors import TableError
from etl.job.run import run
from etl.job.shuffle import shuffle
from etl.lake.commit_info import input_versions
from etl.lake.table_specs import SHUFFLED, SPECS
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.killed_runs import Outcome, end_run, outcome, start_run
from tests.helpers.lake_rows import rows
from tests.helpers.paths import NewPlace
from tests.helpers.power_cut import Disk, mounted_disk, why_impossible
from tests.helpers.recipes import MakeRecipe
from tests.helpers.sync_recorder import Operation, read_operations, recorded_environment

pytestmark = pytest.mark.local_only

_MANY = [
    ("documents", 0),
    ("documents", 2),
    ("documents", 5),
    ("duplicates", 0),
    ("duplicates", 1),
    ("keys", 1),
    ("tokens", 0),
    ("tokens", 3),
    ("tokens_shuffled", 0),
]
MOMENTS = [
    pytest.param("documents", 3, marks=pytest.mark.slow),
    *(pytest.param(*each, marks=pytest.mark.chaos) for each in _MANY),
]
SCRATCH_MOMENTS = [
    pytest.param(*each, marks=pytest.mark.chaos) for each in (("documents", 3), ("tokens", 2))
]
"""Tables, and the versions from which on the power is cut."""


@pytest.fixture(scope="module")
def undisturbed(client: Client, make_recipe: MakeRecipe, new_place: NewPlace) -> Outcome:
    recipe = make_recipe(new_place("undisturbed") / "lake")
    run(recipe, cluster=client)
    return outcome(recipe)


@dataclass(frozen=True)
class Site:
    """A recipe whose lake is on a disk that may lose its power."""

    disk: Disk
    recipe: Recipe
    folder: Path

    def newest(self, name: str) -> int:
        """Return the newest version of a table by the names of its log entries, or -1."""
        log = storage.local_path(storage.join(self.recipe.lake, name)) / "_delta_log"
        return max((int(path.stem) for path in log.glob("[0-9]*.json")), default=-1)

    def cut_during_run(self, name: str, version: int) -> dict[str, int]:
        """Cut the power when a table has a version; return the versions of all tables before."""
        file = self.folder / "recipe.yaml"
        file.write_text(self.recipe.to_yaml())
        process = start_run(file, "shuffle")
        try:
            while process.poll() is None and self.newest(name) < version:
                time.sleep(0.01)
            assert process.poll() in (None, 0)
            os.killpg(process.pid, signal.SIGSTOP)
            versions = {name: self.newest(name) for name in SPECS}
            if os.environ.get("TOKENLAKE_SYNC") == "off":
                self.disk.sync_metadata()
        finally:
            end_run(process)
            process.wait()
        wait_for_end(process.pid)
        self.disk.cut_power()
        return versions


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync files as outside tests."""
    monkeypatch.setenv("TOKENLAKE_SYNC", "on")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if why := why_impossible():
        pytest.skip(why)
    with mounted_disk(tmp_path) as disk:
        yield disk


@pytest.fixture
def site(make_recipe: MakeRecipe, disk: Disk, tmp_path: Path) -> Site:
    return Site(disk, make_recipe(str(disk.folder / "new" / "lake")), tmp_path)


@pytest.mark.slow
def test_a_commit_refers_only_to_synced_files(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe(str(tmp_path / "new" / "lake"))
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml())
    environment = recorded_environment(tmp_path)
    command = [sys.executable, "-m", "tests.helpers.driver", str(file), "shuffle"]
    subprocess.run(command, env=environment, check=True)
    logs = {storage.local_path(Table.open(url).url) for url in tables(recipe)}
    assert len(logs) == 6
    order = Order()
    for operation in read_operations(tmp_path):
        order.apply(operation)
    for log in logs:
        newest = Table.open(str(log)).version
        assert order.commits[log] == newest + 1
        assert order.is_durable(entry(log, newest))


def test_a_cut_loses_what_is_not_synced(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = storage.normalize(disk.folder / "new" / "folder")
    assert storage.create_if_absent(f"{uri}/synced", b"x" * 5000)
    monkeypatch.setenv("TOKENLAKE_SYNC", "off")
    assert storage.create_if_absent(f"{uri}/not-synced", b"x" * 5000)
    disk.sync_metadata()
    disk.cut_power()
    assert storage.read_bytes(f"{uri}/synced") == b"x" * 5000
    assert storage.read_bytes(f"{uri}/not-synced") == b""


@pytest.mark.parametrize(("name", "version"), MOMENTS)
def test_a_run_continues_after_a_power_failure(
    client: Client, site: Site, undisturbed: Outcome, name: str, version: int
) -> None:
    before = site.cut_during_run(name, version)
    after = {name: site.newest(name) for name in SPECS}
    lost = [before[name] - after[name] for name in SPECS if after[name] < before[name]]
    assert lost in ([], [1]), "more was lost than the entry whose commit had not returned"
    recipe = site.recipe
    problems = verify(str(recipe.lake)) if after["documents"] >= 0 else []
    assert [problem for problem in problems if problem.file is not None] == []
    tables = [storage.join(recipe.lake, name) for name in SPECS]
    assert [url for url in tables if find_damage(url, newest=0).files] == []
    assert run(recipe, cluster=client).ok
    shuffle(str(recipe.lake), cluster=client)
    assert outcome(recipe) == undisturbed
    assert rows(recipe.lake, SHUFFLED.name) == undisturbed["tokens"]


@pytest.mark.parametrize(("name", "version"), SCRATCH_MOMENTS)
def test_a_scratch_lake_is_repaired_after_a_power_failure(
    client: Client,
    site: Site,
    undisturbed: Outcome,
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str,
    version: int,
) -> None:
    monkeypatch.setenv("TOKENLAKE_SYNC", "off")
    site.cut_during_run(name, version)
    entries = list(site.disk.folder.rglob("_delta_log/*.json"))
    assert len(entries) > version
    assert all(path.stat().st_size == 0 for path in entries), "their content was lost"
    with pytest.raises(TableError, match="`etl repair"):
        run(site.recipe, cluster=client)
    assert repair(str(site.recipe.lake), drop=True).logs
    assert run(site.recipe, cluster=client).ok
    assert outcome(site.recipe) == undisturbed


def wait_for_end(group: int) -> None:
    """Wait until no process of a group is left."""
    while True:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)


def tables(recipe: Recipe) -> list[str]:
    lake = str(recipe.lake)
    return [url for name in SPECS if Table.exists(url := storage.join(lake, name))]


def entry(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


class Order:
    """The operations of all processes: which files would be there after a power failure, and when."""

    def __init__(self) -> None:
        self.commits: Counter[Path] = Counter()  # by table
        self._synced: set[Path] = set()  # files whose content is on the disk
        self._folders: set[Path] = set()  # created by these processes
        self._new: set[Path] = set()  # names that are not on the disk yet
        self._named: set[Path] = set()  # names that are

    def apply(self, operation: Operation) -> None:
        """Apply an operation, and check that it refers only to durable files."""
        kind, *paths = operation
        target = Path(paths[-1])
        if kind == "mkdir":
            self._folders.add(target)
            self._new.add(target)
        elif kind == "sync" and target.is_dir():
            done = {path for path in self._new if path.parent == target}
            self._new -= done
            self._named |= done
        elif kind == "sync":
            self._synced.add(target)
            self._new.add(target)
        elif kind in ("link", "replace"):
            assert Path(paths[0]) in self._synced, f"{target} was named before it was synced"
            if target.parent.name == "_delta_log" and target.suffix == ".json":
                self._check_entry(target)
            self._synced.add(target)
            self._new.add(target)

    def is_durable(self, path: Path) -> bool:
        """Return whether the content of a file, its name and the names of its folders are on the disk."""
        folders = [folder for folder in path.parents if folder in self._folders]
        return path in self._synced and self._named.issuperset([path, *folders])

    def _check_entry(self, path: Path) -> None:
        """Check what a log entry refers to: data files, the entry before, and versions of other tables."""
        table, version = path.parent.parent, int(path.stem)
        self.commits[table] += 1
        needed = [entry(table, version - 1)] if version else []
        for action in map(json.loads, path.read_text().splitlines()):
            needed += [table / action["add"]["path"]] if "add" in action else []
            inputs = input_versions(action.get("commitInfo", {}))
            needed += [entry(table.parent / name, number) for name, number in inputs.items()]
        assert [str(file) for file in needed if not self.is_durable(file)] == [], path
