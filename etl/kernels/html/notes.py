"""Note what some tags have besides text: the metadata of a page, and its formulas in TeX.

Of each field, the first value in the page counts. What is noted is where the value is in the page.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.html.attributes import find_byte, next_attribute, read_name, starts_with
from etl.kernels.html.elements import find_open
from etl.kernels.html.entities import decode
from etl.kernels.html.letters import AND, DOLLAR, LESS, QUOTE, SPACE
from etl.kernels.html.page import (
    AFTER_SPACE,
    BEGUN,
    DEPTH,
    END,
    FIELDS,
    IN_LINK,
    KEEPS_MATH,
    LINKED,
    SKIPPED,
    Page,
    begin_block,
)
from etl.kernels.html.tags import HTML, IS_SVG, LOWER, MATH, META, name_key
from etl.kernels.jit import inner, rare

TITLE_FIELD, LANG, CANONICAL, DATE, LICENSE, ROBOTS, RESERVATION, POLICY = range(len(FIELDS))

# Which field a meta element of a name has.
_META_FIELDS: Final = {
    "robots": ROBOTS,
    "tdm-reservation": RESERVATION,
    "tdm-policy": POLICY,
    "content-language": LANG,
    "license": LICENSE,
    "dc.rights.license": LICENSE,
    "og:url": CANONICAL,
    "date": DATE,
    "pubdate": DATE,
    "publishdate": DATE,
    "publish-date": DATE,
    "publish_date": DATE,
    "datepublished": DATE,
    "article:published_time": DATE,
    "og:published_time": DATE,
    "dc.date": DATE,
    "dc.date.issued": DATE,
    "dcterms.date": DATE,
    "dcterms.created": DATE,
    "citation_publication_date": DATE,
    "parsely-pub-date": DATE,
    "sailthru.date": DATE,
}
_META_KEYS: Final = np.array([name_key(name) for name in _META_FIELDS], np.uint64)
_META_NUMBERS: Final = np.array([*_META_FIELDS.values()], np.int64)


def _word(word: str) -> NDArray[np.uint8]:
    return np.frombuffer(word.encode(), np.uint8)


_LANG_NAME, _TYPE, _ENCODING, _ALT, _DISPLAY = map(
    _word, ("lang", "type", "encoding", "alt", "display")
)
_TEX, _TEX_TYPE, _BLOCK = _word("application/x-tex"), _word("math/tex"), _word("block")
_LINKED_DATA, _PUBLISHED = _word("application/ld+json"), _word('datepublished"')
_CANONICAL_LINK, _LICENSE_LINK = _word("canonical"), _word("license")
_LONGEST: Final = 1000  # bytes of a name that are read, so that the time is bounded


@inner
def note_field(page: Page, field: int, start: int, stop: int) -> None:
    """Note where the value of a field is, unless it is empty or known."""
    if page.fields[field, 1] == 0 and stop > start:
        page.fields[field, 0], page.fields[field, 1] = start, stop


@rare
def note_start_tag(data: NDArray[np.uint8], at: int, stop: int, tag: int, page: Page) -> None:
    """Note the metadata in the attributes of ``html``, ``meta`` and ``link``, and in links to licenses."""
    if tag == HTML:
        note_field(page, LANG, *find_attribute(data, at, stop, _LANG_NAME))
        return
    field, value, value_end = -1, 0, 0
    while True:
        name, end, start, start_end, at = next_attribute(data, at, stop)
        length, first = end - name, LOWER[data[name]]
        if length == 0:
            break
        # The value is in ``content`` or ``href``; which field it is, in ``name``, ``property``,
        # ``itemprop``, ``http-equiv`` or ``rel``.
        if (length == 7 and first == 99) or (length == 4 and first == 104):
            value, value_end = start, start_end
        elif tag == META and (length == 4 or length == 8 or length == 10):
            field = max(field, _meta_field(data, start, min(start_end, start + _LONGEST)))
        elif length == 3 and first == 114:
            if starts_with(data, start, start_end, _CANONICAL_LINK):
                field = CANONICAL
            elif starts_with(data, start, start_end, _LICENSE_LINK):
                field = LICENSE
    if field >= 0:
        note_field(page, field, value, value_end)


@inner
def _meta_field(data: NDArray[np.uint8], at: int, stop: int) -> int:
    key, end = read_name(data, at, stop)
    if end == stop:
        for k in range(len(_META_KEYS)):
            if _META_KEYS[k] == key:
                return np.int64(_META_NUMBERS[k])
    return -1


@rare
def find_attribute(
    data: NDArray[np.uint8], at: int, stop: int, wanted: NDArray[np.uint8]
) -> tuple[int, int]:
    """Return where the value of an attribute of a tag begins and ends; twice 0 if there is none."""
    while True:
        name, end, value, value_end, at = next_attribute(data, at, stop)
        if name == end:
            return 0, 0
        if end - name == len(wanted) and starts_with(data, name, end, wanted):
            return value, value_end


@rare
def note_script(data: NDArray[np.uint8], at: int, start: int, stop: int, page: Page) -> None:
    """Note what a script has, given its attributes and where its content is: a date, or a formula."""
    kind, kind_end = find_attribute(data, at, start, _TYPE)
    if starts_with(data, kind, kind_end, _LINKED_DATA):
        if page.fields[DATE, 1] == 0:
            _note_published(data, start, stop, page)
    elif starts_with(data, kind, kind_end, _TEX_TYPE):
        # ``math/tex; mode=display``
        write_formula(data, start, stop, kind_end - kind > len(_TEX_TYPE), page)


@rare
def _note_published(data: NDArray[np.uint8], at: int, stop: int, page: Page) -> None:
    """Note the value of the first ``"datePublished"`` in JSON-LD."""
    while at < stop:
        at = find_byte(data, at, stop, QUOTE) + 1
        if at < stop and starts_with(data, at, stop, _PUBLISHED):
            at = find_byte(data, at + len(_PUBLISHED), stop, QUOTE) + 1
            note_field(page, DATE, at, find_byte(data, at, stop, QUOTE))
            return


@rare
def read_annotation(data: NDArray[np.uint8], at: int, start: int, stop: int, page: Page) -> int:
    """Copy the TeX of a MathML formula, and return the offset after it.

    ``at`` is where the attributes of ``annotation`` begin, ``start`` where its content does.
    """
    kind, kind_end = find_attribute(data, at, start, _ENCODING)
    depth = find_open(page, MATH, IS_SVG)
    if depth == 0 or not starts_with(data, kind, kind_end, _TEX):
        return start
    # The formula itself is skipped; only an element around it hides it.
    if page.stack.flags[depth - 1] & SKIPPED:
        return start
    end = find_byte(data, start, stop, LESS)
    write_formula(data, start, end, False, page)
    return end


@rare
def note_image(data: NDArray[np.uint8], at: int, stop: int, page: Page) -> None:
    """Copy the text of the image of a formula."""
    write_formula(data, *find_attribute(data, at, stop, _ALT), False, page)


@rare
def write_formula(
    data: NDArray[np.uint8], at: int, stop: int, is_display: bool, page: Page
) -> None:
    """Copy TeX between dollar signs, with each run of white space as one space."""
    state, text = page.state, page.text
    while at < stop and data[at] <= SPACE:
        at += 1
    if at >= stop or not state[KEEPS_MATH]:
        return
    before = end = state[END]
    # What a value is shorter than its attribute, and a space before it, has room for the signs.
    for _ in range(1 + is_display):
        text[end] = DOLLAR
        end += 1
    while at < stop:
        if data[at] <= SPACE:
            text[end] = SPACE
            end += text[end - 1] != SPACE
            at += 1
        elif data[at] == AND:
            at, end = decode(data, at, stop, text, end)
        else:
            text[end] = data[at]
            end += 1
            at += 1
    end -= text[end - 1] == SPACE
    for _ in range(1 + is_display):
        text[end] = DOLLAR
        end += 1
    state[END], state[AFTER_SPACE] = end, 0
    if not state[BEGUN]:
        begin_block(page)
    if page.stack.flags[state[DEPTH] - 1] & IN_LINK:
        state[LINKED] += end - before
