"""What the kernels of anchors, chunks and windows cut from documents, without a lake."""

import numpy as np
import pyarrow as pa

from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing.equal_chunks import (
    Intervals,
    are_repeats,
    compare_chunks,
    may_share_windows,
)
from etl.kernels.hashing.repeated_windows import find_repeats, hash_windows
from etl.kernels.hashing.window_anchors import LOCAL, find_anchors


def described(documents):
    """Return the intervals of documents, and their keys, chunks and cores."""

    def describe(size):
        found = find_anchors(buffers(pa.array(documents, pa.string())), size)
        owners = np.repeat(np.arange(len(documents)), np.diff(found.first))
        before = np.cumsum(found.counts, dtype=np.int64) - found.counts
        firsts = found.first[owners]
        starts = (
            (before - before[firsts]).astype(np.int32) if len(owners) else np.empty(0, np.int32)
        )
        return Intervals(owners, starts, found.counts), found.keys, found.chunks, found.cores

    return describe


def take(intervals, chosen):
    return Intervals(*(column[chosen] for column in intervals))


def chunks_of(documents, intervals, size):
    encoded = [document.encode() for document in documents]
    parts = [
        encoded[document][start : start + count - 1 + size]
        for document, start, count in zip(*(c.tolist() for c in intervals), strict=True)
    ]
    return buffers(pa.array(parts, pa.binary()).view(pa.string()))


def masks(documents, size, order=np.arange, *, by_hash=False):
    """Return which bytes the kernels cut, with chunks compared in any order."""
    intervals, keys, chunks, cores = described(documents)(size)
    cuts = [
        (document, start, start + count - 1 + size)
        for document, start, count, chunk in zip(
            *(c.tolist() for c in (*intervals, chunks)), strict=True
        )
        if chunk == LOCAL
    ]
    shuffled = order(len(keys))
    shuffled = shuffled[chunks[shuffled] != LOCAL]
    some = take(intervals, shuffled)
    keys, chunks, cores = (column[shuffled] for column in (keys, chunks, cores))
    matches = compare_chunks(keys, chunks, some)
    repeated = are_repeats(some, matches.firsts, size)
    asked = np.flatnonzero(may_share_windows(keys, cores, matches) & ~repeated)
    columns = [c[repeated].tolist() for c in some]
    cuts += [(d, s, s + n - 1 + size) for d, s, n in zip(*columns, strict=True)]
    asked = asked[np.lexsort((some.starts[asked], some.documents[asked], keys[asked]))]
    requested = take(some, asked)
    texts = chunks_of(documents, requested, size)
    if by_hash:
        windows = Intervals(
            np.repeat(requested.documents, requested.counts),
            np.concatenate(
                [np.empty(0, np.int32)]
                + [np.arange(s, s + n, dtype=np.int32) for _, s, n in zip(*requested, strict=True)]
            ),
            np.ones(requested.counts.sum(), np.int32),
        )
        firsts = compare_chunks(*hash_windows(texts, requested.counts, size), windows).firsts
        for k in np.flatnonzero(are_repeats(windows, firsts, size)):
            cuts.append((windows.documents[k], windows.starts[k], windows.starts[k] + size))
    else:
        found = find_repeats(keys[asked], texts, requested, size)
        documents_cut = requested.documents[found.intervals]
        cuts += list(zip(documents_cut, found.starts, found.ends, strict=True))
        firsts = requested.documents[found.firsts]
        assert (firsts <= documents_cut).all()
    out = [[False] * len(document.encode()) for document in documents]
    for document, start, end in cuts:
        out[document][start:end] = [True] * (end - start)
    return out


def encoded(documents):
    return [document.encode() for document in documents]
