"""The seeds of the tests that run only with ``make chaos``."""

import os

import pytest

_SEEDS = [int(os.environ["CHAOS_SEED"])] if os.environ.get("CHAOS_SEED") else range(3, 203)
MANY = [pytest.param(seed, marks=pytest.mark.chaos) for seed in _SEEDS]
"""The seeds of tests that take a few seconds each, or the one of ``make chaos SEED=123``."""
