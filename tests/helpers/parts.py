"""Run a part of the tests of a folder, as `PART=1/8` of the make targets says.

The parts take about equally long: each test, the longest first, joins the part that takes the least so far.
"""

import os
from collections.abc import Callable

import pytest


def part_name(variable: str) -> str:
    """Return the part ``k/n`` that an environment variable names, or an empty string for all tests."""
    return os.environ.get(variable, "")


def select_part(
    variable: str,
    config: pytest.Config,
    items: list[pytest.Item],
    seconds: Callable[[pytest.Item], float] = lambda _: 1.0,
) -> None:
    """Deselect the tests outside the part that an environment variable names, and put the longest first.

    ``seconds`` estimates how long a test takes.
    """
    items.sort(key=seconds, reverse=True)
    part, _, parts = part_name(variable).partition("/")
    if not part:
        return
    sums = [0.0] * int(parts)
    chosen: list[list[pytest.Item]] = [[] for _ in sums]
    for item in items:
        least = sums.index(min(sums))
        sums[least] += seconds(item)
        chosen[least].append(item)
    selected = chosen.pop(int(part) - 1)
    config.hook.pytest_deselected(items=[item for others in chosen for item in others])
    items[:] = selected
