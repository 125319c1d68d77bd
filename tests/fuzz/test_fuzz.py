"""Whatever stands in a file or a recipe, only errors of our own come out. `make fuzz` looks for longer."""

import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz import mutate, targets

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("target", targets.TARGETS)
def test_sound_files_are_read(target: str) -> None:
    for content in targets.seeds(target):
        assert targets.run(target, content) in ("read", "loaded")


@pytest.mark.parametrize("target", targets.TARGETS)
def test_what_was_found_before(target: str) -> None:
    """Inputs that once crashed, hung or grew, and others worth keeping."""
    before = _peak_kb()
    for path in sorted((CORPUS / target).glob("*")):
        targets.run(target, path.read_bytes())
    assert _peak_kb() - before < 500_000


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("target", targets.TARGETS)
def test_nearly_sound_files(target: str) -> None:
    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(mutate.mutated(targets.seeds(target)))
    def holds(content: bytes) -> None:
        targets.run(target, content)

    holds()
