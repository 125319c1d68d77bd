"""Write the blocks that are main text: paragraphs, items of lists, rows of tables.

Blocks are separated by a blank line, the items of a list and the rows of a table by a line feed, the cells of
a row by a tab.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.simd import SIZE, copy_64
from etl.kernels.html.letters import HYPHEN, LF, SPACE, TAB, ZERO
from etl.kernels.html.page import BLOCKS, CONTAINERS, PREFORMATTED, Page
from etl.kernels.html.tags import DD, DT, LI, TABLE, TD, TH, TR
from etl.kernels.jit import inner

_MAX_INDENT: Final = 8  # levels of lists in lists

MAX_ADDED: Final = 2 + 2 * _MAX_INDENT + 12
"""The bytes that are written for a block besides its text."""

# What may be left out of the main text.
TABLES: Final = 1
LISTS: Final = 2
CODE: Final = 4
COMMENTS: Final = 8
MATH: Final = 16


class PageLayout(NamedTuple):
    """For each container, the innermost one of a kind around it or itself; 0: none."""

    item: NDArray[np.int32]
    level: NDArray[np.int32]  # how many lists it is in
    cell: NDArray[np.int32]
    row: NDArray[np.int32]
    table: NDArray[np.int32]


def make_layout(num_containers: int) -> PageLayout:
    """Return scratch memory for the layout of a page."""
    return PageLayout(*(np.zeros(num_containers, np.int32) for _ in PageLayout._fields))


@inner
def lay_out(page: Page, layout: PageLayout) -> None:
    """Fill the layout of a page, outer containers first."""
    for container in range(1, page.state[CONTAINERS]):
        tag, above = page.containers.tag[container], page.containers.parent[container]
        for each in layout:
            each[container] = each[above]
        if tag == LI or tag == DD or tag == DT:
            layout.item[container] = container
            layout.level[container] = layout.level[above] + (tag == LI)
        elif tag == TD or tag == TH:
            layout.cell[container] = container
            layout.item[container] = layout.level[container] = 0
        elif tag == TR:
            layout.row[container] = container
        elif tag == TABLE:
            layout.table[container] = container
            layout.row[container] = layout.cell[container] = 0


@inner
def is_kept(page: Page, layout: PageLayout, block: int, keep: int) -> bool:
    """Return whether a block is of a kind that is kept."""
    container = page.blocks.container[block]
    if not keep & CODE and page.blocks.flags[block] & PREFORMATTED:
        return False
    if not keep & LISTS and layout.item[container]:
        return False
    return bool(keep & TABLES) or not _is_data_cell(page, layout, block)


@inner
def _is_data_cell(page: Page, layout: PageLayout, block: int) -> bool:
    """Return whether a block is all of a cell, with other cells in its row: not part of a page's layout."""
    container = page.blocks.container[block]
    row, cell, has_neighbour = layout.row[container], layout.cell[container], False
    if row == 0:
        return False
    for other in (block - 1, block + 1):
        if 0 <= other < page.state[BLOCKS]:
            beside = page.blocks.container[other]
            if layout.cell[beside] == cell:
                return False
            has_neighbour |= layout.row[beside] == row
    return has_neighbour


@inner
def write_block(
    page: Page, layout: PageLayout, block: int, before: int, out: NDArray[np.uint8], end: int
) -> int:
    """Write a block after another one, or -1; return the new end of the output."""
    blocks = page.blocks
    container = blocks.container[block]
    item = layout.item[container]
    # The first block of an item has its marker: no block before it is in the item.
    is_first = item > 0 and (block == 0 or blocks.container[block - 1] < item)
    if before >= 0:
        end = _separate(layout, container, blocks.container[before], is_first, out, end)
    if is_first and page.containers.tag[item] == LI:
        end = _write_marker(page, layout, item, out, end)
    return _copy(page.text, blocks.start[block], blocks.stop[block], out, end)


@inner
def _separate(
    layout: PageLayout,
    container: int,
    before: int,
    is_first: bool,
    out: NDArray[np.uint8],
    end: int,
) -> int:
    row = layout.row[container]
    if row > 0 and layout.row[before] == row and layout.cell[before] != layout.cell[container]:
        out[end] = TAB
        return end + 1
    out[end] = LF
    is_row = (
        row > 0 and layout.row[before] != row and layout.table[before] == layout.table[container]
    )
    if is_row or (is_first and layout.item[before] > 0):
        return end + 1
    out[end + 1] = LF
    return end + 2


@inner
def _write_marker(
    page: Page, layout: PageLayout, item: int, out: NDArray[np.uint8], end: int
) -> int:
    """Write ``- ``, or the number of an item, after two spaces for each list around its list."""
    for _ in range(2 * (min(layout.level[item], _MAX_INDENT) - 1)):
        out[end] = SPACE
        end += 1
    number = page.containers.number[item]
    if number == 0:
        out[end] = HYPHEN
        end += 1
    else:
        size, rest = 1, number // 10
        while rest > 0:
            size, rest = size + 1, rest // 10
        for k in range(end + size - 1, end - 1, -1):
            out[k] = ZERO + number % 10
            number //= 10
        out[end + size] = 46
        end += size + 1
    out[end] = SPACE
    return end + 1


@inner
def _copy(text: NDArray[np.uint8], start: int, stop: int, out: NDArray[np.uint8], end: int) -> int:
    """Copy bytes; up to 63 more are written after the end."""
    for k in range(start, stop, SIZE):
        copy_64(out, end + k - start, text, k)
    return end + stop - start
