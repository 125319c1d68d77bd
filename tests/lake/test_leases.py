"""A lease is held while its job runs, is renewed, and expires after its job has died."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from upath import UPath

from etl.errors import StorageError, TableError
from etl.lake import leases
from etl.storage import checked_json


def now() -> datetime:
    return datetime.now(UTC)


def test_a_lease_is_held_inside_its_block(place: UPath) -> None:
    lake = str(place)
    with leases.hold_lease(lake, "run") as first, leases.hold_lease(lake, "optimize") as second:
        active = leases.active_leases(lake, first.now())
        # A store may tell whole seconds, and both start in the same one.
        held = {first.key: "run", second.key: "optimize"}
        assert {lease.key: lease.kind for lease in active} == held
        assert [lease.started for lease in active] == sorted(lease.started for lease in active)
    assert leases.active_leases(lake, now()) == []


def test_a_lease_is_renewed_and_keeps_its_start(
    place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_RENEW_SECONDS", 0.01)
    with leases.hold_lease(str(place), "run") as held:
        (first,) = leases.active_leases(str(place), now())
        while (current := leases.active_leases(str(place), now())[0]).renewed == first.renewed:
            pass
        assert current.since == first.since < held.started == current.started < current.renewed


def test_the_lease_of_a_dead_job_expires(place: UPath) -> None:
    with leases.hold_lease(str(place), "run") as held:
        renewed = held.now()
        assert leases.active_leases(str(place), renewed + leases.LIFETIME / 2)
        assert leases.active_leases(str(place), renewed + leases.LIFETIME) == []


@pytest.mark.parametrize("minutes", [-20, 20])
def test_the_clock_of_a_job_does_not_matter(
    place: UPath, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    wrong, right = timedelta(minutes=minutes), time.time
    monkeypatch.setattr(time, "time", lambda: right() + wrong.total_seconds())
    with leases.hold_lease(str(place), "run") as held:
        monkeypatch.undo()
        (lease,) = leases.active_leases(str(place), now())
        assert lease.started == held.started
        assert abs(lease.started - now()) < timedelta(minutes=10)


def test_a_lease_is_valid_from_its_first_write(place: UPath) -> None:
    """A job that is killed before its second write has no start in its file."""
    folder = place / "leases"
    folder.mkdir(parents=True)
    job = {"kind": "run", "key": "a", "host": "h", "process": 1}
    content = {**job, "started": None, "state": None}
    checked_json.write(str(folder / "run-a.json"), content)
    (lease,) = leases.active_leases(str(place), now())
    assert lease.started == lease.renewed


def test_a_job_whose_lease_has_expired_may_not_commit(
    place: UPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine slept: the clock that counts then has advanced, but nothing was renewed."""
    with leases.hold_lease(str(place), "run") as held:
        held.check()
        clock = time.clock_gettime
        slept = leases.LIFETIME.total_seconds()
        monkeypatch.setattr(time, "clock_gettime", lambda name: clock(name) + slept)
        for action in (held.check, held.renew):
            with pytest.raises(TableError, match="the lease of this run was not renewed"):
                action()
        monkeypatch.undo()
        with pytest.raises(TableError):  # for good
            held.check()


@pytest.mark.local_only  # in an object store, a file cannot block a folder
def test_a_lease_on_an_unwritable_lake_is_refused(place: UPath) -> None:
    (place / "lake").write_text("in the way")
    with (
        pytest.raises(StorageError, match="lake: the lake cannot be written"),
        leases.hold_lease(str(place / "lake"), "run"),
    ):
        pass


@pytest.mark.local_only
def test_the_error_of_a_job_is_reported_even_if_its_lease_cannot_be_removed(place: UPath) -> None:
    def fail() -> None:
        with leases.hold_lease(str(place), "run"):
            (place / "leases").rename(place / "moved")
            (place / "leases").write_text("a file, so that nothing below it can be removed")
            raise ValueError("the disk is read-only")

    with pytest.raises(ValueError, match="the disk is read-only"):
        fail()
