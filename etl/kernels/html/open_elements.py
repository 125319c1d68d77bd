"""Open elements, and leave the SVG image or formula that one may be in."""

from etl.kernels.html.page import (
    CONTAINERS,
    DEPTH,
    HIDDEN,
    IN_LINK,
    MAX_DEPTH,
    PREFORMATTED,
    SKIPPED,
    TOO_DEEP,
    Page,
    close_elements,
)
from etl.kernels.html.tags import (
    FOREIGN,
    IS_BLOCK,
    IS_SKIPPED,
    IS_SVG,
    LI,
    LISTING,
    MATH,
    OL,
    PATH_BIT,
    PRE,
    SVG,
    A,
)
from etl.kernels.jit import inner, rare


@inner
def is_in_svg(page: Page) -> bool:
    """Return whether the innermost document is an SVG image or a formula, whose tags are other ones."""
    count = page.stack.count
    return bool(count[SVG] + count[MATH] > 0 and count[FOREIGN] == 0)


@rare
def leave_svg(page: Page) -> None:
    """Close an SVG image or formula, and all around it, at a tag of HTML in it."""
    outermost = depth = page.state[DEPTH]
    while depth > 1 and page.stack.tag[depth - 1] != FOREIGN:
        depth -= 1
        if IS_SVG[page.stack.tag[depth]]:
            outermost = depth
    close_elements(page, outermost)


@inner
def open_element(page: Page, tag: int, key: int, classes: int, is_hidden: int) -> None:
    """Add an element to the open ones, and a container if it is a block."""
    stack, state, depth = page.stack, page.state, page.state[DEPTH]
    if depth == MAX_DEPTH:
        state[TOO_DEEP] += 1
        return
    above = depth - 1
    flags, is_block = stack.flags[above], IS_BLOCK[tag]
    if tag == A:
        flags |= IN_LINK
    elif IS_SKIPPED[tag]:
        flags |= SKIPPED
    elif tag == PRE or tag == LISTING:
        flags |= PREFORMATTED
    if is_hidden:  # a hidden block may be shown by a script, and a model decides
        flags |= HIDDEN if is_block else SKIPPED
    stack.tag[depth], stack.key[depth], stack.flags[depth] = tag, key, flags
    stack.own_classes[depth], stack.classes[depth] = classes, stack.classes[above] | classes
    stack.path[depth] = stack.path[above] | PATH_BIT[tag]
    stack.container[depth], stack.items[depth] = stack.container[above], 0
    if is_block and state[CONTAINERS] < len(page.containers.parent):
        _add_container(page, tag, classes, above)
        stack.container[depth] = state[CONTAINERS] - 1
    stack.count[tag] += 1
    state[DEPTH] = depth + 1


@inner
def _add_container(page: Page, tag: int, classes: int, above: int) -> None:
    stack, containers, number = page.stack, page.containers, page.state[CONTAINERS]
    containers.parent[number], containers.tag[number] = stack.container[above], tag
    containers.classes[number], containers.number[number] = classes, 0
    if tag == LI:
        stack.items[above] += 1
        if stack.tag[above] == OL:
            containers.number[number] = stack.items[above]
    page.state[CONTAINERS] = number + 1
