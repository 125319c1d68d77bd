"""Find the samples of a step of a training, as far as its state says how the loader read them.

A state records where the newest pass began, the batch size, the number of ranks, and whether an incomplete
batch was dropped. The workers of a DataLoader change nothing: each reads whole steps. A step that contradicts
the record is refused.
"""

from typing import NamedTuple

from etl.errors import LoaderError
from etl.loader.read_parts import SKIPPED
from etl.loader.sharded_dataset import ShardedDataset
from etl.loader.skipped_steps import gaps_of
from etl.loader.state import State, parts_of
from etl.plural import many


class FoundStep(NamedTuple):
    """A step: its samples over all ranks, the rows of a rank, and the evidence for both."""

    samples: range
    batch_size: int
    order: str


class _Loader(NamedTuple):
    """How a loader reads the samples of a pass, and whether a state records this."""

    first_sample: int
    batch_size: int
    world_size: int
    drop_last: int = 0
    is_recorded: bool = False

    def __str__(self) -> str:
        ranks = "1 rank" if self.world_size == 1 else f"{self.world_size:,} ranks"
        return f"batches of {self.batch_size:,} on {ranks}"


def find_step(dataset: ShardedDataset, batch_size: int | None, step: int) -> FoundStep:
    """Return the step that is ``step`` steps after the state of a dataset, or before it if negative.

    ``batch_size`` is by default the one in the state. Raises LoaderError if the loader had no such step.
    """
    state = dataset.state_dict()
    consumed = int(state["consumed"])
    loader = _find_loader(dataset, state, batch_size, is_past=step < 0)
    stride = loader.batch_size * loader.world_size
    done = -((loader.first_sample - consumed) // stride)  # the last one may be incomplete
    start = loader.first_sample + (done + step) * stride
    stop = min(start + stride, dataset.num_samples)
    stop -= (stop - start) % loader.world_size
    is_incomplete = stop - start < stride
    if loader.is_recorded and start < loader.first_sample:
        raise LoaderError(
            f"the loader began only {done:,} steps before the state, at sample {loader.first_sample:,}",
            where=dataset.where,
            hint="for earlier steps, give a state that was saved before",
        )
    if start < 0 or stop <= start or (is_incomplete and loader.drop_last):
        raise LoaderError(
            f"the epoch has no batch of {loader.batch_size} samples {step:+d} steps from sample index "
            f"{consumed:,}: it has {many(dataset.num_samples, 'sample')}",
            where=dataset.where,
            hint="choose a step within the epoch",
        )
    for gap in gaps_of(state):
        if gap.start < (dataset.epoch, stop):
            raise LoaderError(
                f"the training leaves out samples from sample {gap.start[1]:,} of epoch {gap.start[0]} on",
                where=dataset.where,
                hint="for steps behind them, give a state that was saved there",
            )
    evidence = "recorded in the state" if loader.is_recorded else "assumed"
    order = f"of the plan, in {loader} from sample {loader.first_sample:,} ({evidence})"
    if is_incomplete:
        order += "; this batch is incomplete, and a loader with drop_last leaves it out"
    return FoundStep(range(start, stop), loader.batch_size, order)


def _find_loader(
    dataset: ShardedDataset, state: State, batch_size: int | None, *, is_past: bool
) -> _Loader:
    """Return the loader that a state records, or one with the given batch size on the present ranks."""
    recorded = None
    if state.get("read"):
        part = parts_of(state)[-1]
        first = part.first_sample_of(state["epoch"])
        if part.size != SKIPPED:
            recorded = _Loader(first, *part.size[:3], is_recorded=True)
        elif is_past:
            raise LoaderError(
                f"the training has skipped the samples before the state, from sample {first:,} on",
                where=dataset.where,
                hint="for steps before them, give a state that was saved before",
            )
    if batch_size is None:
        if recorded is None:
            raise LoaderError(
                "the batch size is unknown, because the state does not record it",
                where=dataset.where,
                hint="pass the rows of a batch on one rank: --batch-size N, or batch_size=N",
            )
        batch_size = recorded.batch_size
    if batch_size < 1:
        raise LoaderError(f"batch_size must be at least 1, not {batch_size}")
    assumed = _Loader(int(state["consumed"]), batch_size, dataset.world_size)
    if recorded is None:
        return assumed
    if recorded[1:3] == assumed[1:3]:
        return recorded
    if is_past:
        raise LoaderError(
            f"the state records a loader with {recorded}, but a step of {assumed} is requested",
            where=dataset.where,
            hint=f"pass --batch-size {recorded.batch_size} --world-size {recorded.world_size}",
        )
    return assumed
