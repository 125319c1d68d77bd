"""Read a page: its tags, one after the other, and the text between them."""

import numpy as np
from numpy.typing import NDArray

from etl.kernels.html.attributes import (
    CLOSES_ITSELF,
    IS_HIDDEN,
    IS_LICENSE,
    find_byte,
    read_attributes,
    read_name,
    skip_attributes,
)
from etl.kernels.html.elements import depth_after_end, depth_after_start
from etl.kernels.html.key_words import FORMULA
from etl.kernels.html.letters import BANG, GREATER, LESS, LF, QUESTION, SLASH, SPACE
from etl.kernels.html.markup import find_raw_end, skip_declaration
from etl.kernels.html.notes import (
    TITLE_FIELD,
    note_field,
    note_image,
    note_script,
    note_start_tag,
    read_annotation,
)
from etl.kernels.html.open_elements import is_in_svg, leave_svg, open_element
from etl.kernels.html.page import (
    AFTER_SPACE,
    BEGUN,
    DEPTH,
    END,
    FIRST,
    PREFORMATTED,
    SKIPPED,
    TOO_DEEP,
    Page,
    begin_block,
    begin_page,
    close_elements,
    end_block,
    end_page,
)
from etl.kernels.html.tags import (
    ANNOTATION,
    BODY,
    BR,
    HEAD,
    HTML,
    IMG,
    IS_BLOCK,
    IS_LETTER,
    IS_NOTED,
    IS_RAW,
    IS_SVG,
    IS_VOID,
    LEAVES_SVG,
    LISTING,
    PRE,
    SCRIPT,
    TITLE,
    A,
    P,
    tag_number,
)
from etl.kernels.html.text_runs import read_text
from etl.kernels.jit import inner, rare


@inner
def read_page(data: NDArray[np.uint8], at: int, stop: int, keeps_math: bool, page: Page) -> None:
    """Read a page: fill all of ``page`` but the contents of its arrays beyond their used parts."""
    begin_page(page, keeps_math)
    while at < stop:
        is_skipped = page.stack.flags[page.state[DEPTH] - 1] & SKIPPED
        if data[at] != LESS:
            at = find_byte(data, at, stop, LESS) if is_skipped else read_text(data, at, stop, page)
            continue
        after = data[at + 1] if at + 1 < stop else 0
        if IS_LETTER[after]:
            at = _read_start_tag(data, at, stop, page)
        elif after == SLASH:
            at = _read_end_tag(data, at, stop, page)
        elif after == BANG or after == QUESTION:
            at = skip_declaration(data, at, stop, is_skipped and is_in_svg(page))
        else:
            if not is_skipped:
                _write_less(page)
            at += 1
    end_page(page)


@rare
def _write_less(page: Page) -> None:
    """Copy a ``<`` that begins no tag."""
    page.text[page.state[END]] = LESS
    page.state[END] += 1
    page.state[AFTER_SPACE] = 0
    if not page.state[BEGUN]:
        begin_block(page)


@inner
def _read_end_tag(data: NDArray[np.uint8], at: int, stop: int, page: Page) -> int:
    if at + 2 >= stop:
        return stop
    if not IS_LETTER[data[at + 2]]:
        return min(find_byte(data, at + 2, stop, GREATER) + 1, stop)
    key, at = read_name(data, at + 2, stop)
    at = skip_attributes(data, at, stop)
    if at == stop:
        return stop  # the page ends inside a tag, which is dropped
    tag, state = tag_number(key), page.state
    if state[TOO_DEEP]:
        # Elements that were too deep have no entry: the first end tags are theirs.
        state[TOO_DEEP] -= not IS_VOID[tag]
        if IS_BLOCK[tag]:
            _end_block_if_shown(page)
        return at + 1
    if (tag == P or tag == BR) and page.stack.flags[state[DEPTH] - 1] & SKIPPED and is_in_svg(page):
        leave_svg(page)
    depth = state[DEPTH]
    if tag != BODY and tag != HTML:
        depth = depth_after_end(page, tag, key)
    # Alone, these two add an element; any other end tag that closes nothing is ignored.
    _close(page, depth, tag == BR or (tag == P and depth == state[DEPTH]))
    return at + 1


@inner
def _end_block_if_shown(page: Page) -> None:
    if not page.stack.flags[page.state[DEPTH] - 1] & SKIPPED:
        end_block(page)


@inner
def _close(page: Page, depth: int, is_block: bool) -> None:
    """Close the open elements from a depth on, and end the block if one of them or the tag itself does."""
    tags = page.stack.tag
    for each in range(page.state[DEPTH] - 1, depth - 1, -1):
        is_block |= IS_BLOCK[tags[each]]
    if is_block:
        _end_block_if_shown(page)
    close_elements(page, depth)


@inner
def _read_start_tag(data: NDArray[np.uint8], at: int, stop: int, page: Page) -> int:
    key, name_end = read_name(data, at + 1, stop)
    tag = tag_number(key)
    at, classes, says = read_attributes(data, name_end, stop)
    if at == stop:
        return stop
    at += 1
    is_foreign = page.stack.flags[page.state[DEPTH] - 1] & SKIPPED and is_in_svg(page)
    if IS_RAW[tag] and not is_foreign:
        return _read_raw(data, name_end, at, stop, tag, key, page)
    if IS_NOTED[tag]:
        at = _note(data, name_end, at, stop, tag, classes, says, page)
    if is_foreign and LEAVES_SVG[tag]:
        leave_svg(page)
    elif says & CLOSES_ITSELF and (is_foreign or IS_SVG[tag]):
        return at
    if IS_VOID[tag]:
        _read_void(page, tag)
    elif tag != HTML and tag != BODY and tag != HEAD:
        _begin_element(page, tag, key, classes, says & IS_HIDDEN)
        if tag == PRE or tag == LISTING:
            at += at < stop and data[at] == LF
    return at


@inner
def _read_void(page: Page, tag: int) -> None:
    is_block = IS_BLOCK[tag]
    if tag == BR and not page.stack.flags[page.state[DEPTH] - 1] & SKIPPED:
        is_block = _break_line(page)
    if is_block:
        _close(page, depth_after_start(page, tag, is_block), True)


@inner
def _begin_element(page: Page, tag: int, key: int, classes: int, is_hidden: int) -> None:
    """Close what the element ends, and open it."""
    is_block = IS_BLOCK[tag]
    if page.state[TOO_DEEP] == 0:
        _close(page, depth_after_start(page, tag, is_block), is_block)
    elif is_block:
        _end_block_if_shown(page)
    open_element(page, tag, key, classes, is_hidden)


@rare
def _break_line(page: Page) -> bool:
    """Write a line break; return whether it is the second one, which ends the block."""
    state, text = page.state, page.text
    end = state[END]
    if not page.stack.flags[state[DEPTH] - 1] & PREFORMATTED:
        if end > state[FIRST] and text[end - 1] == SPACE:
            end -= 1
        state[END] = end
        if end == state[FIRST] or text[end - 1] == LF:
            return True
    text[end] = LF
    state[END], state[AFTER_SPACE] = end + 1, 1
    return False


@rare
def _read_raw(
    data: NDArray[np.uint8], attributes: int, start: int, stop: int, tag: int, key: int, page: Page
) -> int:
    """Skip an element of raw text, and note what it has; return the offset after its end tag."""
    end, after = find_raw_end(data, start, stop, key)
    if not page.stack.flags[page.state[DEPTH] - 1] & SKIPPED:
        if tag == TITLE:
            note_field(page, TITLE_FIELD, start, end)
        elif tag == SCRIPT:
            note_script(data, attributes, start, end, page)
    return after


@rare
def _note(
    data: NDArray[np.uint8],
    attributes: int,
    start: int,
    stop: int,
    tag: int,
    classes: int,
    says: int,
    page: Page,
) -> int:
    """Note what a tag has besides text; return where the content of its element continues."""
    if tag == ANNOTATION:
        return read_annotation(data, attributes, start, stop, page)
    if tag == IMG:
        is_shown = not page.stack.flags[page.state[DEPTH] - 1] & SKIPPED
        if classes & FORMULA and is_shown:
            note_image(data, attributes, start, page)
    elif tag != A or says & IS_LICENSE:
        note_start_tag(data, attributes, start, tag, page)
    return start
