"""Repeat a commit that has lost against the commit of another writer."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from etl.errors import ConflictError

_MAX_ATTEMPTS: Final = 50  # each failure means that another writer's commit succeeded

_Committed = TypeVar("_Committed")


def repeat_commit(
    commit_rest: Callable[[], list[_Committed]], *, refresh: Callable[[], None], url: str
) -> list[_Committed]:
    """Return what a commit to the table at a URL adds.

    After a conflict, wait, call ``refresh``, and commit on the newest version.
    """
    for attempt in range(_MAX_ATTEMPTS):
        try:
            return commit_rest()
        except ConflictError:
            time.sleep(min(0.01 * 2**attempt, 1.0))  # longer after each failed attempt
            refresh()
    raise ConflictError(
        f"{_MAX_ATTEMPTS} commits in a row conflicted with those of other writers",
        where=url,
        hint="run again when fewer jobs write to this table",
    )
