"""Memory for the tensors of batches that is used again once the tensors are gone.

A tensor of 64 windows has a megabyte. The C library returns so much memory to the operating system when it is
freed, and the next tensor then waits for zeroed pages, which can take a third of the time of a batch.
"""

import threading
import weakref
from collections import deque

import numpy as np
import torch

_MIN_VALUES = 1 << 14  # smaller arrays are below the threshold of the C library, 128 KB
_MOST_KEPT = 64  # arrays: batches that are prefetched are in use at the same time


class ReusedMemory(threading.local):
    """Memory for the tensors of each thread; the tensor that is gone for longest gives it to the next one.

    >>> memory = ReusedMemory()
    >>> first = memory.widen(np.arange(1 << 15, dtype=np.int32))
    >>> address, row = first.data_ptr(), first[:7]
    >>> del first
    >>> second = memory.widen(np.arange(1 << 15, dtype=np.int32))
    >>> del row
    >>> third = memory.widen(np.arange(1 << 15, dtype=np.int32))
    >>> second.data_ptr() == address, third.data_ptr() == address
    (False, True)
    """

    def __init__(self) -> None:
        # Each array with its view for a tensor; the one used first is at the front.
        self._kept: deque[tuple[np.ndarray, weakref.ref[np.ndarray]]] = deque(maxlen=_MOST_KEPT)

    def widen(self, values: np.ndarray) -> torch.Tensor:
        """Return integers as an int64 tensor."""
        if values.size <= _MIN_VALUES:
            return torch.from_numpy(values.astype(np.int64))
        for index, (memory, used) in enumerate(self._kept):
            if used() is None and memory.size >= values.size:
                del self._kept[index]
                break
        else:
            memory = np.empty(values.size, np.int64)
        view = memory[: values.size].reshape(values.shape)
        self._kept.append((memory, weakref.ref(view)))
        np.copyto(view, values)
        return torch.from_numpy(view)  # the tensor, and all views of it, keep the view
