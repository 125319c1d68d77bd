"""About how many seconds each test of the chaos suite takes, to divide it into equal parts."""

from collections.abc import Mapping
from typing import Final

import pytest

_SECONDS: Final[Mapping[str, float]] = {
    "test_faults_on_s3_do_not_change_the_result": 40,
    "test_faults_on_local_disk_do_not_change_the_result": 20,
    "test_a_run_continues_after_a_power_failure": 20,
    "test_a_scratch_lake_is_repaired_after_a_power_failure": 20,
    "test_a_vacuum_keeps_what_a_repair_adds_again[vacuum": 25,
    "test_a_vacuum_keeps_what_a_repair_adds_again[repair": 50,
    "test_a_stopped_vacuum_deletes_nothing_that_is_needed": 30,
    "test_a_pause_before_any_operation_does_no_harm[plain": 15,
    "test_a_pause_before_any_operation_does_no_harm[replace_changed": 25,
    "test_a_pause_before_any_operation_does_no_harm[rebuild": 35,
    "test_a_pause_before_any_operation_does_no_harm[repair": 35,
    "test_a_pause_before_any_operation_does_no_harm[optimize": 15,
    "test_a_pause_before_any_operation_does_no_harm[shuffle": 18,
    "test_a_pause_before_any_operation_does_no_harm[vacuum": 8,
    "test_a_kill_before_any_operation_does_no_harm": 20,
}
"""By the beginning of their names: seconds of CPU time and of waiting on a machine with two cores."""

_OTHERS: Final = 3.0


def seconds(item: pytest.Item) -> float:
    """Return the seconds that a test takes."""
    found = (weight for start, weight in _SECONDS.items() if item.name.startswith(start))
    return next(found, _OTHERS)
