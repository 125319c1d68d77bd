"""Where words begin and end: Unicode's UAX #29 (rules WB3 to WB16) as a table of states.

A *segment* is what stands between two word boundaries and is not white space: a word, a number, a
punctuation mark, an emoji. A *word* is a segment with a letter or a digit. The tailorings are those of
``etl.kernels.bytes.character_classes``. One step per character, linear in the bytes, no memory beyond the caller's
block; a document of any length comes in blocks of segments.
"""

from typing import Final

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
    NUM_CODE_POINTS,
    NUMBER,
    OTHER,
    REGIONAL,
    SINGLE_QUOTE,
    SYMBOL,
    UNIT,
    ZWJ,
)
from etl.kernels.jit import kernel

# Columns of a block of segments.
START, END, CHARS, FLAGS = range(4)  # bytes, bytes, code points, HAS_LETTER | HAS_DIGIT
HAS_LETTER: Final = 1
HAS_DIGIT: Final = 2

# A state is the class of the segment's last character that is no mark, or one of these.
_CLOSED: Final = BLANK  # no segment is open
_QUOTED: Final = NUM_CLASSES  # Hebrew letter, single quote: a letter may follow
_WAITING: Final = NUM_CLASSES + 1  # from here on: joins only if the right character follows
_WAITS_LETTER, _WAITS_HEBREW, _WAITS_DIGIT = range(_WAITING, _WAITING + 3)
_NUM_STATES: Final = NUM_CLASSES + 4
_JOIN: Final = 64  # the character belongs to the open segment


def _steps() -> NDArray[np.uint8]:
    """The state that follows, with _JOIN where no boundary is: uint8 (state, class of character)."""
    letters, runs = [LETTER, HEBREW], [LETTER, HEBREW, DIGIT, KATAKANA, JOINER]
    table = np.empty((_NUM_STATES, NUM_CLASSES), np.uint8)
    table[:] = np.arange(NUM_CLASSES)
    table[:, : BLANK + 1] = _CLOSED
    table[:, MID_LETTER:] = OTHER
    for state in range(_CLOSED + 1, _NUM_STATES):
        table[state, [MARK, FORMAT, ZWJ]] = _JOIN | state  # WB4
    table[: _CLOSED + 1, [FORMAT, ZWJ]] = _CLOSED
    for state, following in [
        *((letter, [*letters, DIGIT]) for letter in letters),  # WB5, WB9
        (DIGIT, [*letters, DIGIT]),  # WB8, WB10
        (KATAKANA, [KATAKANA]),  # WB13
        *((run, [JOINER]) for run in runs),  # WB13a
        (JOINER, runs),  # WB13b
        (_WAITS_LETTER, letters),  # WB7
        (_QUOTED, letters),  # WB7
        (_WAITS_HEBREW, [HEBREW]),  # WB7c
        (_WAITS_DIGIT, [DIGIT]),  # WB11
    ]:
        table[state, following] = _JOIN | np.array(following)
    for letter in letters:
        table[letter, [MID_LETTER, MID_BOTH, SINGLE_QUOTE]] = _JOIN | _WAITS_LETTER  # WB6
    table[HEBREW, SINGLE_QUOTE] = _JOIN | _QUOTED  # WB7a
    table[HEBREW, DOUBLE_QUOTE] = _JOIN | _WAITS_HEBREW  # WB7b
    table[DIGIT, [MID_NUMBER, MID_BOTH, SINGLE_QUOTE]] = _JOIN | _WAITS_DIGIT  # WB12
    table[REGIONAL, REGIONAL] = _JOIN | OTHER  # WB15, WB16
    return table


def _flags() -> NDArray[np.uint8]:
    table = np.zeros(NUM_CLASSES, np.uint8)
    table[[LETTER, HEBREW, KATAKANA, UNIT]] = HAS_LETTER
    table[[DIGIT, NUMBER]] = HAS_DIGIT
    return table


_STEPS: Final = _steps()
_FLAGS: Final = _flags()


@kernel
def next_segments(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    classes: NDArray[np.uint8],
    block: NDArray[np.int64],
) -> tuple[int, int]:
    """Write the segments from byte ``at`` on to ``block``: int64 (n >= 4, [START, END, CHARS, FLAGS]).

    Returns the byte to go on from (``end`` when all are done) and the number of segments written.
    Bytes that are no UTF-8 are characters of class OTHER; nothing is read at or after ``end``.
    """
    # One long loop on purpose: a call with an array costs two atomic counts, here twice per character.
    num = start = chars = flags = middle = middle_chars = 0
    state, joined = _CLOSED, -1  # joined: the byte after a zero-width joiner
    while at < end and num < len(block) - 2:
        point, width = np.int64(data[at]), 1
        if point >= 0x80:
            width = 2 if point < 0xE0 else 3 if point < 0xF0 else 4
            if point < 0xC0 or at + width > end:
                point, width = np.int64(0xFFFF), 1  # no character: OTHER
            else:
                point &= 0xFF >> (width + 1)
                for k in range(1, width):
                    point = point << 6 | np.int64(data[at + k]) & 0x3F
                if point >= NUM_CODE_POINTS:
                    point, width = np.int64(0xFFFF), 1
        kind = classes[point]
        step = _STEPS[state, kind]
        if kind == SYMBOL and joined == at and state != _CLOSED:  # WB3c
            step = np.uint8(_JOIN | OTHER if state < _WAITING else OTHER)
        if step < _JOIN:
            if state != _CLOSED:
                waited = state >= _WAITING
                block[num, START], block[num, FLAGS] = start, flags
                block[num, END] = middle if waited else at
                block[num, CHARS] = middle_chars if waited else chars
                num += 1
                if waited:  # in vain: the character in the middle is a segment of its own
                    start, chars, flags, state = middle, chars - middle_chars, 0, OTHER
                    continue
            start, chars, flags = at, 0, 0
        elif step >= _JOIN + _WAITING and state < _WAITING:
            middle, middle_chars = at, chars
        state = np.int64(step & (_JOIN - 1))
        flags |= _FLAGS[kind]
        chars += 1
        at += width
        if kind == LETTER:  # the run of ASCII letters at once: most of English
            run = at
            while at < end and 97 <= (data[at] | 32) <= 122:
                at += 1
            chars += at - run
        elif kind == ZWJ:
            joined = at
    if at < end:
        return at if state == _CLOSED else start, num
    while state != _CLOSED:
        waited = state >= _WAITING
        block[num, START], block[num, FLAGS] = start, flags
        block[num, END] = middle if waited else at
        block[num, CHARS] = middle_chars if waited else chars
        num += 1
        start, chars, flags = middle, chars - middle_chars, 0
        state = OTHER if waited else _CLOSED
    return at, num
