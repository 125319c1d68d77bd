"""How the loader that iterates over single samples makes batches of them, on which ranks.

A DataLoader collates the next ``batch_size`` samples of each worker. The dataset finds the batch size in the
loader, on the stack, so that a worker reads whole steps and the order does not depend on their number.

Loaders that accelerate has prepared distribute the samples over the ranks themselves.

``Accelerator.prepare`` and the Hugging Face Trainer assume that any IterableDataset yields the whole epoch on
every rank. Each rank then keeps its part (``IterableDatasetShard``), or rank 0 reads everything and
sends the parts (``DataLoaderDispatcher``). Accelerate registers a prepared loader in its ``GradientState``
before it iterates it, so the dataset can find out how its samples will be distributed:

- In an ``IterableDatasetShard``, a rank reads its own samples only. It yields empty samples in the places of
  the other ranks, which the shard drops.
- For a dispatcher, the dataset yields the whole epoch, in each step the samples of the ranks one after the
  other.

On several ranks, an epoch ends after the last full step, of ``batch_size`` samples for each rank: accelerate
would fill up an incomplete one with repeated samples. The length of the dataset must say so too, because the
Trainer computes from it where it resumes; it depends on the loader that asks for it.
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from etl.errors import LoaderError
from etl.loader.batches.document_boundaries import Batch, Format
from etl.loader.one_pass import rows_of
from etl.loader.ranks import Rank, Shard
from etl.loader.steps import Dispatched, Steps

UNPREPARED_HINT = "iterate over dataset.batches(...), without Accelerator.prepare"
_MAX_DEPTH = 8  # of datasets that wrap each other


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """How a prepared loader takes samples from a dataset."""

    rank: Rank  # of the samples that this process reads
    batch_size: int  # rows of a batch of the inner DataLoader
    multiple: int  # batches of an epoch are a multiple of this
    before: int = 0  # samples of other ranks in each step, before this rank's
    after: int = 0
    dispatched: Dispatched | None = None

    def steps(self, lanes: int) -> Steps:
        """Return how samples become steps; accelerate would fill up an incomplete one with others."""
        return Steps(
            batch_size=self.batch_size,
            rank=self.rank,
            lanes=lanes,
            drop_last=num_processes() > 1,
            multiple=self.multiple,
            dispatched=self.dispatched,
        )

    def in_places(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the rows of batches, and empty samples in the places of the other ranks."""
        for batch in batches:
            yield from ({} for _ in range(self.before))
            yield from rows_of(batch)
            yield from ({} for _ in range(self.after))


class Collation(NamedTuple):
    """How a DataLoader makes batches of the samples that it takes one by one."""

    batch_size: int = 1
    drop_last: bool = False


def find_collation() -> Collation:
    """Return how the DataLoader that is now starting to read samples, or a worker, collates them.

    A forked worker still has the frames of the loader below its own. Without a DataLoader, or if it takes
    samples as they are, each sample is a step.

    >>> find_collation()
    Collation(batch_size=1, drop_last=False)
    """
    for owner in _callers():
        if isinstance(owner, (DataLoader, _BaseDataLoaderIter)):
            sampler = owner._index_sampler  # noqa: SLF001 - the only attribute that both have
            if isinstance(sampler, BatchSampler):
                return Collation(sampler.batch_size, sampler.drop_last)
            break
    return Collation()


def _is_stateful() -> bool:
    """Whether accelerate reads samples, or has prepared their loader, with ``use_stateful_dataloader``."""
    return "accelerate.data_loader" in sys.modules and any(
        type(owner).__module__ == "accelerate.data_loader"
        and vars(owner).get("use_stateful_dataloader", False)
        for owner in _callers()
    )


def _callers() -> Iterator[object]:
    """Yield the objects whose methods are running, the innermost first."""
    frame = inspect.currentframe()
    while frame is not None:
        if "self" in frame.f_code.co_varnames:
            yield frame.f_locals.get("self")
        frame = frame.f_back


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


def check_stateless(where: str) -> None:
    """Raise LoaderError for a loader of accelerate that saves states which do not resume."""
    if _is_stateful():
        raise LoaderError(
            "accelerate's use_stateful_dataloader leaves out the state of this dataset, or continues "
            "with another epoch after it",
            where=where,
            hint="leave it out, call accelerator.register_for_checkpointing(dataset), and "
            f"{UNPREPARED_HINT}",
        )


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
    if type(shard).__name__ == "IterableDatasetShard":
        size, index = shard.num_processes, shard.process_index
        rows = shard.batch_size // size if shard.split_batches else shard.batch_size
        return Prepared(
            rank=Rank(index, size),
            batch_size=rows,
            multiple=size if shard.split_batches else 1,
            before=index * rows,
            after=(size - 1 - index) * rows,
        )
    size = num_processes() if hasattr(loader, "split_batches") else 1
    num_steps = 1 if size > 1 and loader.split_batches else size
    return Prepared(
        rank=Rank(0, 1),
        batch_size=loader.batch_size or 1,
        multiple=size,
        dispatched=Dispatched(world_size=size, num_steps=num_steps) if size > 1 else None,
    )
