"""The table of specials against the dictionary that it is built from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.jit import kernel
from etl.kernels.words import spacy_ascii
from etl.kernels.words.spacy_specials import specials
from etl.kernels.words.spacy_tables import tables

words = st.sampled_from([*specials("en")])
near_misses = st.builds(
    lambda word, k, char: word[:k] + char + word[k + 1 :], words, st.integers(0, 8), st.text("a'.")
)


@kernel
def _special(data, tables):
    return spacy_ascii.find_special(data, tables, 0, len(data))


@kernel
def _contraction(data, tables):
    return spacy_ascii.find_contraction(data, tables, 0, len(data))


def parts(find, word: str) -> tuple[str, ...]:
    """The parts that the tables hold of a word; empty if it is not a special."""
    cuts, start, pieces = int(find(np.frombuffer(word.encode(), np.uint8), tables())), 0, []
    while cuts:
        pieces.append(word[start : start + (cuts & 0xFF)])
        start, cuts = start + (cuts & 0xFF), cuts >> 8
    return tuple(pieces)


@given(words | near_misses | st.text(max_size=24))
def test_a_look_up_returns_the_parts_of_specials_alone(word):
    assert parts(_special, word) == specials("en").get(word, ())
    if word.isascii() and word.isalpha():
        assert parts(_contraction, word) == specials("en").get(word, ())


@pytest.mark.parametrize("word", specials("en"))
def test_the_parts_of_a_special_join_to_it(word):
    assert "".join(specials("en")[word]) == word
    assert parts(_special, word) == specials("en")[word]
