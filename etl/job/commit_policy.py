"""When a run commits: frequently, but for at most a tenth of its time.

A commit looks at each new data file, sends one request to the store and sometimes writes a checkpoint, which
takes time in proportion to the size of the table. Commits are frequent, so that a killed run loses little
work, and take at most a tenth of the time, however slow the store is.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from etl.errors import WriteError

_SECONDS = 5.0  # commit about this often,
_RESULTS = 256  # or when there are this many results,
_SHARE = 0.1  # unless commits would take more than this share of the time;
_MOST_RESULTS = 16_384  # commit in any case at this many results, which take about 50 MB

Item = TypeVar("Item")


class CommitPolicy:
    """Decides after each result whether to commit; is notified of each commit.

    >>> policy = CommitPolicy()
    >>> policy.is_due(255), policy.is_due(256)
    (False, True)
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._min_seconds = 0.0  # between two commits

    def is_due(self, waiting: int) -> bool:
        """Return whether to commit now, with so many results waiting."""
        if waiting >= _MOST_RESULTS:
            return True
        passed = time.monotonic() - self._last
        return passed >= self._min_seconds and (waiting >= _RESULTS or passed >= _SECONDS)

    def committed(self, *, seconds: float) -> None:
        """Record that a commit has finished, and how long it took."""
        self._last = time.monotonic()
        self._min_seconds = seconds / _SHARE


def batch_for_commits(groups: Iterable[Sequence[Item]]) -> Iterator[list[Item]]:
    """Join groups of items to lists; the caller commits each list before it asks for the next.

    If the groups end with a WriteError, the items before it are yielded, and then the error is raised.
    """
    policy, batch = CommitPolicy(), list[Item]()
    try:
        for group in groups:
            batch += group
            if policy.is_due(len(batch)):
                before = time.monotonic()
                yield batch
                policy.committed(seconds=time.monotonic() - before)
                batch = []
    except WriteError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch
