"""About how many seconds each test of the chaos suite takes, to divide it into equal parts."""

from collections.abc import Mapping
from typing import Final

import pytest

_SECONDS: Final[Mapping[str, float]] = {
    "test_faults_on_s3_do_not_change_the_result": 45,
    "test_faults_on_local_disk_do_not_change_the_result": 20,
    "test_a_run_continues_after_a_power_failure": 20,
    "test_a_scratch_lake_is_repaired_after_a_power_failure": 20,
    "test_a_pause_before_any_operation_does_no_harm": 18,
    "test_a_kill_before_any_operation_does_no_harm": 12,
}
"""Measured on an idle machine with two cores: seconds of CPU time and of waiting."""

_OTHERS: Final = 3.0


def seconds(item: pytest.Item) -> float:
    """Return the seconds that a test takes."""
    return _SECONDS.get(item.name.partition("[")[0], _OTHERS)
