"""Copy batches to a device; to a GPU, the next one while the current one is used."""

from collections.abc import Generator
from contextlib import closing
from typing import Any

import torch

from etl.loader.batches.document_boundaries import Batch, PositionedBatch


def copy_ahead(
    items: Generator[PositionedBatch], device: torch.device
) -> Generator[PositionedBatch]:
    """Yield items with the tensors of their batches on a device.

    Copies to a GPU go through pinned memory, in a separate stream. The copy of the next batch is started
    before the current batch is returned, and only the GPU waits for it, when that batch is used. For other
    devices, a batch is copied when it is requested; for the CPU, it is returned as it is. Lengths, which
    attention takes as numbers, stay on the CPU: the loop would wait for the GPU to read them.
    """
    with closing(items):
        if device.type != "cuda":
            for item in items:
                yield item._replace(batch=_map(item.batch, lambda values: values.to(device)))
            return
        stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        coming = _start(next(items, None), device, stream)
        while coming is not None:
            item, current = coming, torch.cuda.current_stream(device)
            current.wait_stream(stream)
            for values in item.batch.values():
                if isinstance(values, torch.Tensor) and values.is_cuda:
                    values.record_stream(current)  # its memory is not reused before that is done
            coming = _start(next(items, None), device, stream)
            yield item


def _start(
    item: PositionedBatch | None, device: torch.device, stream: Any
) -> PositionedBatch | None:
    """Start to copy a batch to a GPU."""
    if item is None:
        return None
    with torch.cuda.stream(stream):
        copies = _map(item.batch, lambda values: values.pin_memory().to(device, non_blocking=True))
    return item._replace(batch=copies)


def _map(batch: Batch, function: Any) -> Batch:
    """Apply a function to the tensors of a batch but for ``max_seqlen``; lengths may also be int."""
    return {
        name: function(values) if isinstance(values, torch.Tensor) and values.ndim else values
        for name, values in batch.items()
    }
