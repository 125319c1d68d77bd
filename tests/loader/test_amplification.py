"""All ranks together fetch each byte of a remote table about once, at any world size."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from etl.loader import Shuffle
from etl.loader.fetch.footers import CHUNKS, marked_page
from etl.loader.fetch.request_parts import RequestParts
from etl.loader.fetch.table_index import TableIndex
from etl.loader.order.epoch import EpochPlan
from etl.loader.order.mixture_order import MixtureOrder
from etl.loader.steps import divide_step
from etl.parquet.page_marks import thin_marks


def make_index(num_tokens):
    """Return the index of a table of files of 16.5 M tokens, with the marks of its pages of 16,384 tokens."""
    page, pages, groups = 1 << 14, 92, 11
    group_tokens, group_bytes = pages * page, 2 * pages * page
    num_files = num_tokens // (groups * group_tokens)
    chunks = np.zeros(num_files * groups, CHUNKS)
    chunks["tokens"]["start"] = np.tile(np.arange(groups) * group_bytes, num_files)
    chunks["tokens"]["size"] = group_bytes
    chunks["num_tokens"]["codec"] = -1
    firsts = np.arange(pages) * page
    offsets = [(2 * firsts + group_bytes * group).tolist() for group in range(groups)]
    marks = json.dumps([[firsts.tolist(), each] for each in offsets]).encode()
    return TableIndex(
        "memory://table",
        0,
        np.arange(num_files).astype(np.bytes_),
        np.full(num_files, groups * group_tokens),
        np.full(num_files, groups * group_bytes),
        np.arange(num_files + 1) * groups,
        np.full(len(chunks), group_tokens, np.int32),
        np.ones(len(chunks), np.int32),
        chunks,
        marks=np.full(num_files, thin_marks(marks, marked_page(num_tokens)), object),
    )


def count_lane_bytes(index, plan):
    """Return the bytes that a reader of each lane fetches, (lanes,) int64."""
    stream, runs = plan.stream(0), np.append(plan.runs(), len(index.group_tokens))
    counts = []
    for lane in range(plan.lanes):
        start, stop = plan.lane_span(0, lane)
        indices = stream.group_indices(start, stop)
        groups, before = stream.groups[indices.start : indices.stop], stream.start(indices.start)
        span = {"first": start - before, "last": stop - before}
        parts = RequestParts(index, runs, groups, **span, part_bytes=1 << 18)
        counts.append(sum(part.stop - part.start for part in parts.parts(int(groups[0]))))
    return np.array(counts)


def count_readers(lanes, world_size, batch_size=8):
    """Return how many ranks read each lane, (lanes,) int64."""
    stride = batch_size * world_size
    found = []
    for first in range(0, math.lcm(stride, lanes), stride):  # all lanes of a rank occur in it
        ranks = divide_step(stride, first % lanes, lanes, world_size)
        found.append(np.unique(ranks * lanes + (first + np.arange(stride)) % lanes))
    return np.bincount(np.unique(np.concatenate(found)) % lanes, minlength=lanes)


@pytest.mark.parametrize(
    ("num_tokens", "world_sizes"),
    [
        (500_000_000, [1, 8, 16, 24, 32, 40, 48]),
        (1_000_000_000, [*range(56, 104, 8), 100]),
        (2_000_000_000, [*range(104, 136, 8), 192]),
        (4_000_000_000, [256, 320, 384]),
        (25_000_000_000, [1, 100, *range(128, 1025, 64), 1000]),
    ],
)
def test_ranks_fetch_each_byte_about_once(num_tokens, world_sizes):
    """With the default lanes of an object store, if there are 10 M tokens per rank."""
    index = make_index(num_tokens)
    shuffle = Shuffle().resolved(index.num_tokens, is_remote=True)
    plan = EpochPlan(index.group_tokens, 2048, 0, shuffle)
    lane_bytes, size = count_lane_bytes(index, plan), int(index.chunks["tokens"]["size"].sum())
    fetched = {n: (lane_bytes * count_readers(plan.lanes, n)).sum() / size for n in world_sizes}
    assert {n: ratio for n, ratio in fetched.items() if not 1 <= ratio < 1.1} == {}


def test_a_class_of_a_mixture_reads_few_lanes_of_each_source():
    sizes = [4 * 10**6, 10**7, 3 * 10**8, 10**9, 3 * 10**9, 10**11]
    lanes = [Shuffle().resolved(size, is_remote=True).lanes for size in sizes]
    assert lanes == [15, 30, 960, 1920, 3840, 15_360]
    for small, large in pairwise(lanes):
        assert large % small == 0
    for samples in (100, 10**5, 10**7):
        classes = MixtureOrder.classes_for(lanes[-1], np.array([10**7, samples]))
        assert lanes[-1] % classes == 0


@pytest.mark.parametrize("world_size", [1, 8, 16, 24, 64])
def test_ranks_share_lanes_if_there_are_too_few(world_size):
    """Each lane is read by the ranks that divide it, not by world_size / gcd(lanes, world_size)."""
    readers = count_readers(16, world_size).sum()
    assert readers == 16 + world_size - math.gcd(16, world_size)
