"""The numbers by which a model decides which blocks are main text.

`NAMES` is the contract with a model: a model file names its features, and a change of what a name means
makes all models wrong. Numbers come first (`NUMBERS`), then a bit for each tag around a block and for each
key word in the classes around it (`BITS`), of which only those in the model are computed.

``x`` float32 (features, blocks): the blocks of one feature are side by side, as ``etl.kernels.html.trees``
needs them.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.html.block_text import count_characters, ends_sentence
from etl.kernels.html.key_words import KEY_WORDS
from etl.kernels.html.page import BLOCKS, CONTAINERS, HIDDEN, PREFORMATTED, Page
from etl.kernels.html.tags import LEVEL, PATH_TAGS, TD, TH
from etl.kernels.jit import inner

# The containers that are described: the block's own, and others around it.
_LEVELS: Final = np.array([0, 1, 2, 3, 5])
_SHIFTS: Final = np.array([-3, -2, -1, 1, 2, 3])  # neighbours

_OWN: Final = "len words link stops commas stops_words len_words capitals digits ends signs".split()
_PLACE: Final = (
    "i_rel i n_after n depth before good_before since_h1 level tag hidden pre cell "
    "page_len page_link page_good"
).split()
_AROUND: Final = [
    f"{name}@{level}" for level in _LEVELS for name in "share link blocks good mean".split()
]
_BEST: Final = ["in_best", "score"]
_NEIGHBOURS: Final = [f"{name}{d:+d}" for d in _SHIFTS for name in "len link marks ends".split()]
_NEAR: Final = ["good_near5", "good_near15"]

NUMBERS: Final = (*_OWN, *_PLACE, *_AROUND, *_BEST, *_NEIGHBOURS, *_NEAR)
"""The names of the features that are always computed."""

_WORDS: Final = [words.split("|")[0] for words in KEY_WORDS]
BITS: Final = (
    *(f"path.{name}" for name in PATH_TAGS),
    *(f"all.{word}" for word in _WORDS),
    *(f"near.{word}" for word in _WORDS),
)
"""The names of the features that are bits: tags around a block; key words around it, and near it."""

NAMES: Final = (*NUMBERS, *BITS)
"""The names of all features."""

LEN, WORDS, LINK, STOPS, COMMAS, STOPS_WORDS, LEN_WORDS, CAPITALS, DIGITS, ENDS, SIGNS = range(
    len(_OWN)
)
_FIRST_PLACE: Final = len(_OWN)
_FIRST_AROUND: Final = _FIRST_PLACE + len(_PLACE)
_FIRST_BEST: Final = _FIRST_AROUND + len(_AROUND)
_FIRST_NEIGHBOUR: Final = _FIRST_BEST + len(_BEST)
_FIRST_NEAR: Final = _FIRST_NEIGHBOUR + len(_NEIGHBOURS)

_GOOD: Final = 80  # characters outside of links from which a block counts as text
_LONG_ENOUGH: Final = 25  # from which it adds to the score of a container, as in Readability
_NEARLY_GOOD: Final = 60


class Sums(NamedTuple):
    """Sums over the blocks in each container, those in inner containers included."""

    chars: NDArray[np.float32]
    linked: NDArray[np.float32]
    good: NDArray[np.float32]
    count: NDArray[np.float32]
    score: NDArray[np.float32]  # as Readability's; later the best of the containers around


def make_sums(num_containers: int) -> Sums:
    """Return scratch memory for the sums of a page."""
    return Sums(*(np.zeros(num_containers, np.float32) for _ in Sums._fields))


@inner
def describe_blocks(
    page: Page, sums: Sums, bits: NDArray[np.int64], x: NDArray[np.float32]
) -> None:
    """Fill ``x[:len(NUMBERS) + len(bits)]`` for the blocks of a page; ``bits`` index BITS."""
    for container in range(page.state[CONTAINERS]):
        for each in sums:
            each[container] = 0
    first_heading = _describe_texts(page, sums, x)
    best = _sum_containers(page, sums)
    _describe_places(page, sums, first_heading, x)
    _describe_containers(page, sums, best, x)
    _describe_neighbours(page.state[BLOCKS], sums.chars[0], x)
    _copy_bits(page, bits, x)


@inner
def _describe_texts(page: Page, sums: Sums, x: NDArray[np.float32]) -> int:
    """Describe the text of each block, add it to its container, and return the first block of an h1."""
    blocks, containers, first_heading = page.blocks, page.containers, -1
    for b in range(page.state[BLOCKS]):
        start, stop, container = blocks.start[b], blocks.stop[b], blocks.container[b]
        counts = count_characters(page.text, start, stop)
        length, words = np.float32(counts.length), np.float32(counts.words)
        link = np.float32(blocks.linked[b]) / np.float32(stop - start)
        x[LEN, b], x[WORDS, b], x[LINK, b] = length, words, link
        x[STOPS, b], x[COMMAS, b], x[SIGNS, b] = counts.stops, counts.commas, counts.signs
        x[STOPS_WORDS, b], x[LEN_WORDS, b] = counts.stops / words, length / words
        x[CAPITALS, b], x[DIGITS, b] = counts.capitals / length, counts.digits / length
        x[ENDS, b] = ends_sentence(page.text, start, stop)
        plain = length * (1 - link)
        sums.chars[container] += length
        sums.linked[container] += length * link
        sums.count[container] += 1
        if plain > _GOOD:
            sums.good[container] += plain
        if plain > _LONG_ENOUGH:
            _add_score(
                page,
                sums,
                container,
                np.float32(1 + counts.commas) + min(length / 100, np.float32(3)),
            )
        if first_heading < 0 and (
            LEVEL[blocks.tag[b]] == 1 or LEVEL[containers.tag[container]] == 1
        ):
            first_heading = b
    return first_heading


@inner
def _add_score(page: Page, sums: Sums, container: int, score: float) -> None:
    """Add the score of a text to the container around its own, and half of it to the next one."""
    above = page.containers.parent[container]
    if above >= 0:
        sums.score[above] += score
        if page.containers.parent[above] >= 0:
            sums.score[page.containers.parent[above]] += score / 2


@inner
def _sum_containers(page: Page, sums: Sums) -> int:
    """Add the sums of inner containers to outer ones; return the container with the best score."""
    parent, num, best = page.containers.parent, page.state[CONTAINERS], 0
    for container in range(num - 1, 0, -1):
        above = parent[container]
        sums.chars[above] += sums.chars[container]
        sums.linked[above] += sums.linked[container]
        sums.good[above] += sums.good[container]
        sums.count[above] += sums.count[container]
    for container in range(num):
        if sums.score[container] > sums.score[best]:
            best = container
    return best


@inner
def _describe_places(page: Page, sums: Sums, first_heading: int, x: NDArray[np.float32]) -> None:
    """Describe where each block is, and the page."""
    blocks, num, row = page.blocks, page.state[BLOCKS], _FIRST_PLACE
    total, all_good = max(sums.chars[0], np.float32(1)), max(sums.good[0], np.float32(1))
    before = good_before = np.float32(0)
    for b in range(num):
        tag, flags = page.containers.tag[blocks.container[b]], blocks.flags[b]
        x[row, b], x[row + 1, b], x[row + 2, b], x[row + 3, b] = b / num, b, num - b, num
        x[row + 4, b] = blocks.depth[b]
        x[row + 5, b], x[row + 6, b] = before / total, good_before / all_good
        x[row + 7, b] = b - first_heading if first_heading >= 0 else -1000
        x[row + 8, b], x[row + 9, b] = LEVEL[tag], tag
        x[row + 10, b], x[row + 11, b] = flags & HIDDEN > 0, flags & PREFORMATTED > 0
        x[row + 12, b] = tag == TD or tag == TH
        x[row + 13, b], x[row + 14, b] = total, sums.linked[0] / total
        x[row + 15, b] = sums.good[0] / total
        before += x[LEN, b]
        plain = x[LEN, b] * (1 - x[LINK, b])
        if plain > _GOOD:
            good_before += plain


@inner
def _describe_containers(page: Page, sums: Sums, best: int, x: NDArray[np.float32]) -> None:
    """Describe the containers around each block."""
    parent, score = page.containers.parent, sums.score
    best_score, last = max(score[best], np.float32(1)), page.containers.last[best]
    for container in range(1, page.state[CONTAINERS]):
        score[container] = max(score[container], score[parent[container]])
    total, all_good = max(sums.chars[0], np.float32(1)), max(sums.good[0], np.float32(1))
    for b in range(page.state[BLOCKS]):
        around = page.blocks.container[b]
        x[_FIRST_BEST, b] = best <= around <= last
        x[_FIRST_BEST + 1, b] = score[around] / best_score
        level, row = 0, _FIRST_AROUND
        for k in range(len(_LEVELS)):
            while level < _LEVELS[k] and around > 0:
                around = parent[around]
                level += 1
            chars, count = (
                max(sums.chars[around], np.float32(1)),
                max(sums.count[around], np.float32(1)),
            )
            x[row, b], x[row + 1, b] = sums.chars[around] / total, sums.linked[around] / chars
            x[row + 2, b], x[row + 3, b] = sums.count[around], sums.good[around] / all_good
            x[row + 4, b] = chars / count
            row += 5


@inner
def _describe_neighbours(num: int, total: float, x: NDArray[np.float32]) -> None:
    """Describe the blocks before and after each block, and how much text is near it."""
    row = _FIRST_NEIGHBOUR
    for k in range(len(_SHIFTS)):
        shift = _SHIFTS[k]
        for b in range(num):
            other = b + shift
            if 0 <= other < num:
                x[row, b], x[row + 1, b] = x[LEN, other], x[LINK, other]
                x[row + 2, b], x[row + 3, b] = x[STOPS, other] + x[COMMAS, other], x[ENDS, other]
            else:
                x[row, b] = x[row + 1, b] = x[row + 2, b] = x[row + 3, b] = -1
        row += 4
    _sum_near(num, max(total, np.float32(1)), 5, x, row)
    _sum_near(num, max(total, np.float32(1)), 15, x, row + 1)


@inner
def _sum_near(num: int, total: float, reach: int, x: NDArray[np.float32], row: int) -> None:
    """Describe the share of a page's text that is in the nearly good blocks up to ``reach`` away."""
    near = np.float64(0)
    for b in range(-reach, num):
        if b + reach < num:
            near += _nearly_good(b + reach, x)
        if b - reach - 1 >= 0:
            near -= _nearly_good(b - reach - 1, x)
        if b >= 0:
            x[row, b] = near / total


@inner
def _nearly_good(b: int, x: NDArray[np.float32]) -> float:
    plain = np.float64(np.int64(x[LEN, b] * (1 - x[LINK, b])))
    return plain if plain > _NEARLY_GOOD else 0.0


@inner
def _copy_bits(page: Page, bits: NDArray[np.int64], x: NDArray[np.float32]) -> None:
    blocks, one = page.blocks, np.uint64(1)
    for k in range(len(bits)):
        bit, row = bits[k], len(NUMBERS) + k
        source = blocks.path
        if bit >= len(PATH_TAGS):
            bit -= len(PATH_TAGS)
            source = blocks.classes
            if bit >= len(KEY_WORDS):
                bit -= len(KEY_WORDS)
                source = blocks.near_classes
        for b in range(page.state[BLOCKS]):
            x[row, b] = source[b] >> np.uint64(bit) & one
