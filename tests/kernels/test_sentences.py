"""Sentences against a loop over the words of a text."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.simd import SIZE
from etl.kernels.jit import kernel
from etl.kernels.words import sentences, spacy_tables
from etl.kernels.words.spacy_tables import SENTENCE_ENDS
from tests.helpers.naive_spacy import category, naive_words, room
from tests.helpers.tricky_text import TRICKY

ENDS = {chr(point) for first, last in SENTENCE_ENDS for point in range(first, last + 1)}
PIECES = [
    "The ",
    "end",
    ". ",
    ".",
    "?! ",
    "…",
    '"',
    ") ",
    "e.g. ",
    "3.5",
    "a.b",
    "。",
    "東京",
    "؟ ",
    "\n",
    " ",
]
texts = st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text(
    st.sampled_from(TRICKY), max_size=30
)


@kernel
def _count(data, at, end, tables, room):
    return sentences.count_sentences(data, at, end, tables, room)


def count(text: str, before: str = "", after: str = "", language: str = "en") -> int:
    whole = f"{before}{text}{after}".encode()
    at = len(before.encode())
    end = at + len(text.encode())
    data = np.frombuffer(whole.ljust(SIZE), np.uint8)
    return int(_count(data, at, end, spacy_tables.tables(language), room(language)))


def naive_count(text: str, language: str = "en") -> int:
    num, ended = 0, False
    for word, _ in naive_words(text, language):
        is_punctuation = all(category(ord(char))[0] == "P" for char in word)
        if num == 0 or (ended and word not in ENDS and not is_punctuation):
            num, ended = num + 1, False
        ended |= word in ENDS
    return num


@given(texts, st.sampled_from(["en", "xx", "de", "fr", "ru"]))
@example("A. B.C d. e.f 3.5 G?h! i", "en")
@example("... .a", "en")
@example("word " * 30 + "ends. Next", "en")
@example("ક ગ. મ", "en")
@example("One. Mr. Two vs. Three Cannot. four i. Five A. six XY. (seven eight.", "en")
@example("x" * 70 + ". Next" + "x" * 60 + "? And. ", "en")
@example("ab.\u3000cd!\xa0ef. ) Gh", "en")
@example("Am 3. Mai z.B. kam er.", "de")
def test_sentences_are_those_of_the_rule(text, language):
    assert count(text, language=language) == naive_count(text, language)


@given(texts, st.sampled_from(["", "A. ", "a.", "?"]), st.sampled_from(["", ".", " B.", "b"]))
def test_the_text_around_a_document_does_not_matter(text, before, after):
    assert count(text, before, after) == count(text)


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("", "en", 0),
        ("One. Two? Three!", "en", 3),
        ("It is 3.5 km, i.e. far.", "en", 1),
        ("…", "en", 1),
        ("東京。大阪。", "en", 1),  # as in spaCy
        ("東京。大阪。", "xx", 2),
        ("東京。大阪。", spacy_tables.UNKNOWN, 2),
    ],
)
def test_examples(text, language, expected):
    assert count(text, language=language) == expected
