"""Run a part of the tests of a folder, as `PART=1/8` of the make targets says.

The parts take about equally long: each test, the longest first, joins the part that takes the least so far.
"""

import os
from collections.abc import Callable, Iterable

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
    chosen = divide([seconds(item) for item in items], int(parts))
    others = [item for item, of in zip(items, chosen, strict=True) if of != int(part) - 1]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item, of in zip(items, chosen, strict=True) if of == int(part) - 1]


def divide(seconds: Iterable[float], parts: int) -> list[int]:
    """Return the part of each test, given how long they take.

    >>> divide([5, 3, 3, 1], 2)
    [0, 1, 1, 0]
    """
    sums = [0.0] * parts
    chosen = []
    for each in seconds:
        least = sums.index(min(sums))
        sums[least] += each
        chosen.append(least)
    return chosen
