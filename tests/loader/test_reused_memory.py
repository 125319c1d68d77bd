"""Memory that is used again: never while a tensor, or a view of one, still has it."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from etl.loader.batches.reused_memory import ReusedMemory

BIG = 1 << 15


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=30))
def test_tensors_keep_their_values(steps):
    memory, kept = ReusedMemory(), []
    for number, (rows, num_kept) in enumerate(steps):
        made = memory.widen(np.full((rows, BIG), number, np.int32))
        assert made.shape == (rows, BIG)
        assert made.dtype == torch.int64
        kept.append((number, made[-1] if number % 2 else made.numpy()))  # the tensor itself is gone
        del made
        kept = kept[len(kept) - num_kept :] if num_kept else []
        assert all((values == n).all() for n, values in kept)


def test_a_loop_over_batches_uses_the_same_memory():
    memory, addresses, batch = ReusedMemory(), set(), None
    for _ in range(10):
        batch = [memory.widen(np.zeros((2, BIG), np.uint16)) for _ in range(2)]
        addresses |= {values.data_ptr() for values in batch}
    assert batch is not None
    assert len(addresses) == 4  # of this batch and the one before


def test_a_tensor_that_is_never_dropped_does_not_prevent_reuse():
    memory = ReusedMemory()
    kept = memory.widen(np.full(BIG, 7))
    addresses = {memory.widen(np.zeros(BIG, np.int32)).data_ptr() for _ in range(10)}
    assert len(addresses) == 1
    assert (kept == 7).all()
