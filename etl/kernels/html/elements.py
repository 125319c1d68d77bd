"""Which open elements a tag closes: end tags that are missing, misplaced, or implied by another tag.

The rules follow the tree construction of the HTML standard, without a tree: foster parenting and the
copies of formatting elements do not change the order of the text.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.html.page import DEPTH, IN_LINK, Page
from etl.kernels.html.tags import (
    ADDRESS,
    BUTTON,
    CLOSES_P,
    DD,
    DIV,
    DT,
    IS_FORMAT,
    IS_GROUP,
    IS_READING,
    IS_ROW,
    IS_SCOPE,
    IS_SPECIAL,
    KEYS,
    LEVEL,
    LI,
    OL,
    RP,
    RT,
    RTC,
    TABLE,
    TD,
    TEMPLATE,
    TH,
    TR,
    UL,
    A,
    P,
)
from etl.kernels.jit import inner, rare

_A_KEY: Final = KEYS[A]


@rare
def find_open(page: Page, tag: int, barriers: NDArray[np.bool_]) -> int:
    """Return the depth of the innermost open element with a tag; 0 if there is none within a barrier."""
    tags = page.stack.tag
    depth: int = page.state[DEPTH] - 1
    while depth > 0 and tags[depth] != tag and not barriers[tags[depth]]:
        depth -= 1
    return depth if depth > 0 and tags[depth] == tag else 0


@inner
def depth_after_start(page: Page, tag: int, is_block: bool) -> int:
    """Return the depth that remains before an element with a tag begins."""
    depth: int = page.state[DEPTH]
    if is_block:
        depth = _depth_before_block(page, tag)
    elif (tag == A or tag == BUTTON) and page.stack.count[tag]:
        open_depth = find_open(page, tag, IS_SPECIAL)
        if open_depth:
            depth = open_depth
        elif tag == A:
            _close_out_of_order(page, A, _A_KEY)
    elif IS_READING[tag]:
        while depth > 1 and IS_READING[page.stack.tag[depth - 1]]:
            # An annotation in several parts: ``rtc`` contains ``rt``.
            if page.stack.tag[depth - 1] == RTC and (tag == RT or tag == RP):
                break
            depth -= 1
    return depth


@inner
def _depth_before_block(page: Page, tag: int) -> int:
    depth: int = page.state[DEPTH]
    count = page.stack.count
    if count[P] and CLOSES_P[tag]:
        depth = min(depth, find_open(page, P, IS_SCOPE) or depth)
    if (tag == LI and count[LI]) or ((tag == DD or tag == DT) and count[DD] + count[DT]):
        return min(depth, _find_item(page, tag))
    if LEVEL[tag] and LEVEL[page.stack.tag[depth - 1]]:
        return depth - 1
    return min(depth, _find_row(page, tag)) if IS_ROW[tag] and count[TABLE] else depth


@rare
def _find_item(page: Page, tag: int) -> int:
    """Return the depth of the open item of a list that an item closes, or the present depth."""
    tags = page.stack.tag
    depth: int = page.state[DEPTH] - 1
    while depth > 0:
        each = tags[depth]
        if each == tag or (tag != LI and (each == DD or each == DT)):
            return depth
        if IS_SPECIAL[each] and each != ADDRESS and each != DIV and each != P:
            break
        depth -= 1
    return np.int64(page.state[DEPTH])


@rare
def _find_row(page: Page, tag: int) -> int:
    """Return the depth of what a part of a table closes: cells by a cell or row, rows by a group."""
    tags = page.stack.tag
    depth: int = page.state[DEPTH] - 1
    while depth > 0:
        each = tags[depth]
        if each == TABLE or each == TEMPLATE:
            return depth + 1
        if ((tag == TD or tag == TH) and each == TR) or (tag == TR and IS_GROUP[each]):
            return depth + 1
        depth -= 1
    return np.int64(page.state[DEPTH])


@inner
def depth_after_end(page: Page, tag: int, key: int) -> int:
    """Return the depth that remains after an end tag."""
    depth: int = page.state[DEPTH]
    count = page.stack.count
    if tag == P:
        return find_open(page, P, IS_SCOPE) or depth if count[P] else depth
    if tag == 0 or not IS_SPECIAL[tag]:
        if not count[tag]:
            return depth
        # Most end tags close the innermost element.
        if page.stack.key[depth - 1] == key:
            return depth - 1
        return _end_inline(page, tag, key)
    if not (count[tag] or LEVEL[tag]):
        return depth
    return depth - 1 if page.stack.tag[depth - 1] == tag else _end_block_element(page, tag)


@rare
def _end_inline(page: Page, tag: int, key: int) -> int:
    stack = page.stack
    depth: int = page.state[DEPTH] - 1
    while depth > 0 and stack.key[depth] != key and not IS_SPECIAL[stack.tag[depth]]:
        depth -= 1
    if depth > 0 and stack.key[depth] == key:
        return depth
    if IS_FORMAT[tag]:
        _close_out_of_order(page, tag, key)
    return np.int64(page.state[DEPTH])


@rare
def _close_out_of_order(page: Page, tag: int, key: int) -> None:
    """Close a formatting element, but not those in it: what follows is no longer in a link.

    This is what the standard's adoption agency does to the text.
    """
    stack = page.stack
    depth: int = page.state[DEPTH] - 1
    while depth > 0 and stack.key[depth] != key and not IS_SCOPE[stack.tag[depth]]:
        depth -= 1
    if depth > 0 and stack.key[depth] == key:
        stack.count[tag] -= 1
        stack.tag[depth], stack.key[depth] = 0, 0
        stack.count[0] += 1
        if tag == A:
            for each in range(depth, page.state[DEPTH]):
                stack.flags[each] &= ~IN_LINK


@rare
def _end_block_element(page: Page, tag: int) -> int:
    """Return the depth of the element that the end tag of a block closes: any heading, or the same tag."""
    tags = page.stack.tag
    depth: int = page.state[DEPTH] - 1
    is_row, level = IS_ROW[tag] or tag == TABLE, LEVEL[tag]
    while depth > 0:
        each = tags[depth]
        if each == tag or (level and LEVEL[each]):
            return depth
        if each == TABLE or each == TEMPLATE or (tag == LI and (each == UL or each == OL)):
            break
        if IS_SCOPE[each] and not is_row and each != BUTTON:
            break
        depth -= 1
    return np.int64(page.state[DEPTH])
