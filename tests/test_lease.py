"""A lease stands while the work goes on, is renewed, and is no more when its job has died."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from etl import lease
from etl.errors import StorageError


def test_a_lease_stands_for_the_time_of_a_block(tmp_path: Path) -> None:
    lake = str(tmp_path)
    with lease.hold(lake, "run") as first, lease.hold(lake, "optimize") as second:
        assert lease.leases(lake) == [first, second]
        assert (first.kind, second.kind) == ("run", "optimize")
    assert lease.leases(lake) == []


def test_a_lease_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_RENEW_SECONDS", 0.01)
    with lease.hold(str(tmp_path), "run") as held:
        while (found := lease.leases(str(tmp_path))[0]).renewed == held.renewed:
            pass
        assert found.since == held.since


def test_the_lease_of_a_dead_job_holds_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lease.hold(str(tmp_path), "run") as held:
        assert held.is_alive(held.since + lease.LIFETIME / 2)
        assert not held.is_alive(held.since + lease.LIFETIME)
        long_ago = datetime.now(UTC) - timedelta(hours=1)
        monkeypatch.setattr(lease, "_now", long_ago.isoformat)
        with lease.hold(str(tmp_path), "run"):
            assert lease.leases(str(tmp_path)) == [held]


def test_a_lake_that_is_not_writable_gives_no_lease(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be"), lease.hold(str(tmp_path / "lake"), "run"):
        pass
