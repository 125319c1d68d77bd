"""Keep what the listing of a source has found: moves of rows, and files that are left out or missing.

The notes are small files beside the tables, and are written under the lease of the run.
"""

from typing import Final

from etl.job.failed_units import describe_error
from etl.job.plan import Plan
from etl.job.tally import Tally
from etl.lake.missing_inputs import is_recorded, write_missing
from etl.lake.quarantine import Quarantine, Quarantined
from etl.lake.source_moves import write_moves
from etl.visible_text import one_line

_LISTING: Final = "listing"
"""The step of notes about files and folders that are left out."""


def are_kept(plan: Plan, notes: Quarantine) -> bool:
    """Return whether a lake has all that the listing of a plan has found."""
    is_same = not plan.moves and is_recorded(str(plan.recipe.lake), plan.missing)
    return is_same and not plan.problems and not _unlisted(notes)


def keep_findings(plan: Plan, notes: Quarantine, tally: Tally) -> None:
    """Keep moves of rows, and quarantine files and folders that are left out.

    Files are left out of the source, or of lists that stages read. Notes about files that can be read now are
    removed.
    """
    write_moves(str(plan.recipe.lake), plan.moves)
    errors = {one_line(str(error.where)): error for error in plan.problems}
    for note in _unlisted(notes):
        if note.source not in errors:
            notes.clear(_LISTING, note.source, note.part)
    for source, error in errors.items():
        text = describe_error(error, str(error.where))
        tally.add_quarantined(notes.put(_LISTING, source, "", text))


def keep_last_findings(plan: Plan) -> None:
    """Keep what the last listing of a run has found: more moves, and the files that are missing."""
    write_moves(str(plan.recipe.lake), plan.moves)
    write_missing(str(plan.recipe.lake), plan.missing)


def _unlisted(notes: Quarantine) -> list[Quarantined]:
    return [note for note in notes.notes() if note.step == _LISTING]
