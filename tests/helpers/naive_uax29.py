"""Word boundaries by the rules of UAX #29, applied to one boundary at a time."""

from itertools import pairwise

import numpy as np

from etl.kernels.bytes import character_classes as u
from etl.kernels.words.uax29 import next_segments


def kind_of(char: str) -> int:
    return int(u.classes()[ord(char)])


def is_boundary(text: str, at: int) -> bool:
    before, after = kind_of(text[at - 1]), kind_of(text[at])
    if before <= u.BLANK or after <= u.BLANK:
        return True
    if after >= u.MARK:  # WB4: marks attach, and the other rules ignore them
        return False
    if before == u.ZWJ and after == u.SYMBOL:  # WB3c
        return False
    left = [None, None, *(kind for kind in map(kind_of, text[:at]) if kind < u.MARK)]
    right = [*(kind for kind in map(kind_of, text[at:]) if kind < u.MARK), None]
    return not joins(left[-2], left[-1], right[0], right[1], flags=count_last(left, u.REGIONAL))


def joins(before2, before, after, after2, *, flags: int) -> bool:
    letter = (u.LETTER, u.HEBREW)
    middle = (u.MID_LETTER, u.MID_BOTH, u.SINGLE_QUOTE)
    middle_number = (u.MID_NUMBER, u.MID_BOTH, u.SINGLE_QUOTE)
    run = (*letter, u.DIGIT, u.KATAKANA, u.JOINER)
    return (
        (before in letter and after in letter)  # WB5
        or (before in letter and after in middle and after2 in letter)  # WB6
        or (before2 in letter and before in middle and after in letter)  # WB7
        or (before == u.HEBREW and after == u.SINGLE_QUOTE)  # WB7a
        or (before == u.HEBREW and after == u.DOUBLE_QUOTE and after2 == u.HEBREW)  # WB7b
        or (before2 == u.HEBREW and before == u.DOUBLE_QUOTE and after == u.HEBREW)  # WB7c
        or (before == u.DIGIT and after == u.DIGIT)  # WB8
        or (before in letter and after == u.DIGIT)  # WB9
        or (before == u.DIGIT and after in letter)  # WB10
        or (before2 == u.DIGIT and before in middle_number and after == u.DIGIT)  # WB11
        or (before == u.DIGIT and after in middle_number and after2 == u.DIGIT)  # WB12
        or (before == u.KATAKANA and after == u.KATAKANA)  # WB13
        or (before in run and after == u.JOINER)  # WB13a
        or (before == u.JOINER and after in run)  # WB13b
        or (after == u.REGIONAL and flags % 2 == 1)  # WB15, WB16
    )


def count_last(kinds, kind) -> int:
    """How many elements at the end are of this kind."""
    others = [k for k, other in enumerate(kinds) if other != kind]
    return len(kinds) - 1 - others[-1]


def naive_segments(text: str) -> list[str]:
    cuts = [0, *(at for at in range(1, len(text)) if is_boundary(text, at)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(cuts)]
    invisible = "".join(c for c in set(text) if kind_of(c) <= u.BLANK or kind_of(c) >= u.FORMAT)
    return [segment for piece in pieces if (segment := piece.lstrip(invisible))]


def segments(text: str, block_rows: int = 64) -> list[str]:
    data = np.frombuffer(text.encode(), np.uint8)
    block = np.empty((block_rows, 4), np.int64)
    at, pieces = 0, []
    while at < len(data):
        at, num = next_segments(data, at, len(data), u.classes(), block)
        for start, end, chars, _ in block[:num]:
            piece = data[start:end].tobytes().decode()
            assert len(piece) == chars
            pieces.append(piece)
    return pieces
