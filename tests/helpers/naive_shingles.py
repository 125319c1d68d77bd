"""Words and characters of shingles, from Python's strings."""

import re
import unicodedata

from hypothesis import strategies as st

from etl.kernels.bytes import character_classes
from etl.kernels.hashing.minhash_signatures import Shingling

shinglings = st.builds(Shingling, st.integers(1, 6), st.booleans(), st.booleans(), st.booleans())


def folded(char: str, shingling: Shingling) -> str:
    """Normalize a character of a word."""
    kind = int(character_classes.classes()[ord(char)])
    char = char.lower()[0].replace("ς", "σ")
    if kind in (character_classes.FORMAT, character_classes.ZWJ):
        return ""
    if shingling.fold_digits and char.isdecimal():
        return "0"
    if not shingling.fold_accents:
        return char
    base, *marks = [*unicodedata.normalize("NFD", char)]
    if unicodedata.category(char) == "Mn":
        return ""
    return base if all(unicodedata.category(mark) == "Mn" for mark in marks) else char


def naive_words(text: str, shingling: Shingling) -> list[str]:
    """Split a text into runs of letters and digits, and characters of scripts without spaces.

    Marks belong to the word before them.
    """
    signs = "".join(
        "d"
        if kind in (character_classes.FORMAT, character_classes.ZWJ)
        else "m"
        if kind == character_classes.MARK
        else "u"
        if kind in (character_classes.UNIT, character_classes.KATAKANA)
        else "a"
        if kind
        in (
            character_classes.LETTER,
            character_classes.HEBREW,
            character_classes.DIGIT,
            character_classes.NUMBER,
            character_classes.JOINER,
        )
        else " "
        for kind in (int(character_classes.classes()[ord(char)]) for char in text)
    )
    spans = [match.span() for match in re.finditer("u[md]*|a[amd]*", signs)]
    return ["".join(folded(char, shingling) for char in text[a:b]) for a, b in spans]


def naive_units(text: str, shingling: Shingling) -> list[str]:
    words = naive_words(text, shingling)
    return [*"".join(f"{word} " for word in words)] if shingling.of_chars else words
