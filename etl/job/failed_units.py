"""Quarantine the units of work of a run that fail, and remove the notes of those that succeed."""

from collections.abc import Callable, Iterable

from etl.errors import LimitError, TokenlakeError
from etl.job.tally import Tally
from etl.lake.quarantine import Quarantine, Quarantined
from etl.recipe.recipe import Step

UnitLocation = tuple[str, str]
"""A unit of work as shown to a user: the input file, and the part of it."""


class FailedUnits:
    """Keeps the notes of a lake about units of work; the tally of the run counts those that fail."""

    def __init__(self, notes: Quarantine, tally: Tally, check_job: Callable[[], None]) -> None:
        """``check_job`` raises an error if the job must stop, such as for a worker of another version."""
        self._notes = notes
        self._tally = tally
        self._check_job = check_job

    def add(self, step: Step, location: UnitLocation, error: BaseException) -> Quarantined:
        """Quarantine a unit, with the error that its task raised, and return its note."""
        if not isinstance(error, TokenlakeError) or isinstance(error, LimitError):
            self._check_job()  # perhaps a worker of another version could not read it
        note = self._notes.put(step, *location, describe_error(error, location[0]))
        self._tally.add_quarantined(note)
        return note

    def clear(self, step: Step, location: UnitLocation) -> None:
        """Remove the quarantine note of a unit, which an earlier run may have left."""
        self._notes.clear(step, *location)

    def clear_other_parts(self, step: Step, locations: Iterable[UnitLocation]) -> None:
        """Remove notes about parts of files that are read in other parts now, by another split size."""
        notes = [note for note in self._notes.notes() if note.step == step]
        noted = {note.source for note in notes}
        parts = {location for location in locations if location[0] in noted}
        sources = {source for source, _ in parts}
        for note in notes:
            if note.source in sources and (note.source, note.part) not in parts:
                self._notes.clear(step, note.source, note.part)


def describe_error(error: BaseException, source: str) -> str:
    """Return an error in one line, to be shown next to the name of the input file."""
    if not isinstance(error, TokenlakeError):
        return repr(error)
    elsewhere = f"{error.where}: " if error.where not in (None, source) else ""
    return f"{elsewhere}{error.what}" + (f" ({error.hint})" if error.hint else "")
