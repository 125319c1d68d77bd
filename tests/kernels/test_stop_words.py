"""Stop words of each language against Python's sets and ``in``."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes as u
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.signals.stop_word_lists import ANYWHERE, STOP_WORDS
from etl.kernels.signals.stop_words import count_stop_words

RUN = {u.LETTER, u.HEBREW, u.KATAKANA, u.UNIT, u.DIGIT, u.JOINER, u.MARK, u.ZWJ}
CODES = [*STOP_WORDS, "eo", None]
WORDS = sorted({word for words in STOP_WORDS.values() for word in words.split()})
TRICKY = " \n\r\x85\u2028\u200b\u200c\u200d\u0301\u0ec8'’_-.,،・0\u00ad\x00éеЖשا的のใ한😀\U0001f9d1"

pieces = st.sampled_from([*WORDS, *TRICKY]) | st.characters(exclude_categories=("Cs",))
texts = st.lists(pieces, max_size=30).map("".join) | st.text(max_size=60)


def naive(text: str, language: str | None) -> int:
    words = set(STOP_WORDS.get(language or "", "").split())
    if language in ANYWHERE:
        return sum(word in text for word in words)
    in_run = "".join(char if int(u.classes()[ord(char)]) in RUN else "\n" for char in text)
    return len(words & {*in_run.split("\n")})


def counts(documents, languages) -> list[int]:
    texts = buffers(pa.array(documents, pa.string()))
    return count_stop_words(texts, pa.array(languages, pa.string())).tolist()


@given(st.lists(st.tuples(texts, st.sampled_from(CODES)), max_size=5))
@example([("die der und", "de"), ("die der und", "en"), ("的是", "zh"), ("", "th"), ("を", "ja")])
@example([("l'eau de-la vie, le", "fr"), ("Die", "de"), ("fu\u0308r für", "de"), ("de", "fr")])
def test_counts_equal_those_of_sets_of_words(documents):
    table = [text for text, _ in documents], [language for _, language in documents]
    assert counts(*table) == [naive(text, language) for text, language in documents]


@pytest.mark.parametrize("language", STOP_WORDS)
def test_every_word_of_every_list_is_counted(language):
    words = STOP_WORDS[language].split()
    assert counts(words, [language] * len(words)) == [naive(word, language) for word in words]
    assert counts([" ".join(words)], [language]) == [len(words)]
    assert counts([" ".join(words * 3)], [language]) == [len(words)]
    if language not in ANYWHERE:
        assert counts(["x".join(words), f"x{words[0]}", f"{words[0]}x"], [language] * 3) == [0] * 3


def test_lists_have_distinct_words_and_fit_a_mask():
    for words in STOP_WORDS.values():
        assert 7 <= len(words.split()) == len({*words.split()}) <= 63  # one bit for each word
    assert {*ANYWHERE} < {*STOP_WORDS}


def test_slices_nulls_and_unknown_languages_are_allowed():
    array = pa.array(["of", None, "to be", "with", "the and", "der und"])
    languages = pa.array(["en", "en", None, "eo", "en", "de"])
    assert count_stop_words(buffers(array[2:]), languages[2:]).tolist() == [0, 0, 2, 2]
    assert count_stop_words(buffers(array), languages).tolist()[0] == 1
    assert counts([], []) == []


def test_very_long_words_are_not_stop_words():
    assert counts(["d" * 100_000 + " der", "der" * 1000], ["de", "de"]) == [1, 0]
