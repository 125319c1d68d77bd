"""Loaders that accelerate has prepared: they distribute the samples over the ranks themselves.

``Accelerator.prepare`` and the Hugging Face Trainer take any IterableDataset for one that yields the whole
epoch on every rank. Each rank then keeps its part (``IterableDatasetShard``), or rank 0 reads everything and
sends the parts (``DataLoaderDispatcher``). Accelerate registers a prepared loader in its ``GradientState``
before it iterates it, so the dataset can find out how its samples will be distributed:

- In an ``IterableDatasetShard``, a rank reads its own samples only. It yields empty samples in the places of
  the other ranks, which the shard drops.
- For a dispatcher, the dataset yields the whole epoch.

On several ranks, an epoch ends after the last full step, of ``batch_size`` samples for each rank: accelerate
would fill up an incomplete one with repeated samples. The length of the dataset must say so too, because the
Trainer computes from it where it resumes; it depends on the loader that asks for it.
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import Batch, Format
from etl.loader.one_pass import rows_of
from etl.loader.ranks import Rank, Shard
from etl.loader.steps import Steps

UNPREPARED_HINT = "iterate over dataset.batches(...), without Accelerator.prepare"
_MAX_DEPTH = 8  # of datasets that wrap each other


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """How a prepared loader takes samples from a dataset."""

    rank: Rank  # of the samples that this process reads
    batch_size: int  # rows of a batch of the inner DataLoader
    multiple: int  # batches of an epoch are a multiple of this
    before: int = 0  # samples of other ranks in each step, before those of this one
    after: int = 0
    reads_ahead: bool  # the dataset cannot tell which samples the training loop has received

    def steps(self, lanes: int) -> Steps:
        """Return how samples become steps; accelerate would fill up an incomplete one with others."""
        return Steps(
            batch_size=self.batch_size,
            rank=self.rank,
            lanes=lanes,
            drop_last=num_processes() > 1,
            multiple=self.multiple,
        )

    def in_places(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the rows of batches, and empty samples in the places of the other ranks."""
        for batch in batches:
            yield from ({} for _ in range(self.before))
            yield from rows_of(batch)
            yield from ({} for _ in range(self.after))


def num_processes() -> int:
    """Return the number of processes of accelerate; 1 if it is not in use.

    >>> num_processes()
    1
    """
    module = sys.modules.get("accelerate.state")
    state: dict[str, Any] = {} if module is None else module.PartialState._shared_state  # noqa: SLF001
    return int(state.get("num_processes") or 1)


def count_samples(num_samples: int) -> int:
    """Return how many samples a prepared loader takes of an epoch, to be called in ``__len__``.

    If the caller of ``__len__`` is a loader, these are its full steps.
    """
    frame = inspect.currentframe()
    frame = frame and frame.f_back and frame.f_back.f_back
    loader = None if frame is None else frame.f_locals.get("self")
    step = (getattr(loader, "batch_size", None) or 1) * num_processes()
    return num_samples - num_samples % step


def find_prepared(dataset: object) -> Prepared | None:
    """Return how the prepared loader that is now iterating over a dataset takes its samples."""
    module = sys.modules.get("accelerate.state")
    if module is None or not module.GradientState._shared_state:  # noqa: SLF001
        return None
    for loader in reversed(module.GradientState().dataloader_references):
        outer = None if loader is None else loader.dataset
        for _ in range(_MAX_DEPTH):
            if outer is dataset:
                return _describe(loader)
            outer = getattr(outer, "dataset", None)
    return None


def check_divisible(
    shard: Shard, batch_format: Format, columns: Sequence[str], *, where: str
) -> None:
    """Raise LoaderError unless accelerate can divide the samples of a dataset."""
    if shard.is_explicit and num_processes() > 1:
        raise LoaderError(
            "accelerate distributes the samples of a prepared loader, but the dataset has a Shard",
            where=where,
            hint=f"leave out shard, or {UNPREPARED_HINT}",
        )
    if batch_format.cu_seqlens or columns:
        what = "document lengths" if batch_format.cu_seqlens else "columns"
        raise LoaderError(
            f"the {what} of single rows cannot be stacked, as a prepared loader would do",
            where=where,
            hint=f"leave them out of Format and View, or {UNPREPARED_HINT}",
        )


def _describe(loader: Any) -> Prepared:
    shard = loader.dataset
    # A StatefulDataLoader saves the state before it reads ahead, which is exact for one process.
    reads_ahead = num_processes() > 1 or not getattr(loader, "use_stateful_dataloader", False)
    if type(shard).__name__ == "IterableDatasetShard":
        size, index = shard.num_processes, shard.process_index
        rows = shard.batch_size // size if shard.split_batches else shard.batch_size
        return Prepared(
            rank=Rank(index, size),
            batch_size=rows,
            multiple=size if shard.split_batches else 1,
            before=index * rows,
            after=(size - 1 - index) * rows,
            reads_ahead=reads_ahead,
        )
    is_dispatched = hasattr(loader, "split_batches")
    return Prepared(
        rank=Rank(0, 1),
        batch_size=loader.batch_size or 1,
        multiple=num_processes() if is_dispatched else 1,
        reads_ahead=reads_ahead,
    )
