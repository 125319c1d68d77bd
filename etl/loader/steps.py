"""How the samples of a pass become steps, and how a step is divided among ranks."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from etl.errors import LoaderError
from etl.loader.order.epochs import Epoch, Epochs
from etl.loader.ranks import Rank
from etl.plural import many

_MANY_SAMPLES = 1 << 19  # a billion tokens in windows of 2,048; smaller tables are read quickly


class StepSize(NamedTuple):
    """How samples become steps, as states record it."""

    batch_size: int  # rows of a batch on one rank
    world_size: int
    drop_last: int  # whether an incomplete batch is left out
    multiple: int  # only so many steps together are complete


@dataclass(frozen=True, kw_only=True)
class Steps:
    """How the samples of a pass become steps: ``batch_size`` rows on each rank.

    The samples of a step are consecutive. A step is divided so that few ranks read the same lane; the samples
    of a batch ascend.
    """

    batch_size: int
    rank: Rank
    lanes: int
    drop_last: bool
    multiple: int = 1  # only so many steps together are complete
    dispatched: "Dispatched | None" = None  # if this process reads for other ranks

    @property
    def stride(self) -> int:
        """The number of samples of a step, over all ranks."""
        return self.batch_size * self.rank.world_size

    def count(self, num_samples: int) -> int:
        """Return the number of steps in consecutive samples."""
        rows = num_samples // self.rank.world_size
        steps = rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)
        return steps - steps % self.multiple

    def check(self, num_samples: int, *, where: str) -> None:
        """Raise LoaderError unless the samples of an epoch are enough for a step."""
        if not self.count(num_samples):
            raise LoaderError(
                f"an epoch has {many(num_samples, 'sample')}, fewer than the {self.stride:,} of one "
                f"step of {self.batch_size:,} on {self.rank.world_size:,} ranks",
                where=where,
                hint="use a smaller batch size, shorter windows, or a larger table",
            )

    def end(self, num_samples: int) -> int:
        """Return the number of samples, of consecutive ones, that are in the steps."""
        used = min(self.count(num_samples) * self.stride, num_samples)
        return used - used % self.rank.world_size

    @property
    def size(self) -> StepSize:
        """What a state records: how the samples become steps of the ranks that train.

        >>> Steps(batch_size=4, rank=Rank(1, 2), lanes=3, drop_last=True).size
        StepSize(batch_size=4, world_size=2, drop_last=1, multiple=1)
        """
        size, world_size, multiple = self.batch_size, self.rank.world_size, self.multiple
        if self.dispatched is not None:
            world_size = self.dispatched.world_size
            size = size * self.dispatched.num_steps // world_size
            multiple //= self.dispatched.num_steps
        return StepSize(size, world_size, int(self.drop_last), multiple)

    @staticmethod
    def of(size: StepSize, rank: Rank, lanes: int) -> "Steps":
        """Return the steps that a state records, for a rank of its ranks."""
        batch_size, _, drop_last, multiple = size
        return Steps(
            batch_size=batch_size,
            rank=rank,
            lanes=lanes,
            drop_last=bool(drop_last),
            multiple=multiple,
        )

    def samples(self, step: range, *, number: int = 0) -> Sequence[int]:
        """Return the samples of this rank in a step, in the order of its rows.

        ``number`` counts the steps of the pass, which matters if the samples are dispatched.
        """
        if self.dispatched is not None:
            return self.dispatched.samples(step, number, self.lanes)
        if self.rank.world_size == 1:
            return step
        first = step.start
        offsets = _rank_offsets(len(step), first % self.lanes, self.lanes, self.rank)
        return [first + offset for offset in offsets]


@dataclass(frozen=True, kw_only=True)
class Dispatched:
    """How the samples that one process reads are sent to ranks: one after the other.

    ``num_steps`` steps of the process are one step of the ranks, and have as many rows for each rank.
    """

    world_size: int
    num_steps: int

    def samples(self, step: range, number: int, lanes: int) -> list[int]:
        """Return the samples of the ranks that a step of the process is for."""
        # Find the whole step of the ranks, of which this step of the process is the nth part.
        nth = number % self.num_steps
        first = step.start - nth * len(step)
        whole = range(first, first + len(step) * self.num_steps)
        # The part has the samples of so many ranks, one rank after the other, as accelerate slices it.
        size = self.world_size // self.num_steps
        ranks = [Rank(rank, self.world_size) for rank in range(nth * size, (nth + 1) * size)]
        offsets = (_rank_offsets(len(whole), first % lanes, lanes, rank) for rank in ranks)
        return [first + offset for of_rank in offsets for offset in of_rank]


@lru_cache(maxsize=1024)  # a step begins in one of few lanes
def _rank_offsets(size: int, first_lane: int, lanes: int, rank: Rank) -> tuple[int, ...]:
    """Return which of the samples of a step a rank gets, counted from the first one, ascending."""
    ranks = divide_step(size, first_lane, lanes, rank.world_size)
    return tuple(np.flatnonzero(ranks == rank.rank).tolist())


def divide_step(size: int, first_lane: int, lanes: int, world_size: int) -> np.ndarray:
    """Return the rank of each sample of a step, (size,) int64, which begins in a lane.

    Lane l belongs to rank l % R, as far as each rank has equally many lanes. The samples of the other lanes,
    and samples that a rank has beyond its rows, fill the other ranks. Rank r first takes samples of the lane
    r % n of n such lanes, so that few ranks share each of them.

    >>> divide_step(8, 1, 4, 2).tolist(), divide_step(8, 1, 3, 2).tolist()
    ([1, 0, 1, 0, 1, 0, 1, 0], [1, 0, 0, 1, 0, 0, 1, 1])
    """
    # Of 5 lanes and 2 ranks, lanes 0 and 2 belong to rank 0, lanes 1 and 3 to rank 1, and lane 4 to none: its
    # owner is ``world_size``.
    rows = size // world_size
    lane = (first_lane + np.arange(size)) % lanes  # (size,), of each sample
    num_owned = lanes - lanes % world_size
    owner = np.where(lane < num_owned, lane % world_size, world_size)
    # A rank keeps the first ``rows`` samples of its lanes. Sort the samples by owner, and count from the
    # first sample of each owner.
    order = np.lexsort((np.arange(size), owner))
    firsts = np.searchsorted(owner[order], np.arange(world_size + 1))
    is_kept = np.arange(size) - firsts[owner[order]] < rows
    is_kept &= owner[order] < world_size
    # The ranks with fewer samples than rows get samples of the pool: of lanes without an owner, and of lanes
    # that occur more often in this step than their ranks have rows.
    owned = order[is_kept]
    missing = rows - np.bincount(owner[owned], minlength=world_size)
    # Each rank prefers one of the lanes without an owner, the same in every step, so that it reads the others
    # rarely. Sort the places to fill by that lane, and the pool by its lanes, and match them.
    places = np.repeat(np.arange(world_size), missing)
    num_shared = max(lanes - num_owned, 1)
    places = places[np.lexsort((places, places % num_shared))]
    pool = order[~is_kept]
    pool = pool[np.lexsort((pool, lane[pool]))]
    filled = _match(places % num_shared, lane[pool] - num_owned)
    owner[pool[filled]] = places
    return owner


def _match(places: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Return a sample for each place, (n,) int64, with the same number where there are enough samples.

    Both are (n,) int64, ascending.

    >>> _match(np.array([0, 1, 1]), np.array([0, 0, 1])).tolist()
    [0, 2, 1]
    """
    # Pair the nth place of a number with the nth sample of it: a key of both is unique on each side.
    nth_place = np.arange(len(places)) - np.searchsorted(places, places)
    nth_sample = np.arange(len(samples)) - np.searchsorted(samples, samples)
    width = len(places) + 1
    place_keys, sample_keys = (places + 1) * width + nth_place, (samples + 1) * width + nth_sample
    filled = np.full(len(places), -1)
    _, at_place, at_sample = np.intersect1d(
        place_keys, sample_keys, assume_unique=True, return_indices=True
    )
    filled[at_place] = at_sample
    # The places that are left get the samples that are left, in ascending order.
    is_used = np.zeros(len(samples), bool)
    is_used[at_sample] = True
    filled[filled < 0] = np.flatnonzero(~is_used)
    return filled


def end_of_steps(
    start: tuple[int, int], num_steps: int, steps: Steps, epochs: Epochs
) -> tuple[int, int]:
    """Return the epoch, and the sample of it, behind some steps from a place on."""
    epoch, first = start
    available = epochs.of(epoch).num_samples - first
    # Up to an epoch without a step, which the next pass reports.
    while num_steps > (count := steps.count(available)) and (count or first):
        num_steps, epoch, first = num_steps - count, epoch + 1, 0
        available = epochs.of(epoch).num_samples
    # The rest of an epoch that leaves no such step may be read in other steps.
    return epoch, first + min(num_steps * steps.stride, steps.end(available))


def place_after(
    samples_seen: int, steps: Steps | None, epochs: Epochs, *, where: str
) -> tuple[int, int]:
    """Return the epoch, and its samples that were read, after some samples since the first epoch.

    Raises LoaderError if these are several epochs, and the steps are unknown.
    """
    rest, epoch = samples_seen, 0
    num_samples = epochs.of(0).num_samples
    if rest <= num_samples:
        return 0, rest
    used = 0 if steps is None else steps.end(num_samples)
    while steps is not None and 0 < used < rest:
        rest, epoch = rest - used, epoch + 1
        used = steps.end(epochs.of(epoch).num_samples)
    if not used:
        raise LoaderError(
            f"samples_seen={samples_seen:,} is more than the {num_samples:,} samples of an epoch, "
            "and the size of the steps is unknown, which decides how many of these are in no step",
            where=where,
            hint="call dataset.batches(batch_size).state_dict(samples_seen=...)",
        )
    return epoch, rest


def warn_of_few_lanes(epoch: Epoch, steps: Steps, *, where: str) -> None:
    """Warn if ranks share lanes of a large table, so that bytes are read more than once."""
    world_size = steps.rank.world_size
    if world_size > epoch.lanes and epoch.num_samples >= _MANY_SAMPLES:
        times = world_size / epoch.lanes
        warnings.warn(
            f"{where}: {world_size:,} ranks share {epoch.lanes:,} lanes, so each byte of the table "
            f"is read {times:.1f} times or more; Shuffle(lanes={world_size}) avoids this",
            RuntimeWarning,
            stacklevel=3,
        )
