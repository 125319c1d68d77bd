"""Stop a run whose first units of work all fail in the same way: the recipe is wrong, not the input."""

from typing import Final

from etl.errors import QuarantineError, TokenlakeError
from etl.lake.quarantine import Quarantined

ENOUGH: Final = 10
"""Failures after which a run stops; chosen here: a few files may be damaged in the same way."""


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

    def add_failure(self, note: Quarantined, error: BaseException, *, lake: str) -> None:
        """Count a unit that failed; raise QuarantineError if it is the tenth with the same error."""
        if not self._is_watching:
            return
        self._is_watching = self._cause in (None, note.cause)
        self._cause = note.cause
        self._count += 1
        if self._is_watching and self._count == ENOUGH:
            raise _stop(note.source, error, lake)


def _stop(source: str, error: BaseException, lake: str) -> QuarantineError:
    what, where, first_hint = repr(error), source, ""
    if isinstance(error, TokenlakeError):
        what, where = error.what, error.where or source
        first_hint = f"{error.hint}; " if error.hint else ""
    return QuarantineError(
        f"{what}; the first {ENOUGH} units of work all failed in this way, so the run stopped",
        where=where,
        hint=f"{first_hint}correct the recipe or the input, and run again; `etl report {lake}` lists them",
    )
