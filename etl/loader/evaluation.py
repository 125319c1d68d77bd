"""`Evaluation`: the windows of a dataset, each once, in the same order and in equal steps on all ranks."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from math import ceil
from typing import Any, Protocol

import torch
from torch.utils.data import IterableDataset, get_worker_info

from etl.errors import LoaderError
from etl.loader.batches.delivery import Delivery, check_batch_size
from etl.loader.batches.document_boundaries import IGNORED, Batch, PositionedBatch
from etl.loader.batches.worker_message import WorkerBatch
from etl.loader.order.epochs import Epochs
from etl.loader.place import Place
from etl.loader.prepared_loaders import find_prepared
from etl.loader.steps import Steps
from etl.loader.version_lease import HeldVersions

_EPOCH = 0  # its order is that of every evaluation


class Evaluated(Protocol):
    """What an evaluation needs of a dataset."""

    where: str
    epochs: Epochs
    place: Place

    def tables(self) -> Sequence[tuple[str, int]]:
        """Return the URL and the version of each table that is read."""

    def reader(self, epoch: int, *, world_size: int = 1) -> AbstractContextManager[Any]:
        """Return a reader of an epoch's batches on one rank of ``world_size``."""


class Evaluation(IterableDataset[Batch]):
    """The batches of an evaluation: iterate it, or pass it to ``DataLoader(..., batch_size=None)``.

    Each window of the dataset's epoch 0 comes once, in the same order every time, on any number of ranks and
    workers. All ranks take ``len(evaluation)`` steps of ``batch_size`` rows. The last step is filled up with
    padding rows: copies of the last window whose labels are all -100. Besides the tensors of the dataset's
    format, batches have

    - ``sample``: int64 (B,), the number of the window, or -1 for padding. ``dataset.locate(sample, epoch=0)``
      returns its documents.
    - ``weight``: float32 (B,), 1 for a window and 0 for padding.

    Each iteration begins at the first window. An evaluation has no state, and the dataset keeps its position.
    ``prefetch`` and ``device`` are as in ``dataset.batches``.

    Raises LoaderError if the batch size is not positive, ``prefetch`` is negative, or the length of the
    windows changes.
    """

    def __init__(
        self,
        dataset: Evaluated,
        batch_size: int,
        *,
        prefetch: int = 0,
        device: str | torch.device | None = None,
    ) -> None:
        check_batch_size(batch_size)
        if len(dataset.epochs.seq_lens.values) > 1:
            raise LoaderError(
                "an evaluation needs windows of one length, but seq_len is a Schedule of several",
                where=dataset.where,
                hint="open the dataset with each length as a number, and evaluate them one after the other",
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self._delivery = Delivery.of(prefetch, device)

    @property
    def num_samples(self) -> int:
        """The number of windows, over all ranks."""
        return self.dataset.epochs.of(_EPOCH).num_samples

    def __len__(self) -> int:
        """Return the number of steps, the same on all ranks."""
        return ceil(self.num_samples / self._plan_steps().stride)

    def __iter__(self) -> Iterator[Batch]:
        self._check_unprepared()
        self._delivery.check(self.dataset.where)
        worker: Any = get_worker_info()
        first, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        items = self._delivery.deliver(self._read(range(first, len(self), count)))
        return (item.batch if worker is None else WorkerBatch(item.batch) for item in items)

    def _read(self, numbers: range) -> Generator[PositionedBatch]:
        """Yield the batches of some steps."""
        dataset, steps = self.dataset, self._plan_steps()
        with HeldVersions() as versions:
            if steps.rank.rank == 0 and numbers and numbers[0] == 0:
                versions.hold(dataset.tables())
            with dataset.reader(_EPOCH, world_size=steps.rank.world_size) as reader:
                last = self.num_samples - 1
                for number in numbers:
                    first = number * steps.stride
                    samples = torch.tensor(steps.samples(range(first, first + steps.stride)))
                    is_window = samples <= last
                    # A copy of a window is valid in every format. It is the last one, so samples ascend.
                    batch = reader.batch(samples.clamp(max=last).tolist())
                    batch["labels"][~is_window] = IGNORED
                    batch["sample"] = torch.where(is_window, samples, -1)
                    batch["weight"] = is_window.float()
                    yield PositionedBatch(number, True, number == numbers[-1], batch)

    def _plan_steps(self) -> Steps:
        """Return how the windows are divided, for the rank that this process has now."""
        return Steps(
            batch_size=self.batch_size,
            rank=self.dataset.place.rank,
            lanes=self.dataset.epochs.of(_EPOCH).lanes,
            drop_last=False,
        )

    def _check_unprepared(self) -> None:
        """Raise LoaderError if accelerate distributes the batches of this rank again."""
        if find_prepared(self) is not None:
            raise LoaderError(
                "each rank has its own part of the evaluation, but accelerate would distribute it again",
                where=self.dataset.where,
                hint="iterate over the evaluation, or a DataLoader of it, without Accelerator.prepare; "
                "in a Trainer, return it from get_eval_dataloader",
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields; a spawned worker cannot see that accelerate has prepared its loader."""
        self._check_unprepared()
        return self.__dict__
