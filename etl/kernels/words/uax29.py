"""Split texts into words by Unicode's UAX #29 (rules WB3 to WB16), with a state table.

A *segment* is the text between two word boundaries, unless it is white space: a word, a number, a
punctuation mark, an emoji. A *word* is a segment with a letter or a digit. The tailorings are listed in
``etl.kernels.bytes.character_classes``. The scan is linear in the bytes, since it looks ahead over marks
only, and needs no memory beyond the caller's block. A long document is read in several blocks of segments.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from etl.kernels.bytes.character_classes import (
    BLANK,
    DIGIT,
    DOUBLE_QUOTE,
    FORMAT,
    HEBREW,
    JOINER,
    KATAKANA,
    LETTER,
    MARK,
    MID_BOTH,
    MID_LETTER,
    MID_NUMBER,
    NUM_CLASSES,
    NUMBER,
    OTHER,
    REGIONAL,
    SINGLE_QUOTE,
    SYMBOL,
    UNIT,
    ZWJ,
)
from etl.kernels.bytes.utf8 import class_at
from etl.kernels.jit import inner, kernel

Segments = NDArray[np.int64]
"""A block of segments: int64 (n, [START, END, CHARS, FLAGS])."""

# Columns of a block of segments.
START, END, CHARS, FLAGS = range(4)  # bytes, bytes, code points, HAS_LETTER | HAS_DIGIT
HAS_LETTER: Final = 1
HAS_DIGIT: Final = 2


class Batch(NamedTuple):
    """The result of one call that writes segments to a block."""

    at: int  # the byte to continue from; the end of the text once all segments are written
    num: int  # segments in the block


# The state is the class of the open segment's last character that is not a mark, or one of these.
_CLOSED: Final = BLANK  # no segment is open
_QUOTED: Final = NUM_CLASSES  # after a Hebrew letter and a single quote: a letter may follow
_BRIDGED: Final = NUM_CLASSES + 1  # after punctuation inside a word or a number, which continues
_NUM_STATES: Final = NUM_CLASSES + 2

# A step is the next state, and whether the character belongs to the open segment: no (a boundary), yes, or
# only if the next character that is not a mark is a letter, a Hebrew letter, a digit.
_STATE_BITS: Final = 5
_BOUNDARY, _JOIN, _IF_LETTER, _IF_HEBREW, _IF_DIGIT = (k << _STATE_BITS for k in range(5))


def _steps() -> NDArray[np.uint8]:
    """Return the step from each state at each class of character: uint8 (_NUM_STATES, NUM_CLASSES)."""
    letters, runs = [LETTER, HEBREW], [LETTER, HEBREW, DIGIT, KATAKANA, JOINER]
    steps = np.empty((_NUM_STATES, NUM_CLASSES), np.uint8)
    steps[:] = _BOUNDARY | np.arange(NUM_CLASSES)  # WB999
    steps[:, MID_LETTER:] = _BOUNDARY | OTHER
    steps[:, : BLANK + 1] = _BOUNDARY | _CLOSED  # white space and control characters
    steps[_CLOSED, [FORMAT, ZWJ]] = _BOUNDARY | _CLOSED
    # Marks do not change what the open segment ends with.
    for state in range(_CLOSED + 1, _NUM_STATES):
        steps[state, [MARK, FORMAT, ZWJ]] = _JOIN | state  # WB4
    for state, following in [
        *((letter, [*letters, DIGIT]) for letter in letters),  # WB5, WB9
        (DIGIT, [*letters, DIGIT]),  # WB8, WB10
        (KATAKANA, [KATAKANA]),  # WB13
        *((run, [JOINER]) for run in runs),  # WB13a
        (JOINER, runs),  # WB13b
        (_QUOTED, letters),  # WB7
        (_BRIDGED, [*letters, DIGIT]),  # WB7, WB7c, WB11
    ]:
        steps[state, following] = _JOIN | np.array(following)
    for letter in letters:
        steps[letter, [MID_LETTER, MID_BOTH, SINGLE_QUOTE]] = _IF_LETTER | _BRIDGED  # WB6
    steps[HEBREW, SINGLE_QUOTE] = _JOIN | _QUOTED  # WB7a
    steps[HEBREW, DOUBLE_QUOTE] = _IF_HEBREW | _BRIDGED  # WB7b
    steps[DIGIT, [MID_NUMBER, MID_BOTH, SINGLE_QUOTE]] = _IF_DIGIT | _BRIDGED  # WB12
    steps[REGIONAL, REGIONAL] = _JOIN | OTHER  # WB15, WB16: the next one begins another flag
    return steps


def _followers() -> NDArray[np.bool_]:
    """Return which classes of the following character meet a condition: bool (conditions, NUM_CLASSES)."""
    followers = np.zeros(((_IF_DIGIT >> _STATE_BITS) + 1, NUM_CLASSES), np.bool_)
    followers[_IF_LETTER >> _STATE_BITS, [LETTER, HEBREW]] = True
    followers[_IF_HEBREW >> _STATE_BITS, HEBREW] = True
    followers[_IF_DIGIT >> _STATE_BITS, DIGIT] = True
    return followers


def _flags() -> NDArray[np.uint8]:
    """Return the flags that a character of each class gives its segment: uint8 (NUM_CLASSES,)."""
    table = np.zeros(NUM_CLASSES, np.uint8)
    table[[LETTER, HEBREW, KATAKANA, UNIT]] = HAS_LETTER
    table[[DIGIT, NUMBER]] = HAS_DIGIT
    return table


_STEPS: Final = _steps()
_FOLLOWERS: Final = _followers()
_FLAGS: Final = _flags()


@kernel
def next_segments(
    data: NDArray[np.uint8], at: int, end: int, classes: NDArray[np.uint8], block: Segments
) -> Batch:
    """Write the segments from byte ``at`` on to ``block``, which has at least 4 rows.

    Bytes that are not valid UTF-8 are characters of class OTHER. No byte at or after ``end`` is read.
    """
    num = start = chars = flags = 0
    state, after_joiner = _CLOSED, -1  # after_joiner: the byte after the last zero-width joiner
    while at < end and num < len(block) - 1:
        kind, width = class_at(data, at, end, classes)
        # One look-up decides nearly every boundary: by what the open segment ends with, and the next
        # character.
        step = np.int64(_STEPS[state, kind])
        # Some rules depend on one character more: the apostrophe joins in ``can't``, but not at the end
        # of ``dogs'``.
        if step >= _IF_LETTER:
            follower = _next_class(data, at + width, end, classes)
            if not _FOLLOWERS[step >> _STATE_BITS, follower]:
                step = _BOUNDARY | OTHER
        elif kind == SYMBOL and at == after_joiner and state != _CLOSED:  # WB3c
            step = _JOIN | OTHER
        if step < _JOIN:
            if state != _CLOSED:
                num = append_segment(block, num, start, at, chars, flags)
            start, chars, flags = at, 0, 0
        state = step & (1 << _STATE_BITS) - 1
        flags |= _FLAGS[kind]
        chars += 1
        at += width
        if kind == LETTER:  # most of English: skip a run of ASCII letters at once
            first = at
            while at < end and 97 <= (data[at] | 32) <= 122:
                at += 1
            chars += at - first
        elif kind == ZWJ:
            after_joiner = at
    if at < end:  # the block is full: the open segment is read again by the next call
        return Batch(at if state == _CLOSED else start, num)
    if state != _CLOSED:
        num = append_segment(block, num, start, at, chars, flags)
    return Batch(at, num)


@inner
def _next_class(data: NDArray[np.uint8], at: int, end: int, classes: NDArray[np.uint8]) -> int:
    """Return the class of the next character that is not a mark (WB4), BLANK at the end."""
    while at < end:
        kind, width = class_at(data, at, end, classes)
        if kind < MARK:
            return kind
        at += width
    return BLANK


@inner
def append_segment(block: Segments, num: int, start: int, end: int, chars: int, flags: int) -> int:
    """Write a segment to row ``num`` of a block and return the number of segments."""
    block[num, START], block[num, END] = start, end
    block[num, CHARS], block[num, FLAGS] = chars, flags
    return num + 1
