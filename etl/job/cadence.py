"""When what is finished is worth a commit.

A commit looks at each new data file, asks the store once, and at times writes a checkpoint, which takes time
in proportion to the table. Commits are frequent, so that a kill loses little, and take a tenth of a run's
time at most, however slow the store is.
"""

import time

_SECONDS = 5.0  # what is finished is committed about this often,
_RESULTS = 256  # or when there is so much of it,
_SHARE = 0.1  # unless commits would take more than this share of the time;
_MOST_RESULTS = 16_384  # so many are held at most: some 50 MB


class Cadence:
    """Asked after each result; told of each commit.

    >>> cadence = Cadence()
    >>> cadence.is_due(255), cadence.is_due(256)
    (False, True)
    """

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._least = 0.0  # seconds between two commits

    def is_due(self, waiting: int) -> bool:
        """Whether so many results that wait are to be committed now."""
        if waiting >= _MOST_RESULTS:
            return True
        passed = time.monotonic() - self._last
        return passed >= self._least and (waiting >= _RESULTS or passed >= _SECONDS)

    def committed(self, *, seconds: float) -> None:
        """A commit is done, and took so long."""
        self._last = time.monotonic()
        self._least = seconds / _SHARE
