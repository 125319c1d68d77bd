"""Languages of texts: known codes, scores, and the accuracy on real documents."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl.text import language_id
from etl.text.fasttext_model import load_local_model


def test_the_known_languages_are_those_of_the_model():
    path = language_id.model_path()
    labels = load_local_model(path, str(path)).labels
    assert sorted(label.removeprefix("__label__") for label in labels) == [*language_id.LANGUAGES]


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
