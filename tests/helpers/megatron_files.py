"""Read indexed datasets of Megatron as their format describes them."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.helpers.paths import at


def read_megatron(prefix: Any) -> Iterator[list[int]]:
    """Yield the sequences of an indexed dataset, with every offset checked."""
    index = at(f"{prefix}.idx").read_bytes()
    tokens = at(f"{prefix}.bin").read_bytes()
    assert index[:9] == b"MMIDIDX\0\0"
    version, code, count, bounds = struct.unpack_from("<QBQQ", index, 9)
    dtype = np.dtype({8: "<u2", 4: "<i4"}[code])
    assert version == 1
    position = 34
    lengths = np.frombuffer(index, "<i4", count, position)
    position += 4 * count
    pointers = np.frombuffer(index, "<i8", count, position)
    position += 8 * count
    firsts = np.frombuffer(index, "<i8", bounds, position)
    assert position + 8 * bounds == len(index)
    assert firsts.tolist() == list(range(count + 1))
    assert lengths.sum() * dtype.itemsize == len(tokens)
    for length, pointer in zip(lengths.tolist(), pointers.tolist(), strict=True):
        yield np.frombuffer(tokens, dtype, length, pointer).tolist()
