"""Repeat a commit that has lost against the commit of another writer."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from etl.errors import ConflictError

_MAX_ATTEMPTS: Final = 50  # each failure means that another writer's commit succeeded

_Result = TypeVar("_Result")


def repeat_commit(
    commit: Callable[[], _Result], *, url: str, refresh: Callable[[], None] = lambda: None
) -> _Result:
    """Return the result of a commit to the table or the lake at a URL.

    After a conflict, wait, call ``refresh``, and commit again on the newest version.
    """
    for attempt in range(_MAX_ATTEMPTS):
        try:
            return commit()
        except ConflictError:
            time.sleep(min(0.01 * 2**attempt, 1.0))  # longer after each failed attempt
            refresh()
    raise ConflictError(
        f"{_MAX_ATTEMPTS} commits in a row conflicted with those of other writers",
        where=url,
        hint="run again when fewer jobs write to it",
    )
