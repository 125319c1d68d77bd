"""Words given as ranges of characters: their bytes and their counts against slices of the text."""

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.signals.quality_counts import COUNTS, count_words
from etl.kernels.words.given_words import byte_ranges
from tests.helpers.naive_signals import naive_counts, naive_repeated_chars
from tests.helpers.naive_spacy import PIECES, naive_flags
from tests.helpers.tricky_text import TRICKY

pieces = st.sampled_from([*PIECES, *TRICKY, " ", "\n", "했", "東京", "🙂", "the", "..."])


@st.composite
def documents(draw):
    """A text and ranges of its characters, which may overlap, be empty or hold white space."""
    text = draw(st.lists(pieces, max_size=15).map("".join))
    at = st.integers(0, len(text))
    return text, draw(st.lists(st.tuples(at, at).map(sorted), max_size=12))


@given(st.lists(documents(), max_size=4))
@example([("né 🙂\nà", [[0, 3], [3, 5], [2, 4], [0, 6], [6, 6]]), ("", []), ("a b", [[0, 3]])])
def test_counts_are_those_of_slices(several):
    column = buffers(pa.array([text for text, _ in several], pa.string()))
    ranges = [np.array(of_text, np.int64).reshape(-1, 2) for _, of_text in several]
    words = [[text[a:b].strip() for a, b in of_text] for text, of_text in several]
    segments = [[(word, naive_flags(word)) for word in of_text if word] for of_text in words]
    given_words = byte_ranges(column, ranges)
    counted = count_words(column, given=given_words, repeated=True)
    for k, (text, _) in enumerate(several):
        counts = {name: int(getattr(counted.quality, name)[k]) for name in COUNTS}
        assert counts == naive_counts(text, segments[k])
        expected = naive_repeated_chars([segment for segment, _ in segments[k]])
        assert counted.repeated_chars[:, k].tolist() == expected


@given(st.lists(documents(), max_size=4))
def test_bytes_are_those_of_slices(several):
    whole = "".join(text for text, _ in several).encode()
    column = buffers(pa.array([text for text, _ in several], pa.string()))
    words = byte_ranges(column, [np.array(of_text, np.int64) for _, of_text in several])
    slices = [whole[a:b].decode() for a, b in zip(words.starts, words.ends, strict=True)]
    assert slices == [text[a:b] for text, of_text in several for a, b in of_text]
    assert np.diff(words.first).tolist() == [len(of_text) for _, of_text in several]


def test_a_document_of_many_blocks_is_counted():
    text = "ab " * 5000
    words = byte_ranges(
        buffers(pa.array([text])), [np.array([[k, k + 2] for k in range(0, len(text), 3)])]
    )
    counted = count_words(buffers(pa.array([text])), given=words).quality
    assert (counted.segments[0], counted.words[0], counted.word_chars[0]) == (5000, 5000, 10_000)
