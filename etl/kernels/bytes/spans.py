"""Build texts from byte ranges of other texts, to cut, join or mask them with one copy.

A span is a range of bytes ``starts[i] : ends[i]`` of ``texts.data``. The spans of document ``k`` are those
from ``first_span[k]`` to ``first_span[k + 1]``, in order and without overlap; all three arrays are int64.
Two passes: the length of each new text, then the bytes.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl.kernels.bytes.simd import copy_items
from etl.kernels.bytes.utf8 import Texts
from etl.kernels.jit import kernel

_MOST_BYTES: Final = 2**31 - 1  # the largest offset of a string array


class Spans(NamedTuple):
    """Byte ranges of the documents of a ``Texts``."""

    starts: NDArray[np.int64]  # (m,) the first byte
    ends: NDArray[np.int64]  # (m,) the byte after the last
    first_span: NDArray[np.int64]  # (n + 1,) the first span of each document, and m

    def counts(self) -> NDArray[np.int64]:
        """Return the number of spans of each document: int64 (n,)."""
        return np.diff(self.first_span)


def keep_spans(texts: Texts, spans: Spans, *, separator: bytes = b"") -> pa.Array:
    r"""Return each document's spans, joined by the separator: string, null for null.

    The array is a large_string if it takes 2 GiB or more. Spans must not begin or end inside a character:
    the result would not be valid UTF-8.

    >>> from etl.kernels.bytes.utf8 import texts
    >>> spans = Spans(np.array([0, 5]), np.array([2, 7]), np.array([0, 2, 2]))
    >>> keep_spans(texts(pa.array(["ab\ncd\ne", "x"])), spans, separator=b" ").to_pylist()
    ['ab \ne', '']
    """
    joint = np.frombuffer(separator, np.uint8)
    offsets = np.zeros(len(texts.offsets), np.int64)
    _measure(spans.starts, spans.ends, spans.first_span, len(joint), offsets)
    data = np.empty(offsets[-1], np.uint8)
    _copy(texts.data, spans.starts, spans.ends, spans.first_span, joint, data)
    return build_strings(offsets, data, texts.valid)


def replace_spans(texts: Texts, spans: Spans, *, mask: bytes) -> pa.Array:
    """Return each document with its spans replaced by the mask: string, null for null.

    >>> from etl.kernels.bytes.utf8 import texts
    >>> spans = Spans(np.array([1]), np.array([2]), np.array([0, 1, 1]))
    >>> replace_spans(texts(pa.array(["abc", "abc"])), spans, mask=b"*").to_pylist()
    ['a*c', 'abc']
    """
    # Keep the gaps: a document of k spans has k + 1 of them, some of which may be empty. Their bounds
    # ascend over the whole buffer, so a sort merges the bounds of documents and spans.
    starts = np.sort(np.concatenate([texts.offsets[:-1], spans.ends]), kind="stable")
    ends = np.sort(np.concatenate([spans.starts, texts.offsets[1:]]), kind="stable")
    gaps = Spans(starts, ends, spans.first_span + np.arange(len(spans.first_span)))
    return keep_spans(texts, gaps, separator=mask)


def build_strings(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], valid: NDArray[np.bool_] | None
) -> pa.Array:
    """Return the array with these buffers, like an array of ``Texts`` but with offsets from 0.

    The type is string, or large_string if the data take 2 GiB or more; null for null.
    """
    small = offsets[-1] <= _MOST_BYTES
    kind, width = (pa.string(), np.int32) if small else (pa.large_string(), np.int64)
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [nulls, pa.py_buffer(offsets.astype(width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


@kernel
def _measure(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    first_span: NDArray[np.int64],
    joint: int,
    offsets: NDArray[np.int64],
) -> None:
    """Write the end of each new text to ``offsets``."""
    for k in range(len(offsets) - 1):
        size = joint * max(0, first_span[k + 1] - first_span[k] - 1)
        for span in range(first_span[k], first_span[k + 1]):
            size += ends[span] - starts[span]
        offsets[k + 1] = offsets[k] + size


@kernel
def _copy(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    first_span: NDArray[np.int64],
    joint: NDArray[np.uint8],
    out: NDArray[np.uint8],
) -> None:
    at = 0
    for k in range(len(first_span) - 1):
        for span in range(first_span[k], first_span[k + 1]):
            if span > first_span[k]:
                for byte in joint:
                    out[at] = byte
                    at += 1
            size = ends[span] - starts[span]
            copy_items(out, at, data, starts[span], size)
            at += size
