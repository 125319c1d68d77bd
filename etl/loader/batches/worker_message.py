"""Send batches from DataLoader workers as bytes, and values as int32 where they fit.

torch sends each tensor as a file descriptor of shared memory, which costs about a millisecond regardless of
its size. That is cheap for 64 windows of 2,048 tokens, but not for 8. Sending bytes also cannot exhaust
/dev/shm, which has 64 MB in many containers.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import torch

Batch = dict[str, torch.Tensor]
_WINDOW = ("input_ids", "labels")
_MAX_BYTES = 1 << 20


class _Narrow(NamedTuple):
    """An int64 tensor as an array or a tensor of a smaller type."""

    values: Any


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
    if ids is None or labels is None or ids.dtype != torch.int64 or ids.dim() == 0:
        return _pack(ids), _pack(labels)
    if ids.shape == labels.shape and torch.equal(ids[..., 1:], labels[..., :-1]):
        return _pack(torch.cat([ids, labels[..., -1:]], dim=-1)), None
    return _pack(ids), _pack(labels)


def _pack(values: Any) -> Any:
    """Return an int64 tensor as an array of the smallest type that all its values fit; others unchanged."""
    if not isinstance(values, torch.Tensor) or values.device.type != "cpu":
        return values
    if values.dtype != torch.int64 or not values.numel():
        return values
    array = values.numpy()
    low, high = int(array.min()), int(array.max())
    for kind in (np.uint16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            array = array.astype(kind)
            break
    # Large arrays are cheaper in shared memory, which torch uses for tensors.
    return _Narrow(torch.from_numpy(array) if array.nbytes > _MAX_BYTES else array)


def _receive(packed: Mapping[str, Any], ids: Any, labels: Any) -> dict[str, Any]:
    batch = {} if ids is None else {"input_ids": _unpack(ids)}
    if labels is not None:
        batch["labels"] = _unpack(labels)
    elif ids is not None:
        narrow = ids.values.numpy() if isinstance(ids.values, torch.Tensor) else ids.values
        batch = {
            "input_ids": torch.from_numpy(narrow[..., :-1].astype(np.int64)),
            "labels": torch.from_numpy(narrow[..., 1:].astype(np.int64)),
        }
    return batch | {name: _unpack(values) for name, values in packed.items()}


def _unpack(values: Any) -> Any:
    if not isinstance(values, _Narrow):
        return values
    narrow = values.values
    wide = narrow.numpy() if isinstance(narrow, torch.Tensor) else narrow
    return torch.from_numpy(wide.astype(np.int64))
