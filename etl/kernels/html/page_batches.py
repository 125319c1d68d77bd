"""Extract the main text of a batch of pages in one call without the GIL, from and to Arrow buffers."""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl.kernels.bytes.simd import SIZE
from etl.kernels.bytes.utf8 import Texts
from etl.kernels.html import metadata
from etl.kernels.html.comments import find_comments
from etl.kernels.html.features import NUMBERS, Sums, describe_blocks, make_sums
from etl.kernels.html.page import BLOCKS, END, Page, make_page
from etl.kernels.html.read import read_page
from etl.kernels.html.trees import Trees, add_trees
from etl.kernels.html.writer import (
    COMMENTS,
    MATH,
    MAX_ADDED,
    PageLayout,
    is_kept,
    lay_out,
    make_layout,
    write_block,
)
from etl.kernels.jit import inner, kernel

ENOUGH: Final = 250
"""Bytes of main text below which the lower bar counts: chosen by cross-validation."""

MAIN_RATIO, LINK_RATIO, COMMENT_RATIO = range(3)


class BlockModel(NamedTuple):
    """A model of which blocks are main text."""

    bits: NDArray[np.int64]  # which of `etl.kernels.html.features.BITS` it has
    trees: Trees
    bar: np.float32  # a block is main text if its sum is above
    lower_bar: np.float32  # for pages with little main text
    start: np.float32  # of each sum


class Extracted(NamedTuple):
    """The result for a batch; all arrays have one item for each document, null if it is not a page."""

    text: pa.Array  # string
    metadata: pa.Array  # string: JSON, null also if there is none
    main_ratio: pa.Array  # float64: shares of the bytes of a page's text, null also if it has none
    link_ratio: pa.Array
    comment_ratio: pa.Array


class _Work(NamedTuple):
    """Scratch memory for one page at a time."""

    page: Page
    sums: Sums
    layout: PageLayout
    is_comment: NDArray[np.bool_]  # (containers,)
    numbers: NDArray[np.float32]  # the features, side by side
    leaf: NDArray[np.int32]  # (blocks,)
    totals: NDArray[np.float32]  # (blocks,)
    is_main: NDArray[np.bool_]  # (blocks,)


class _Output(NamedTuple):
    """Where results are written; of text and metadata, the bytes and the end of each document's."""

    text: NDArray[np.uint8]
    text_ends: NDArray[np.int64]
    metadata: NDArray[np.uint8]
    metadata_ends: NDArray[np.int64]
    ratios: NDArray[np.float64]  # (3, documents)


def extract_pages(
    texts: Texts, is_page: NDArray[np.bool_], model: BlockModel, *, keep: int
) -> Extracted:
    """Extract the main text of those documents that are pages; ``keep`` sums the kinds that are kept.

    The kinds are `TABLES`, `LISTS`, `CODE`, `COMMENTS` and `MATH` of ``etl.kernels.html.writer``.
    """
    sizes = np.diff(texts.offsets)[is_page]
    work = _make_work(int(sizes.max(initial=0)), len(NUMBERS) + len(model.bits))
    ratios = np.full((3, len(is_page)), np.nan)
    parts: list[tuple[pa.Array, pa.Array]] = []
    first, room = 0, int(sizes.sum()) // 8 + (1 << 16)
    while first < len(is_page) or not parts:
        output = _make_output(room, len(is_page) - first, metadata.room(sizes), ratios)
        done = _extract(texts.offsets, texts.data, is_page, first, model, keep, work, output)
        parts.append(_to_arrow(output, is_page[first : first + done]))
        first += done
        # A page that did not fit is read again. Its text needs what it has now, and separators.
        room = max(room, int(work.page.state[END] + MAX_ADDED * work.page.state[BLOCKS]))
    text, meta = (pa.concat_arrays(each) for each in zip(*parts, strict=True))
    shares = (pa.array(each, from_pandas=True) for each in ratios)
    return Extracted(text, meta, *shares)


def _make_work(max_bytes: int, num_features: int) -> _Work:
    page = make_page(max_bytes)
    num_blocks, num_containers = len(page.blocks.start), len(page.containers.parent)
    return _Work(
        page=page,
        sums=make_sums(num_containers),
        layout=make_layout(num_containers),
        is_comment=np.zeros(num_containers, np.bool_),
        numbers=np.empty(num_features * num_blocks, np.float32),
        leaf=np.empty(num_blocks, np.int32),
        totals=np.empty(num_blocks, np.float32),
        is_main=np.empty(num_blocks, np.bool_),
    )


def _make_output(room: int, count: int, metadata_room: int, ratios: NDArray[np.float64]) -> _Output:
    return _Output(
        text=np.empty(room + SIZE, np.uint8),
        text_ends=np.zeros(count + 1, np.int64),
        metadata=np.empty(metadata_room, np.uint8),
        metadata_ends=np.zeros(count + 1, np.int64),
        ratios=ratios,
    )


def _to_arrow(output: _Output, is_page: NDArray[np.bool_]) -> tuple[pa.Array, pa.Array]:
    """Return the texts and metadata of the documents that are done."""
    count = len(is_page)
    has_metadata = np.diff(output.metadata_ends[: count + 1]) > 0
    return (
        _strings(output.text, output.text_ends, is_page),
        _strings(output.metadata, output.metadata_ends, has_metadata),
    )


def _strings(
    data: NDArray[np.uint8], ends: NDArray[np.int64], valid: NDArray[np.bool_]
) -> pa.Array:
    used = ends[: len(valid) + 1]
    buffers = [
        pa.py_buffer(np.packbits(valid, bitorder="little")),
        pa.py_buffer(used.tobytes()),
        pa.py_buffer(data[: used[-1]].tobytes()),
    ]
    return pa.Array.from_buffers(pa.large_string(), len(valid), buffers).cast(pa.string())


@kernel
def _extract(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    is_page: NDArray[np.bool_],
    first: int,
    model: BlockModel,
    keep: int,
    work: _Work,
    output: _Output,
) -> int:
    """Extract documents from ``first`` on, and return how many were done before one did not fit."""
    page, end, metadata_end = work.page, 0, 0
    for k in range(len(is_page) - first):
        if is_page[first + k]:
            read_page(data, offsets[first + k], offsets[first + k + 1], keep & MATH > 0, page)
            if end + page.state[END] + MAX_ADDED * page.state[BLOCKS] > len(output.text) - SIZE:
                return k
            _choose(model, keep, work)
            _measure(work, output.ratios, first + k)
            end = _write(work, output.text, end)
            metadata_end = metadata.write_metadata(data, page, output.metadata, metadata_end)
        output.text_ends[k + 1], output.metadata_ends[k + 1] = end, metadata_end
    return len(is_page) - first


@inner
def _choose(model: BlockModel, keep: int, work: _Work) -> None:
    """Decide which blocks are main text."""
    page, num = work.page, work.page.state[BLOCKS]
    rows = len(NUMBERS) + len(model.bits)
    x, totals = work.numbers[: rows * num].reshape(rows, num), work.totals[:num]
    describe_blocks(page, work.sums, model.bits, x)
    add_trees(x, model.trees, work.leaf[:num], totals)
    lay_out(page, work.layout)
    find_comments(page, work.is_comment)
    bar, chosen = model.bar - model.start, 0
    for b in range(num):
        if totals[b] > bar:
            chosen += page.blocks.stop[b] - page.blocks.start[b]
    if chosen < ENOUGH:
        bar = model.lower_bar - model.start
    before = 0
    for b in range(num):
        work.is_main[b] = totals[b] > bar and is_kept(page, work.layout, b, keep)
        # Comments follow what they are about. The posts of a forum, which may be called comments, do not.
        if work.is_main[b] and work.is_comment[page.blocks.container[b]]:
            work.is_main[b] = keep & COMMENTS or before < ENOUGH
        elif work.is_main[b]:
            before += page.blocks.stop[b] - page.blocks.start[b]


@inner
def _measure(work: _Work, ratios: NDArray[np.float64], document: int) -> None:
    """Measure which shares of the text of a page are main text, links and comments."""
    blocks, total, main, linked, comments = work.page.blocks, 0, 0, 0, 0
    for b in range(work.page.state[BLOCKS]):
        size = np.int64(blocks.stop[b] - blocks.start[b])
        total += size
        linked += blocks.linked[b]
        if work.is_main[b]:
            main += size
        if work.is_comment[blocks.container[b]]:
            comments += size
    if total > 0:
        ratios[MAIN_RATIO, document], ratios[LINK_RATIO, document] = main / total, linked / total
        ratios[COMMENT_RATIO, document] = comments / total


@inner
def _write(work: _Work, out: NDArray[np.uint8], end: int) -> int:
    before = -1
    for b in range(work.page.state[BLOCKS]):
        if work.is_main[b]:
            end = write_block(work.page, work.layout, b, before, out, end)
            before = b
    return end
