"""Send batches from DataLoader workers as bytes, and values as int32 where they fit.

torch sends each tensor as a file descriptor of shared memory, which costs about a millisecond regardless of
its size. That is cheap for 64 windows of 2,048 tokens, but not for 8. Sending bytes also cannot exhaust
/dev/shm, which has 64 MB in many containers.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch

Batch = dict[str, torch.Tensor]


class WorkerBatch(Batch):
    """A batch that unpickles as a plain dictionary of the same tensors.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(WorkerBatch(labels=torch.tensor([7, -100]))))
    {'labels': tensor([   7, -100])}
    """

    def __copy__(self) -> Self:  # DataLoader copies batches; the default would use __reduce__
        return type(self)(self)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _receive, ({name: _pack(values) for name, values in self.items()},)


def _pack(values: Any) -> Any:
    """Return an int64 tensor as an array, of int32 if all its values fit; other values unchanged."""
    if not isinstance(values, torch.Tensor) or values.device.type != "cpu":
        return values
    if values.dtype != torch.int64:
        return values
    array = values.numpy()
    small = array.astype(np.int32)
    return small if np.array_equal(small, array) else array


def _receive(packed: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: torch.from_numpy(values.astype(np.int64))
        if isinstance(values, np.ndarray)
        else values
        for name, values in packed.items()
    }
