"""`TrainingPart`: the samples that a training has read, as consecutive parts that were read in equal steps.

A training that is never interrupted has read one part, over any number of epochs. A new part begins where it
moves to another epoch, or resumes so that the steps are others. States record the parts, and so does the page
that a process shares with its DataLoader workers (``pass_starts.py``), 64 bytes each.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from etl.loader.steps import StepSize

_MAX_PARTS = 128  # more than trainings resume with other steps
_FIELDS = 8
PAGE_VALUES = 1 + _MAX_PARTS * _FIELDS
"""The integers that a page reserves for the parts."""

Place = tuple[int, int]
"""An epoch, and the number of its samples that come before."""


class TrainingPart(NamedTuple):
    """Samples that follow each other over the ends of epochs, read in equal steps of all ranks."""

    epoch: int  # of its first sample
    first_sample: int  # of that epoch
    end_epoch: int  # of its last sample, or the next one
    end: int  # the sample of that epoch after it
    batch_size: int  # 0: the steps are unknown
    world_size: int
    drop_last: int
    multiple: int

    @staticmethod
    def of(start: Place, end: Place, size: StepSize) -> "TrainingPart":
        """Return the part between two places."""
        return TrainingPart(*start, *end, *size)

    @property
    def start(self) -> Place:
        """Where it begins."""
        return self.epoch, self.first_sample

    @property
    def stop(self) -> Place:
        """Where it ends."""
        return self.end_epoch, self.end

    @property
    def size(self) -> StepSize:
        """How its samples become steps."""
        return StepSize(*self[4:])

    def first_sample_of(self, epoch: int) -> int:
        """Return the first sample of an epoch that it has."""
        return self.first_sample if epoch == self.epoch else 0

    def continues_at(self, start: Place, size: StepSize) -> bool:
        """Return whether this part, if it reaches a place, has the same steps from there on."""
        offset = start[1] - self.first_sample_of(start[0])
        stride = size.batch_size * size.world_size
        return self.size == size and (start[1] == 0 or offset % stride == 0)


UNKNOWN = StepSize(0, 0, 0, 0)
"""Steps that are not recorded."""


def cut_parts(parts: Sequence[TrainingPart], end: Place) -> list[TrainingPart]:
    """Return the parts up to a place; what is not recorded was read from the beginning, in unknown steps.

    >>> part = TrainingPart.of((0, 0), (2, 8), StepSize(4, 1, 0, 1))
    >>> cut_parts([part], (1, 20))[0].stop, cut_parts([], (0, 3))[0].size == UNKNOWN
    ((1, 20), True)
    """
    kept = [part for part in parts if part.start < end]
    if not kept:
        return [] if end == (0, 0) else [TrainingPart.of((0, 0), end, UNKNOWN)]
    return [*kept[:-1], TrainingPart.of(kept[-1].start, end, kept[-1].size)]


def begin_part(
    parts: Sequence[TrainingPart], start: Place, size: StepSize, *, is_complete: bool
) -> list[TrainingPart]:
    """Return the parts when a pass begins at a place.

    ``is_complete`` says whether the last part leaves no step of its last epoch.
    """
    *kept, last = parts or [TrainingPart.of(start, start, size)]
    is_next = start == last.stop or (is_complete and start == (last.end_epoch + 1, 0))
    if is_next and last.continues_at(start, size):
        return [*kept, last]
    kept += [last] if last.start != last.stop else []
    kept.append(TrainingPart.of(start, start, size))
    if len(kept) > _MAX_PARTS:
        kept[:2] = [TrainingPart.of(kept[0].start, kept[1].stop, UNKNOWN)]
    return kept


def to_page(parts: Sequence[TrainingPart]) -> list[int]:
    """Return parts as the integers of a page, with zeros behind them."""
    values = [len(parts), *chain.from_iterable(parts)]
    return values + [0] * (PAGE_VALUES - len(values))


def from_page(values: Sequence[int]) -> list[TrainingPart]:
    """Return the parts in the integers of a page.

    >>> part = TrainingPart.of((0, 0), (2, 8), StepSize(4, 1, 0, 1))
    >>> from_page(to_page([part])) == [part]
    True
    """
    starts = range(1, 1 + values[0] * _FIELDS, _FIELDS)
    return [TrainingPart(*values[start : start + _FIELDS]) for start in starts]
