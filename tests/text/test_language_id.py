"""Languages of texts: known codes, scores, capitals, no letters, and the accuracy on real documents."""

from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.text import language_id
from etl.text.fasttext_model import load_local_model


def test_the_known_languages_are_those_of_the_model():
    labels = (label.removeprefix("__label__") for label in model().labels)
    assert sorted(labels) == [*language_id.LANGUAGES]


@pytest.mark.parametrize("text", ["", " ", "\0", "a\0b", "😀", "__label__de", "\u2028\x85", "123"])
def test_unusual_texts_have_a_known_language_and_a_low_score(text):
    (label,), (score,) = (
        column.to_pylist() for column in language_id.identify_languages(pa.array([text]))
    )
    assert label in language_id.LANGUAGES
    assert 0 <= score < 0.65


def test_scores_are_probabilities():
    _, scores = language_id.identify_languages(pa.array(["한국어 문장입니다. " * 30]))
    assert scores[0].as_py() == 1.0  # fastText itself returns about 1.00007


def test_accuracy_on_real_documents(data):
    table = pq.read_table(data / "docs" / "docs-00000.parquet", columns=["text", "lang"])
    table = table.take(pa.array(range(0, table.num_rows, 20)))
    labels, scores = language_id.identify_languages(table["text"])
    rows = list(zip(labels.to_pylist(), table["lang"].to_pylist(), scores.to_pylist(), strict=True))
    assert sum(label == true for label, true, _ in rows) / len(rows) > 0.88
    sure = [label == true for label, true, score in rows if score >= 0.65]
    assert sum(sure) / len(sure) > 0.92


def labels_of(texts, labels="fasttext"):
    """Return the language and the score of each text."""
    pairs = zip(*language_id.identify_languages(pa.array(texts, pa.string()), labels), strict=True)
    return [(label.as_py(), score.as_py()) for label, score in pairs]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("TERMS AND CONDITIONS OF USE", "en"),
        ("ALLGEMEINE GESCHÄFTSBEDINGUNGEN FÜR VERBRAUCHER", "de"),
        ("CONDITIONS GÉNÉRALES DE VENTE ET D'UTILISATION", "fr"),
        ("УСЛОВИЯ ИСПОЛЬЗОВАНИЯ ЭТОГО САЙТА", "ru"),
        ("ΟΙ ΌΡΟΙ ΧΡΉΣΗΣ ΤΟΥ ΙΣΤΌΤΟΠΟΥ", "el"),
        ("NOTICE: THE WORK is provided AS IS, without WARRANTY OF ANY KIND", "en"),
    ],
)
def test_capitals_get_the_language_of_their_lower_case(text, language):
    (label,) = labels_of([text], "letters")
    assert label[0] == language
    assert [label] == labels_of([text.lower()])


@pytest.mark.parametrize(
    "text", ["", " \n", "123", "1,0 + ½ = Ⅻ?", "😀👍🏽", "—…!?", "\u0301", "\0" * 2000]
)
def test_a_text_without_letters_has_no_language(text):
    assert labels_of([text, None, "This is English."], "letters")[:2] == [(None, None)] * 2
    assert labels_of([text])[0][0] in language_id.LANGUAGES


def test_letters_far_from_the_beginning_are_read():
    text = "Der Ausschuss trat am Dienstag zusammen, um zu beraten. " * 30
    numbers = "0 1 2 3\n" * 500
    assert labels_of([numbers + text, numbers], "letters") == [*labels_of([text]), (None, None)]
    assert labels_of([numbers + text.upper()], "letters") == labels_of([text.lower()])


def test_chunks_and_slices_are_labelled_like_one_array():
    texts = ["CAPITALS AND WORDS", None, "12", "plain words of English", "ÜBER DEN WOLKEN"]
    expected = labels_of(texts, "letters")
    chunked = pa.chunked_array([texts[:2], [], texts[2:]], pa.string())
    sliced = pa.array(["x", *texts], pa.large_string()).slice(1)
    for column in (chunked, sliced):
        found = language_id.identify_languages(column, "letters")
        assert [*zip(*(each.to_pylist() for each in found), strict=True)] == expected


# Letters whose cases correspond one to one, and what has no case.
cased = st.text(st.sampled_from("abcdefgxyzäöüéñабвгдежяαβγδεω"), min_size=1)
caseless = st.text(st.sampled_from(" \n0123.,!?-漢字かな한글שלוםनम"))
words = st.lists(st.one_of(cased, caseless), max_size=40).map("".join)


@given(words, cased)
@example("", "i\u0307")
@example("σς", "ας")
def test_only_capitals_change_a_label(text, letters):
    text = letters + text
    capitals = text.upper()
    (off,) = labels_of([text])
    assert labels_of([text, text.capitalize() + letters, capitals], "letters") == [
        off,
        *labels_of([text.capitalize() + letters]),
        *labels_of([capitals.lower()]),
    ]


@cache
def model():
    path = language_id.model_path()
    return load_local_model(path, str(path))


@given(st.text(st.characters(exclude_categories=("Cs", "Cn"))))
def test_labels_are_fasttexts_unless_asked_otherwise(text):
    with_letters, without = labels_of([text], "letters")[0], labels_of([text])[0]
    (label,), (score,) = model().best(pa.array([text]), max_chars=1000)
    assert without == (label.as_py(), score.as_py())
    if any(c.isalpha() for c in text) and text == text.lower():
        assert with_letters == without
    if not any(c.isalpha() for c in text):
        assert with_letters == (None, None)
