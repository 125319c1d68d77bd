"""While a dataset is read, a vacuum keeps the files of its version."""

import gc
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from etl.delta.table import Table
from etl.errors import LoaderError
from etl.lake import leases
from etl.loader import TokenDataset, TokenMixture, version_lease
from etl.maintenance.vacuum import vacuum
from tests.helpers.token_tables import MIXED, SMALL, make_lake
from tests.helpers.vacuums import announce

pytestmark = pytest.mark.local_only  # the files are made old by hand


@pytest.fixture
def old_lake(place, monkeypatch):
    """A lake whose version 2 lacks a file of version 1, both more than an hour old."""
    monkeypatch.setattr(version_lease, "_DELAY_S", 0.0)
    lake = make_lake(place, SMALL)
    Table.open(f"{lake}/tokens").commit([], remove=["000.parquet"], transactions={})
    for path in Path(lake).rglob("*"):
        os.utime(path, (0, 0))
    return lake


def jobs(lake):
    now = datetime.now(UTC)
    return [(lease.kind, dict(lease.versions)) for lease in leases.active_leases(lake, now)]


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_version_that_is_read_holds_a_lease(old_lake, workers):
    dataset = TokenDataset(old_lake, seq_len=7, shuffle=MIXED, version=1)
    assert jobs(old_lake) == []
    loader = DataLoader(dataset.batches(2), batch_size=None, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    held = [("train", {"tokens": 1})]
    wait_for(lambda: jobs(old_lake) == held)
    if not workers:
        list(iterator)
        assert jobs(old_lake) == held  # also between two epochs
    del iterator, loader, dataset
    gc.collect()
    if not workers:
        assert jobs(old_lake) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_an_evaluation_holds_a_lease_until_it_ends(old_lake, workers):
    evaluation = TokenDataset(old_lake, seq_len=7, version=1).evaluation(2)
    loaded = iter(DataLoader(evaluation, batch_size=None, num_workers=workers))
    next(loaded)
    wait_for(lambda: jobs(old_lake) == [("train", {"tokens": 1})])
    list(loaded)
    wait_for(lambda: jobs(old_lake) == [])
    batches = iter(evaluation)
    next(batches)
    wait_for(lambda: jobs(old_lake))
    del batches  # cut short
    wait_for(lambda: jobs(old_lake) == [])


def test_a_vacuum_keeps_the_files_of_a_version_that_is_read(old_lake, monkeypatch):
    monkeypatch.setattr(
        "etl.maintenance.unneeded_files.is_data_file", lambda path: path == "000.parquet"
    )
    # The vacuum begins while the lease is written, and the dataset would warn of it.
    monkeypatch.setattr(version_lease.VersionLease, "_check_vacuums", lambda *_: None)
    hour = timedelta(hours=1)
    assert [file.file for file in vacuum(old_lake, retain=hour).files] == ["000.parquet"]
    dataset = TokenDataset(old_lake, seq_len=7, version=1)
    batches = iter(dataset.batches(2))
    next(batches)
    wait_for(lambda: jobs(old_lake))
    result = vacuum(old_lake, retain=hour, delete=True)
    assert result.files == []
    assert result.jobs[0].startswith("train on tokens version 1 since ")
    assert len(list(batches)) == 17
    del dataset, batches
    gc.collect()
    assert [file.file for file in vacuum(old_lake, retain=hour).files] == ["000.parquet"]


def test_a_state_of_a_version_that_a_vacuum_has_deleted_names_it(old_lake, monkeypatch):
    monkeypatch.setattr(
        "etl.maintenance.unneeded_files.is_data_file", lambda path: path == "000.parquet"
    )
    dataset = TokenDataset(old_lake, seq_len=7, version=1)
    state = dataset.state_dict(consumed=3)
    mixture = TokenMixture({"web": dataset}, weights={"web": 1})
    mixed = mixture.state_dict(consumed=3)
    assert TokenDataset.from_state(old_lake, state).version == 1
    vacuum(old_lake, retain=timedelta(hours=1), delete=True)
    message = "lake/tokens: data files of version 1 were deleted by a vacuum"
    with pytest.raises(LoaderError, match=message):
        TokenDataset.from_state(old_lake, state)
    with pytest.raises(LoaderError, match=message):
        TokenMixture.from_state({"web": old_lake}, mixed)


def test_only_the_first_rank_holds_a_lease(old_lake, monkeypatch):
    for rank, expected in ((1, []), (0, ["train"])):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        dataset = TokenDataset(old_lake, seq_len=7)
        next(iter(dataset.batches(2)))
        time.sleep(0.1)
        wait_for(lambda names=expected: [kind for kind, _ in jobs(old_lake)] == names)


def read_to_the_end(lake):
    dataset = TokenDataset(lake, seq_len=7, version=1)
    assert len(list(dataset.batches(2))) == 18
    wait_for(lambda: jobs(lake) or Path(lake, "leases").is_file())
    time.sleep(0.1)
    dataset._versions.end()


def test_a_lake_that_is_read_only_can_be_read(old_lake):
    Path(old_lake, "leases").write_text("no folder can be created here")
    with pytest.warns(
        RuntimeWarning, match=r"version 1 may be deleted by `etl vacuum`.*etl release"
    ):
        read_to_the_end(old_lake)


def test_a_vacuum_that_began_earlier_is_reported(old_lake):
    lease = leases.HeldLease(old_lake, "vacuum")
    announce(f"{old_lake}/tokens", lease, last=1)
    with pytest.warns(RuntimeWarning, match="a vacuum that does not know of this job is under way"):
        read_to_the_end(old_lake)
    lease.release()
