"""`Delivery`: how batches reach a loop, read ahead by a thread and copied to a device."""

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch.utils.data import get_worker_info

from etl.errors import LoaderError
from etl.loader.batches.device import copy_ahead
from etl.loader.batches.document_boundaries import PositionedBatch
from etl.loader.batches.prefetch import prefetch


@dataclass(frozen=True)
class Delivery:
    """A number of batches to read ahead, and the device to copy them to."""

    num_prefetch: int = 0
    device: torch.device | None = None

    @staticmethod
    def of(num_prefetch: int, device: str | torch.device | None) -> "Delivery":
        """Return the delivery with these settings; raise LoaderError if the number is negative."""
        if num_prefetch < 0:
            raise LoaderError(f"prefetch must be at least 0, not {num_prefetch}")
        return Delivery(num_prefetch, None if device is None else torch.device(device))

    def check(self, where: str) -> None:
        """Raise LoaderError if this process cannot copy batches to the device."""
        if self.device is not None and get_worker_info() is not None:
            raise LoaderError(
                "a DataLoader worker cannot copy batches to a device",
                where=where,
                hint="pass prefetch=4 and device=... without a DataLoader, or leave out device",
            )

    def deliver(self, batches: Generator[PositionedBatch]) -> Generator[PositionedBatch]:
        """Return the batches, read ahead and on the device."""
        batches = prefetch(batches, self.num_prefetch) if self.num_prefetch else batches
        return batches if self.device is None else copy_ahead(batches, self.device)


def check_batch_size(batch_size: int) -> None:
    """Raise LoaderError unless a batch has rows."""
    if batch_size < 1:
        raise LoaderError(f"batch_size must be at least 1, not {batch_size}")
