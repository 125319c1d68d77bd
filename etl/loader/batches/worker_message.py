"""Send batches from DataLoader workers as bytes, in 16 or 32 bits per value where they fit.

Input ids and labels that are the same window, shifted by one, are sent once.

torch sends each tensor as a file descriptor of shared memory, which costs about a millisecond regardless of
its size. That is cheap for 64 windows of 2,048 tokens, but not for 8. Sending bytes also cannot exhaust
/dev/shm, which has 64 MB in many containers.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from etl.loader.batches.reused_memory import ReusedMemory

Batch = dict[str, torch.Tensor]
_WINDOW = ("input_ids", "labels")
_MEMORY = ReusedMemory()  # of the tensors received


class _Narrow(NamedTuple):
    """An int64 tensor as the bytes of a smaller type, which pickle copies once; an array it copies twice."""

    content: bytes
    kind: str
    shape: tuple[int, ...]

    @staticmethod
    def of(array: np.ndarray) -> "_Narrow":
        """Return integers in the smallest type that all of them fit."""
        low, high = int(array.min()), int(array.max())
        for kind in (np.uint16, np.int32):
            if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
                array = array.astype(kind, copy=False)
                break
        return _Narrow(array.tobytes(), array.dtype.str, array.shape)

    def array(self) -> np.ndarray:
        """Return the integers, read-only."""
        return np.frombuffer(self.content, self.kind).reshape(self.shape)


class WorkerBatch(Batch):
    """A batch that unpickles as a plain dictionary of the same tensors.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(WorkerBatch(labels=torch.tensor([7, -100]))))
    {'labels': tensor([   7, -100])}
    """

    def __copy__(self) -> Self:  # DataLoader copies batches; the default would use __reduce__
        return type(self)(self)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        sent = {name: _pack(values) for name, values in self.items() if name not in _WINDOW}
        return _receive, (sent, *_pack_window(self))


def _pack_window(batch: Batch) -> tuple[Any, Any]:
    """Return input ids and labels as one array, if they are windows shifted by one, or two."""
    ids, labels = (batch.get(name) for name in _WINDOW)
    if ids is None or labels is None or ids.dtype != torch.int64 or not ids.numel():
        return _pack(ids), _pack(labels)
    if ids.shape == labels.shape and torch.equal(ids[..., 1:], labels[..., :-1]):
        window = np.empty((*ids.shape[:-1], ids.shape[-1] + 1), np.int32)  # as they are stored
        window[..., :-1], window[..., -1] = ids.numpy(), labels[..., -1].numpy()
        return _Narrow.of(window), None
    return _pack(ids), _pack(labels)


def _pack(values: Any) -> Any:
    """Return an int64 tensor as bytes of a smaller type; others unchanged."""
    if not isinstance(values, torch.Tensor) or values.device.type != "cpu":
        return values
    if values.dtype != torch.int64 or not values.numel():
        return values
    return _Narrow.of(values.numpy())


def _receive(packed: Mapping[str, Any], ids: Any, labels: Any) -> dict[str, Any]:
    batch = {} if ids is None else {"input_ids": _unpack(ids)}
    if labels is not None:
        batch["labels"] = _unpack(labels)
    elif ids is not None:
        window = ids.array()
        batch = {
            "input_ids": _MEMORY.widen(window[..., :-1]),
            "labels": _MEMORY.widen(window[..., 1:]),
        }
    return batch | {name: _unpack(values) for name, values in packed.items()}


def _unpack(values: Any) -> Any:
    return _MEMORY.widen(values.array()) if isinstance(values, _Narrow) else values
