"""The tags that the pass over a page knows, as numbers, and how elements of each behave.

Numbers are found by a perfect hash of the name. All other tags have number 0 and are inline elements.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner

_MASK: Final = 2**64 - 1
_LENGTH_FACTOR: Final = 0x9E3779B97F4A7C15

_BLOCK: Final = """address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption
figure footer form h1 h2 h3 h4 h5 h6 header hgroup legend li main menu nav ol p pre search section summary
table caption tbody td tfoot th thead tr ul body html listing""".split()
_INLINE: Final = """a b i em strong span font code small label u s sub sup time cite q abbr tt big strike nobr
var head colgroup foreignobject option optgroup ruby rb annotation""".split()
_VOID: Final = """br hr img input meta link area base col embed source track wbr param keygen frame
bgsound""".split()
_RAW: Final = "script style noscript title textarea xmp iframe noembed noframes".split()
_SKIPPED: Final = (
    "template svg math select button object video audio canvas datalist map applet".split()
)
_READINGS: Final = "rt rp rtc".split()

TAGS: Final = ("", *_BLOCK, *_INLINE, *_VOID, *_RAW, *_SKIPPED, *_READINGS)
"""The names of the tags by number; a model sees the numbers, so they are a part of its features."""


def _numbers(names: str) -> Iterator[int]:
    return map(TAGS.index, names.split())


P, A, LI, DD, DT, DIV, ADDRESS, UL, OL, PRE, LISTING = _numbers(
    "p a li dd dt div address ul ol pre listing"
)
TABLE, TR, TD, TH = _numbers("table tr td th")
BR, IMG, BODY, HTML, HEAD, BUTTON, TEMPLATE = _numbers("br img body html head button template")
SVG, MATH, FOREIGN, SCRIPT, TITLE = _numbers("svg math foreignobject script title")
META, LINK, ANNOTATION, ARTICLE, MAIN = _numbers("meta link annotation article main")
RT, RP, RTC = _numbers("rt rp rtc")


def _having(names: Iterable[str]) -> NDArray[np.bool_]:
    """Return for each number whether its tag is one of some."""
    table = np.zeros(len(TAGS), np.bool_)
    table[[TAGS.index(name) for name in names]] = True
    return table


_NOT_CLOSING: Final = {*"caption tbody td tfoot th thead tr body html legend".split()}
_CELLS: Final = "tr td th tbody thead tfoot caption".split()

IS_BLOCK: Final = _having([*_BLOCK, "hr"])
"""Whether an element begins and ends a block of text."""
IS_VOID: Final = _having(_VOID)
IS_RAW: Final = _having(_RAW)
"""Whether the content ends only at the element's own end tag."""
IS_SKIPPED: Final = _having([*_SKIPPED, *_READINGS])
"""Whether the text in an element is not part of the page's text."""
IS_NOTED: Final = _having(["html", "title", "meta", "link", "script", "annotation", "img", "a"])
"""Whether a start tag may have metadata or a formula."""
IS_SPECIAL: Final = _having([*_BLOCK, *_SKIPPED, "foreignobject"])
"""Whether no end tag of an inline element closes an element: the category "special" of the standard."""
IS_SCOPE: Final = _having(
    "table td th caption template object html button applet foreignobject svg math".split()
)
"""Whether an element limits which open elements an end tag may close: the standard's "scope"."""
CLOSES_P: Final = _having({*_BLOCK, "hr"} - _NOT_CLOSING)
"""Whether a start tag closes an open paragraph."""
LEAVES_SVG: Final = _having(
    """b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing
    menu meta nobr ol p pre ruby s small span strong strike sub sup table tt u ul var""".split()
)
"""Whether a start tag closes an SVG image or formula that it is in."""
IS_SVG: Final = _having(["svg", "math"])
"""Whether an element has a document of another kind."""
IS_FORMAT: Final = _having("a b big code em font i nobr s small strike strong tt u".split())
"""Whether an element may be closed out of order: the standard's "formatting"."""
IS_READING: Final = _having([*_READINGS, "rb"])
"""Whether a start tag closes an open part of a ruby annotation."""
IS_ROW: Final = _having(_CELLS)
"""Whether an element is a part of a table."""
IS_GROUP: Final = _having(["tbody", "thead", "tfoot"])
LEVEL: Final = np.array(
    [int(name[1]) if name[:1] == "h" and name[1:].isdigit() else 0 for name in TAGS], np.uint8
)
"""The level of a heading, or 0."""

PATH_TAGS: Final = tuple(
    """article main nav footer header aside ul ol li p h1 h2 h3 h4 h5 h6 td th table form figure figcaption
    blockquote pre a section dl dd dt label address details b strong em i span code font center time dialog
    fieldset""".split()
)
"""The tags whose presence around a block is a feature, by bit."""
PATH_BIT: Final = np.zeros(len(TAGS), np.uint64)
for _bit, _name in enumerate(PATH_TAGS):
    PATH_BIT[TAGS.index(_name)] = 1 << _bit

LOWER: Final = np.array([c + 32 if 65 <= c <= 90 else c for c in range(256)], np.uint8)
"""ASCII letters in lower case, other bytes unchanged."""
IS_LETTER: Final = np.array([97 <= c <= 122 for c in LOWER])
"""Whether a byte is an ASCII letter."""


def name_key(name: str) -> int:
    """Return the number of 64 bits that ``extend_key`` and ``end_key`` compute of a name."""
    key = 0
    for byte in name.encode():
        key = (key << 8 | byte) & _MASK
    return key ^ (len(name) * _LENGTH_FACTOR & _MASK)


def _perfect_factor(keys: Collection[int]) -> int:
    """Return a factor by which all keys have different high bits."""
    random = np.random.RandomState(1)
    while True:
        factor = int.from_bytes(random.bytes(8), "little") | 1
        if len({(key * factor & _MASK) >> _SHIFT for key in keys}) == len(keys):
            return factor


_SHIFT: Final = 64 - 11
KEYS: Final = np.array([name_key(name) for name in TAGS], np.uint64)
"""The keys of the tags by number."""
_FACTOR: Final = _perfect_factor(KEYS.tolist())
_NUMBERS: Final = np.zeros(1 << 64 - _SHIFT, np.int16)
for _number, _key in enumerate(KEYS.tolist()):
    _NUMBERS[(_key * _FACTOR & _MASK) >> _SHIFT] = _number
_FACTOR_64: Final = np.uint64(_FACTOR)
_LENGTH_64: Final = np.uint64(_LENGTH_FACTOR)


@inner
def extend_key(key: int, byte: int) -> int:
    """Return the key of a name after one more byte."""
    return np.uint64(key) << np.uint64(8) | np.uint64(LOWER[byte])


@inner
def end_key(key: int, length: int) -> int:
    """Return the key of a name of some bytes: names longer than eight bytes differ in it, too."""
    return np.uint64(key) ^ np.uint64(length) * _LENGTH_64


@inner
def tag_number(key: int) -> int:
    """Return the number of the tag with a key; 0 if it is not known."""
    number = np.int64(_NUMBERS[np.int64(np.uint64(key) * _FACTOR_64 >> np.uint64(_SHIFT))])
    return number if KEYS[number] == np.uint64(key) else 0
