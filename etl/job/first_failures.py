"""Stop a run whose first units of work all fail in the same way: the recipe is wrong, not the input."""

import re
from typing import Final

from etl.errors import QuarantineError, TokenlakeError
from etl.job.run_commits import UnitLocation, error_text

_ENOUGH: Final = 10
"""Failures after which a run stops; chosen here: a few files may be damaged in the same way."""
_VALUES: Final = re.compile(r"\d+|'[^']*'|\"[^\"]*\"")


class FirstFailures:
    """Watches the first units of work of a table without rows.

    A run stops if the first ten of them all fail with the same error, apart from numbers and quoted values in
    its message. Once any unit succeeds or fails otherwise, it never stops. A table with rows is not
    watched: quarantined units of earlier runs, which each run tries again, may then be the first.
    """

    def __init__(self, *, is_empty: bool) -> None:
        self._is_watching = is_empty
        self._cause: str | None = None
        self._count = 0

    def add_success(self) -> None:
        """Stop watching."""
        self._is_watching = False

    def add_failure(self, location: UnitLocation, error: BaseException, *, lake: str) -> None:
        """Count a unit that failed; raise QuarantineError if it is the tenth with the same error."""
        if not self._is_watching:
            return
        cause = _cause(error)
        self._is_watching = self._cause in (None, cause)
        self._cause = cause
        self._count += 1
        if self._is_watching and self._count == _ENOUGH:
            raise QuarantineError(
                f"the run stopped: the first {_ENOUGH} units of work failed with the same error: "
                f"{error_text(error, location[0])}",
                where=location[0],
                hint=f"correct the recipe or the input and run again; {lake}/quarantine has a note of each",
            )


def _cause(error: BaseException) -> str:
    """Return what equal errors of different units have in common.

    >>> _cause(ValueError("row 7: 'x'")) == _cause(ValueError("row 12: 'y'"))
    True
    """
    what = error.what if isinstance(error, TokenlakeError) else str(error)
    return f"{type(error).__name__} {_VALUES.sub('', what)}"
