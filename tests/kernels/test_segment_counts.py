"""Counts of lines: they add up to the counts of the text, also of what C4 leaves of it."""

from functools import partial

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.lines import c4_cleaning
from etl.kernels.signals.quality_counts import COUNTS, count_words
from etl.kernels.words.segment_counts import NUM_COUNTS, STOP_WORDS, CountsByLine, find_lines
from tests.helpers.naive_signals import naive_counts
from tests.helpers.naive_spacy import PIECES, naive_words
from tests.helpers.tricky_text import TRICKY

BREAKS = ("\n", "\r\n", "\r", "\x0b", "\x1c", "\x85", "\u2028", " \n\t")
pieces = st.sampled_from(
    [*PIECES, *STOP_WORDS, *TRICKY, *BREAKS, *BREAKS, " ", "The end.", "[1]", "w[edit]", "x" * 70]
)
texts = st.lists(st.lists(pieces, max_size=30).map("".join), max_size=4)
RULES = c4_cleaning.Rules(
    terminal=False, min_words=0, max_word_chars=50, javascript=True, policy=True, citations=True
)


def words_of(text: str) -> list[int]:
    counts = naive_counts(text, naive_words(text))
    return [counts[name] for name in COUNTS[:NUM_COUNTS]]


@given(texts)
@example(["a\r\nb\r\n", "", "\n\n", "a\x85b\u2028c"])
def test_lines_are_those_of_python(documents):
    array = buffers(pa.array(documents, pa.string()))
    lines = find_lines(array)
    starts = np.concatenate([array.offsets[:1], lines.ends])
    for k, text in enumerate(documents):
        first, last = lines.first[k], lines.first[k + 1]
        whole = [
            bytes(array.data[starts[line] : lines.ends[line]]).decode()
            for line in range(first, last)
        ]
        assert whole == text.splitlines(keepends=True)


@given(texts)
@example(["the end of\n\nthe be", "and\x1cthe"])
def test_words_are_counted_by_line(documents):
    array = buffers(pa.array(documents, pa.string()))
    counted = count_words(array, by_line=True, repeated=True)
    lines = CountsByLine.from_arrow(counted.lines)
    counts = lines.counts.tolist()
    for row in counts:
        row[-1] = row[-1].bit_count()
    expected = [words_of(line) for text in documents for line in text.splitlines()]
    assert counts == expected
    assert (
        lines.first.tolist() == np.cumsum([0, *(len(t.splitlines()) for t in documents)]).tolist()
    )
    whole = count_words(array, repeated=True)
    assert [column.tolist() for column in counted.quality] == [
        column.tolist() for column in whole.quality
    ]


@given(texts, st.booleans())
@example(["one two [1].\nthe be.\n\n[edit]\nx", "the {\n" + "x" * 60], False)
@example(["a b", "\x85\nc d\n ", "\n"], True)
@example([".東[1]"], False)
def test_words_of_a_cleaned_page_are_the_sums_of_its_lines(documents, terminal):
    array = buffers(pa.array(documents, pa.string()))
    count = partial(count_words, rules="en")
    lines = CountsByLine.from_arrow(count(array, by_line=True).lines)
    cleaned = c4_cleaning.clean_pages(array, RULES._replace(terminal=terminal), "en", lines)
    rest = buffers(cleaned.texts)
    known, again = count(rest, known=cleaned.words), count(rest)
    assert [column.tolist() for column in known.quality] == [
        column.tolist() for column in again.quality
    ]
    assert not c4_cleaning.clean_pages(array, RULES).words.any()
