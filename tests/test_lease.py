"""A lease is held while its job runs, is renewed, and expires after its job has died."""

from datetime import UTC, datetime, timedelta

import pytest
from upath import UPath

from etl import lease
from etl.errors import StorageError


def test_a_lease_is_held_inside_its_block(place: UPath) -> None:
    lake = str(place)
    with lease.hold(lake, "run") as first, lease.hold(lake, "optimize") as second:
        assert lease.leases(lake) == [first, second]
        assert (first.kind, second.kind) == ("run", "optimize")
    assert lease.leases(lake) == []


def test_a_lease_is_renewed(place: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_RENEW_SECONDS", 0.01)
    with lease.hold(str(place), "run") as held:
        while (current := lease.leases(str(place))[0]).renewed == held.renewed:
            pass
        assert current.since == held.since < datetime.fromisoformat(held.started)


def test_the_lease_of_a_dead_job_expires(place: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    with lease.hold(str(place), "run") as held:
        renewed = datetime.fromisoformat(held.renewed)
        assert held.is_alive(renewed + lease.LIFETIME / 2)
        assert not held.is_alive(renewed + lease.LIFETIME)
        long_ago = datetime.now(UTC) - timedelta(hours=1)
        monkeypatch.setattr(lease, "_now", long_ago.isoformat)
        with lease.hold(str(place), "run"):
            assert lease.leases(str(place)) == [held]


@pytest.mark.here  # in an object store, a file cannot block a folder
def test_a_lease_on_an_unwritable_lake_is_refused(place: UPath) -> None:
    (place / "lake").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be"), lease.hold(str(place / "lake"), "run"):
        pass
