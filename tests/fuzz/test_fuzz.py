"""No content of a file or recipe raises anything but TokenlakeError. `make fuzz` runs longer."""

import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import mutate, targets

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("target", targets.TARGETS)
def test_valid_inputs_are_read(target: str) -> None:
    for content in targets.seeds(target):
        assert targets.run(target, content) in ("read", "loaded")


@pytest.mark.parametrize("target", targets.TARGETS)
def test_saved_inputs_do_not_crash_or_exhaust_memory(target: str) -> None:
    """Inputs that once crashed, hung or used too much memory, and other useful ones."""
    before = _peak_kb()
    for path in sorted((CORPUS / target).glob("*")):
        targets.run(target, path.read_bytes())
    assert _peak_kb() - before < 500_000


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("target", targets.WITH_RECORDS)
def test_damage_in_a_record_costs_no_other(target: str) -> None:
    """Whatever one record contains, the others are read."""

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2), st.binary(max_size=40), st.integers(0, 400))
    def check(index: int, piece: bytes, offset: int) -> None:
        targets.check_no_loss(target, index, piece, offset)

    check()


@pytest.mark.parametrize("target", targets.TARGETS)
def test_mutated_inputs_do_not_crash(target: str) -> None:
    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(mutate.mutated(targets.seeds(target), target))
    def check(content: bytes) -> None:
        targets.run(target, content)

    check()
