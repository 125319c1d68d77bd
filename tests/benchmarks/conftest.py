"""Make the packages of ``benchmarks/`` importable, as they are for its scripts."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture(autouse=True, scope="session")
def _importable() -> None:
    sys.path.append(str(BENCHMARKS))
