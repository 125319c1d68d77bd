"""A lease is held while its job runs, is renewed, and expires after its job has died."""

from datetime import UTC, datetime, timedelta

import pytest
from upath import UPath

from etl.errors import StorageError
from etl.lake import leases


def test_a_lease_is_held_inside_its_block(place: UPath) -> None:
    lake = str(place)
    with leases.hold_lease(lake, "run") as first, leases.hold_lease(lake, "optimize") as second:
        assert leases.active_leases(lake) == [first, second]
        assert (first.kind, second.kind) == ("run", "optimize")
    assert leases.active_leases(lake) == []


def test_a_lease_is_renewed(place: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_RENEW_SECONDS", 0.01)
    with leases.hold_lease(str(place), "run") as held:
        while (current := leases.active_leases(str(place))[0]).renewed == held.renewed:
            pass
        assert current.since == held.since < datetime.fromisoformat(held.started)


def test_the_lease_of_a_dead_job_expires(place: UPath, monkeypatch: pytest.MonkeyPatch) -> None:
    with leases.hold_lease(str(place), "run") as held:
        renewed = datetime.fromisoformat(held.renewed)
        assert held.is_alive(renewed + leases.LIFETIME / 2)
        assert not held.is_alive(renewed + leases.LIFETIME)
        long_ago = datetime.now(UTC) - timedelta(hours=1)
        monkeypatch.setattr(leases, "_now", long_ago.isoformat)
        with leases.hold_lease(str(place), "run"):
            assert leases.active_leases(str(place)) == [held]


@pytest.mark.local_only  # in an object store, a file cannot block a folder
def test_a_lease_on_an_unwritable_lake_is_refused(place: UPath) -> None:
    (place / "lake").write_text("in the way")
    with (
        pytest.raises(StorageError, match="cannot be"),
        leases.hold_lease(str(place / "lake"), "run"),
    ):
        pass
