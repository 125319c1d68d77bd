"""Steps that a training leaves out, now or when it reaches them.

A gap has the samples between two places. A pass ends before it, and the next one begins behind it. So all
other samples come as they would without it. A gap is one of the parts of a training (``read_parts.py``).
States have the gaps that are ahead.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from etl.errors import LoaderError
from etl.loader.order.epochs import Epochs
from etl.loader.pass_starts import Passes
from etl.loader.read_parts import MAX_SKIPPED, SKIPPED, Place, skip_part
from etl.loader.steps import Steps, end_of_steps


class Gap(NamedTuple):
    """Samples that a training is going to leave out."""

    start: Place
    stop: Place


Gaps = tuple[Gap, ...]


def next_place(passes: Passes) -> Place:
    """Return where the next pass begins, after the batch that was returned last."""
    return (passes.epoch + 1, 0) if passes.has_ended else (passes.epoch, passes.consumed)


def read_ahead_error(where: str) -> LoaderError:
    """Return the error for readers that would not know of a gap in time."""
    return LoaderError(
        "steps are to be left out, but DataLoader workers, or accelerate, read ahead of them",
        where=where,
        hint="iterate dataset.batches(batch_size, prefetch=...) until then",
    )


def left_pass_error(where: str) -> LoaderError:
    """Return the error for a loop that does not know of a gap."""
    return LoaderError(
        "steps were skipped, but the loop goes on with a pass that began before",
        where=where,
        hint="leave the loop after skip, and begin another one",
    )


def abandoned_error(epoch: int, where: str) -> LoaderError:
    """Return the error if the next place is unknown."""
    return LoaderError(
        f"the last pass over epoch {epoch} was cut short, and its loader had read ahead, so that the sample "
        "that comes next is unknown",
        where=where,
        hint="continue with dataset.load_state_dict(dataset.state_dict(samples_seen=...)), or with "
        "load_state_dict of a StatefulDataLoader; to read the same samples again, open the dataset with "
        "repeat=True, or use dataset.evaluation(...) for validation",
    )


def plan_gap(  # noqa: PLR0913 - what decides the places of a gap
    passes: Passes,
    gaps: Gaps,
    num_steps: int,
    steps: Steps,
    epochs: Epochs,
    *,
    after: int,
    where: str,
) -> Gaps:
    """Return gaps with another one of some steps, ``after`` others from the next place on.

    Raises LoaderError if a training leaves out steps too often.
    """
    start = next_place(passes)
    if after:
        start = end_of_steps(start, after, steps, epochs)
    gap = Gap(start, end_of_steps(start, num_steps, steps, epochs))
    skipped = sum(part.size == SKIPPED for part in skip_part(passes.parts, *gap))
    if skipped + len(gaps) > MAX_SKIPPED:
        raise LoaderError(
            f"the training has skipped steps {MAX_SKIPPED} times, the most that a state records",
            where=where,
            hint="leave out documents with a View",
        )
    return (*gaps, gap)


def pass_gaps(passes: Passes, gaps: Gaps, steps: Steps) -> Gaps:
    """Move behind each gap that is here, or before which there is no other step; return the gaps ahead."""
    while True:
        epoch, first = place = next_place(passes)
        gaps = gaps_after(place, gaps)
        here = [
            gap
            for gap in gaps
            if gap.start <= place
            or (gap.start[0] == epoch and not steps.count(gap.start[1] - first))
        ]
        if not here:
            return gaps
        passes.move(*here[0].stop, parts=skip_part(passes.parts, place, here[0].stop))


def gaps_after(place: Place, gaps: Gaps) -> Gaps:
    """Return the gaps that a training has not passed at a place."""
    return tuple(gap for gap in gaps if gap.stop > place)


def gaps_of(state: Mapping[str, Any]) -> Gaps:
    """Return the gaps that a state has ahead.

    >>> gaps_of({"skip": [[0, 4, 1, 8]]})
    (Gap(start=(0, 4), stop=(1, 8)),)
    """
    return tuple(Gap((gap[0], gap[1]), (gap[2], gap[3])) for gap in state.get("skip", []))


def check_gaps_before(gaps: Gaps, epoch: int, *, where: str) -> None:
    """Raise LoaderError if samples that are left out are of an epoch that is planned again, or later."""
    for gap in gaps:
        if gap.stop > (epoch, 0):
            raise LoaderError(
                f"steps are to be left out up to sample {gap.stop[1]:,} of epoch {gap.stop[0]}, "
                f"but the change plans the epochs from {epoch} on again",
                where=where,
                hint="change the plan first, and then skip steps",
            )


def gaps_to_state(gaps: Gaps, place: Place) -> dict[str, Any]:
    """Return what a state at a place has of gaps."""
    ahead = [[*gap.start, *gap.stop] for gap in gaps_after(place, gaps)]
    return {"skip": ahead} if ahead else {}
