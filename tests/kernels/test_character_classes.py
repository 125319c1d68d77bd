"""Classes and case folds of code points against ``str`` and ``unicodedata``."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes as u

EXCEPTIONS = {char for characters in u._OF_CHARACTERS.values() for char in characters}
SURROGATES = range(0xD800, 0xE000)
POINTS = [point for point in range(u.NUM_CODE_POINTS) if point not in SURROGATES]


def test_white_space_and_line_breaks_are_those_of_str():
    spaces = {point for point in POINTS if u.classes()[point] <= u.LINE}
    assert spaces == {point for point in POINTS if chr(point).isspace()}
    lines = {point for point in POINTS if u.classes()[point] == u.LINE}
    assert lines == {point for point in spaces if len(f"a{chr(point)}b".splitlines()) == 2}


@given(st.characters(max_codepoint=0x1FFFF, exclude_characters=EXCEPTIONS))
def test_classes_follow_the_general_category(char):
    kind, category = int(u.classes()[ord(char)]), unicodedata.category(char)
    if kind in (u.LETTER, u.HEBREW, u.KATAKANA, u.UNIT):
        assert category[0] == "L" or category == "Nl"
    elif kind == u.DIGIT:
        assert category == "Nd"
    elif kind == u.MARK:
        assert category[0] == "M" or "SKIN TONE" in unicodedata.name(char) or category == "Sk"
    elif kind == u.SYMBOL:
        assert category == "So"
    elif kind == u.NUMBER:
        assert category == "No"
    elif kind == u.OTHER:
        assert category[0] in "PSC"


@given(st.characters())
def test_folds_are_those_of_casefold_if_it_returns_one_character(char):
    folded = char.casefold()
    expected = ord(folded) if len(folded) == 1 else ord(char)
    assert (u.folds()[ord(char)] if ord(char) < len(u.folds()) else ord(char)) == expected
