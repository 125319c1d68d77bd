"""The table of specials against the dictionary that it is built from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.jit import kernel
from etl.kernels.words import spacy_ascii
from etl.kernels.words.spacy_specials import LANGUAGES, specials
from etl.kernels.words.spacy_tables import tables

words = st.sampled_from([*specials("en")])
near_misses = st.builds(
    lambda word, k, char: word[:k] + char + word[k + 1 :], words, st.integers(0, 8), st.text("a'.")
)


@kernel
def _special(data, tables):
    return spacy_ascii.find_special(data, tables, 0, len(data))


@kernel
def _may_be_special(data, tables, tail):
    return spacy_ascii.may_be_special(data, tables, 0, len(data), tail)


def parts(word: str) -> tuple[str, ...]:
    """The parts that the tables hold of a word; empty if it is not a special."""
    cuts, start, pieces = int(_special(np.frombuffer(word.encode(), np.uint8), tables())), 0, []
    while cuts:
        pieces.append(word[start : start + (cuts & 0xFF)])
        start, cuts = start + (cuts & 0xFF), cuts >> 8
    return tuple(pieces)


@given(words | near_misses | st.text(max_size=24))
def test_a_look_up_returns_the_parts_of_specials_alone(word):
    assert parts(word) == specials("en").get(word, ())


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_special_of_letters_and_a_mark_may_be_one(language):
    of_language = specials(language)
    for word in of_language:
        data = np.frombuffer(word.encode(), np.uint8)
        if word.isalnum():
            assert _may_be_special(data, tables(language), 0)
            assert _may_be_special(np.append(data, ord(",")), tables(language), 1)
        elif word[:-1].isalnum() and word[-1].isascii():
            assert _may_be_special(data, tables(language), 1)


def test_few_words_may_be_special():
    text = "These sentences consist of common words only. Most never go through the table, I hope."
    checked = [
        _may_be_special(np.frombuffer(word.encode(), np.uint8), tables(), word[-1] in ".,")
        for word in text.split()
    ]
    assert sum(checked) < len(checked) // 4


@pytest.mark.parametrize("word", specials("en"))
def test_the_parts_of_a_special_join_to_it(word):
    assert "".join(specials("en")[word]) == word
    assert parts(word) == specials("en")[word]
