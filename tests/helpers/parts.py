"""Run a part of the tests of a folder, as `PART=1/8` of the make targets says."""

import os
import zlib

import pytest


def select_part(variable: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests outside the part ``k/n`` that an environment variable names."""
    part, _, parts = os.environ.get(variable, "").partition("/")
    if not part:
        return
    selected = [
        item for item in items if zlib.crc32(item.nodeid.encode()) % int(parts) == int(part) - 1
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(selected)])
    items[:] = selected
