"""The state of a page while it is read, and the result of the pass: its text, blocks and containers.

A *block* is a run of text between elements such as paragraphs. A *container* is such an element: they are
numbered in the order in which they begin, so that a container comes before those in it. Container 0 is the
page. All arrays are scratch memory of one call, reused for page after page.
"""

from typing import Any, Final, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.simd import SIZE
from etl.kernels.html.tags import TAGS
from etl.kernels.jit import inner

MAX_DEPTH: Final = 512
"""Elements that may be open at once, as in browsers; deeper ones are part of the deepest one."""

MAX_BLOCKS: Final = 1 << 16
"""The blocks of a page; what follows is a part of the last one."""

MAX_CONTAINERS: Final = 1 << 18
"""The containers of a page; later ones are part of the last one around them."""

# The flags of an element and of the blocks in it.
IN_LINK: Final = 1
SKIPPED: Final = 2  # text here is not part of the page
HIDDEN: Final = 4
PREFORMATTED: Final = 8

# The numbers in `Page.state`.
END: Final = 0  # the bytes of text so far
FIRST: Final = 1  # where the current block begins
LINKED: Final = 2  # its bytes in links
AFTER_SPACE: Final = 3  # 1 if white space that follows is redundant
BEGUN: Final = 4  # 1 if the current block has text
FLAGS: Final = 5  # its flags
DEPTH: Final = 6  # the open elements, of which number 0 is the page
TOO_DEEP: Final = 7  # those beyond MAX_DEPTH
BLOCKS: Final = 8
CONTAINERS: Final = 9
KEEPS_MATH: Final = 10  # 1 if formulas are part of the text
_STATE_SIZE: Final = 11

# The fields of the head in `Page.fields`.
FIELDS: Final = (
    "title",
    "lang",
    "canonical",
    "date",
    "license",
    "robots",
    "tdm_reservation",
    "tdm_policy",
)
"""The metadata of a page, as they are named in the column ``metadata``."""


class Blocks(NamedTuple):
    """The blocks of a page; ``classes`` are key words (``etl.kernels.html.key_words``)."""

    start: NDArray[np.int32]  # in the text
    stop: NDArray[np.int32]
    linked: NDArray[np.int32]  # bytes in links
    container: NDArray[np.int32]
    classes: NDArray[np.uint64]  # of all elements around it
    near_classes: NDArray[np.uint64]  # of the three nearest
    path: NDArray[np.uint64]  # the tags around it, by `PATH_BIT`
    depth: NDArray[np.int16]
    tag: NDArray[np.int16]  # of the element with its first text
    flags: NDArray[np.uint8]


class Containers(NamedTuple):
    """The containers of a page, in the order of their start tags."""

    parent: NDArray[np.int32]
    last: NDArray[np.int32]  # the last container in it
    tag: NDArray[np.int16]
    number: NDArray[np.int32]  # of an item of a numbered list; else 0
    classes: NDArray[np.uint64]  # its own


class OpenElements(NamedTuple):
    """The stack of open elements, and how many there are of each tag."""

    tag: NDArray[np.int16]  # (MAX_DEPTH,) as all that follow
    key: NDArray[np.uint64]
    flags: NDArray[np.uint8]
    container: NDArray[np.int32]
    own_classes: NDArray[np.uint64]
    classes: NDArray[np.uint64]
    path: NDArray[np.uint64]
    items: NDArray[np.int32]  # of a list, so far
    count: NDArray[np.int32]  # (number of tags,)


class Page(NamedTuple):
    """A page and its text."""

    state: NDArray[np.int64]
    text: NDArray[np.uint8]
    blocks: Blocks
    containers: Containers
    stack: OpenElements
    fields: NDArray[np.int64]  # (fields, 2) where each is in the page; 0, 0: nowhere


def _zeros(kind: type[Any], size: int) -> Any:
    """Return a tuple of arrays of a size, of the types that its class names."""
    types = (get_args(get_args(hint)[1])[0] for hint in get_type_hints(kind).values())
    return kind(*(np.zeros(size, each) for each in types))


def make_page(max_bytes: int) -> Page:
    """Return scratch memory for pages of up to so many bytes."""
    # A block needs a tag of three bytes and one of text. Entry 0 of the stack and the containers is the
    # page itself, which has no tag.
    page = Page(
        state=np.zeros(_STATE_SIZE, np.int64),
        # 6/5: see `entities`. Text is written 64 bytes at a time.
        text=np.empty(max_bytes * 6 // 5 + 2 * SIZE, np.uint8),
        blocks=_zeros(Blocks, min(max_bytes // 4 + 2, MAX_BLOCKS)),
        containers=_zeros(Containers, min(max_bytes // 3 + 2, MAX_CONTAINERS)),
        stack=_zeros(OpenElements, MAX_DEPTH)._replace(count=np.zeros(len(TAGS), np.int32)),
        fields=np.zeros((len(FIELDS), 2), np.int64),
    )
    page.containers.parent[0] = -1
    return page


@inner
def begin_page(page: Page, keeps_math: bool) -> None:
    """Forget the page before."""
    page.stack.count[:] = 0
    page.fields[:] = 0
    page.state[:] = 0
    page.state[AFTER_SPACE], page.state[KEEPS_MATH] = 1, keeps_math
    page.state[DEPTH] = page.state[CONTAINERS] = 1
    page.stack.items[0] = 0


@inner
def begin_block(page: Page) -> None:
    """Describe the block whose first text was just written."""
    state, blocks, stack = page.state, page.blocks, page.stack
    block, top = state[BLOCKS], state[DEPTH] - 1
    state[BEGUN] = 1
    state[FLAGS] |= stack.flags[top]
    blocks.container[block], blocks.classes[block] = stack.container[top], stack.classes[top]
    blocks.path[block], blocks.depth[block] = stack.path[top], top
    blocks.tag[block] = stack.tag[top]
    blocks.near_classes[block] = (
        stack.own_classes[top]
        | stack.own_classes[max(top - 1, 0)]
        | stack.own_classes[max(top - 2, 0)]
    )


@inner
def end_block(page: Page) -> None:
    """End the current block, if it has text, with a line feed; drop its white space otherwise."""
    state, text = page.state, page.text
    first, end = state[FIRST], state[END]
    if not state[BEGUN]:
        end = first
    while end > first and (text[end - 1] == 32 or text[end - 1] == 10):
        end -= 1
    if end > first:
        text[end] = 10
        # The last block that there is room for takes all text that follows.
        if state[BLOCKS] + 1 == len(page.blocks.start):
            state[END] = end + 1
            state[AFTER_SPACE] = 1
            return
        _store_block(page, end)
        end += 1
    state[END] = state[FIRST] = end
    state[LINKED] = state[BEGUN] = state[FLAGS] = 0
    state[AFTER_SPACE] = 1


@inner
def end_page(page: Page) -> None:
    """End the last block and all open containers."""
    end_block(page)
    if page.state[BEGUN]:
        _store_block(page, page.state[END] - 1)
    close_elements(page, 0)


@inner
def _store_block(page: Page, end: int) -> None:
    state, block = page.state, page.state[BLOCKS]
    page.blocks.start[block], page.blocks.stop[block] = state[FIRST], end
    page.blocks.linked[block] = min(state[LINKED], end - state[FIRST])
    page.blocks.flags[block] = state[FLAGS]
    state[BLOCKS] = block + 1


@inner
def close_elements(page: Page, depth: int) -> None:
    """Close all open elements from a depth on."""
    stack, last = page.stack, page.state[CONTAINERS] - 1
    for each in range(page.state[DEPTH] - 1, depth - 1, -1):
        stack.count[stack.tag[each]] -= 1
        # A container that had no room has the number of the one around it, whose end is set later again.
        page.containers.last[stack.container[each]] = last
    page.state[DEPTH] = depth
