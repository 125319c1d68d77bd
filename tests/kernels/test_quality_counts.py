"""Counts of one pass over the words: both kinds of words, blocks, slices, nulls."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.signals.quality_counts import COUNTS, QualityCounts, count_words
from etl.kernels.signals.repeated_ngrams import DUPLICATE, TOP
from etl.kernels.words.segment_counts import STOP_WORDS
from etl.kernels.words.spacy import HAS_LETTER, IS_WORD
from tests.helpers.naive_signals import naive_counts, naive_repeated_chars
from tests.helpers.naive_spacy import PIECES, category, naive_words
from tests.helpers.tricky_text import TRICKY

Words = list[tuple[str, int]]  # segments and their flags

pieces = st.sampled_from(
    [*PIECES, *STOP_WORDS, *TRICKY, "...", "- ", "• ", "\r\n", " The ", "withal", " of ", "#"]
)
repeats = st.lists(st.sampled_from(["a ", "b ", "a.", "it's ", "é-", "東"]), max_size=60).map(
    "".join
)
texts = st.lists(pieces, max_size=30).map("".join) | repeats | st.text(max_size=60)


def spaced_words(text: str) -> Words:
    return [
        (chunk, IS_WORD | any(category(ord(c))[0] == "L" for c in chunk) * HAS_LETTER)
        for chunk in text.split()
    ]


def counts(array, **options) -> list[dict[str, int]]:
    return by_document(count_words(buffers(array), **options).quality)


def by_document(columns: QualityCounts) -> list[dict[str, int]]:
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [dict(zip(COUNTS, row, strict=True)) for row in rows]


def naive(text: str, words: Callable[[str], Words] = naive_words) -> dict[str, int]:
    return naive_counts(text, words(text))


@given(st.lists(texts, max_size=4))
def test_counting_segments_alone_gives_the_same_counts(documents):
    array = buffers(pa.array(documents, pa.string()))
    everything, few = (
        count_words(array).quality,
        count_words(array, words=False, marks=False).quality,
    )
    assert few.segments.tolist() == everything.segments.tolist()
    assert few.chars.tolist() == everything.chars.tolist()
    assert few.newlines.tolist() == everything.newlines.tolist()


@pytest.mark.parametrize(("by_space", "words"), [(False, naive_words), (True, spaced_words)])
@given(documents=st.lists(texts, max_size=4))
@example(
    documents=["......", ". ..", "....…....", "a....b", ".\u0301..", "a###b ##", "\n\n\r\n\r\x85"]
)
@example(documents=["with", "have", "and that", "withal", "The", "to,be", "and/or of"])
@example(documents=["a b a b a b a b c d", "a " * 40, "a b c d e " * 9, "x a x a a x a a a x"])
@example(documents=["a.b a .b a. b"])  # the same characters, other words
@example(documents=["a \x00b a a \x00b \x00\x00c", "abcdefg abcdefgh abcdefghi " * 3])
def test_counts_equal_the_naive_counts(documents, by_space, words):
    counted = count_words(
        buffers(pa.array(documents, pa.string())), by_space=by_space, repeated=True
    )
    assert by_document(counted.quality) == [naive(text, words) for text in documents]
    assert counted.repeated_chars.T.tolist() == [
        naive_repeated_chars([segment for segment, _ in words(text)]) for text in documents
    ]


@given(st.lists(texts, max_size=3), st.booleans())
def test_counts_do_not_depend_on_the_other_counts_requested(documents, by_space):
    array = buffers(pa.array(documents, pa.string()))
    everything = count_words(array, by_space=by_space, repeated=True).quality
    without_marks = count_words(array, by_space=by_space, marks=False)
    marks = {"hashes", "ellipses", "lines", "bullet_lines", "ellipsis_lines"}
    assert without_marks.repeated_chars.shape == (0, len(documents))
    for name, column, expected in zip(COUNTS, without_marks.quality, everything, strict=True):
        assert column.tolist() == ([0] * len(documents) if name in marks else expected.tolist())


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()])
def test_slices_and_nulls(type_):
    array = pa.array(["of", None, "to be", "with", "", "# the..."], type_)
    assert counts(array[2:]) == [naive(text or "") for text in array[2:].to_pylist()]
    chunked = pa.chunked_array([array[:1], array[3:]])
    assert counts(chunked) == [naive(text or "") for text in chunked.to_pylist()]
    assert buffers(array).valid.tolist() == [True, False, True, True, True, True]
    assert buffers(array[2:]).valid is None


@pytest.mark.parametrize("array", [
    pa.array([], pa.string()),
    pa.array([None, None], pa.string()),
    pa.array(["", ""]),
    pa.array(["a"])[1:],
    pa.nulls(2),
])  # fmt: skip
def test_empty_documents_have_counts_of_0(array):
    counted = count_words(buffers(array), repeated=True)
    assert all(column.tolist() == [0] * len(array) for column in counted.quality)
    assert counted.repeated_chars.shape == (len(TOP) + len(DUPLICATE), len(array))
    assert not counted.repeated_chars.any()


def test_a_document_of_many_blocks_is_counted():
    text = "To be, or not to be... " * 5000
    assert counts(pa.array([text])) == [
        {"segments": 40_000, "words": 30_000, "alpha_words": 30_000, "word_chars": 65_000,
         "stop_words": 2, "hashes": 0, "ellipses": 5000, "chars": len(text), "newlines": 0,
         "lines": 1, "bullet_lines": 0, "ellipsis_lines": 1}
    ]  # fmt: skip
    assert counts(pa.array([text]), by_space=True) == [naive(text, spaced_words)]


@pytest.mark.parametrize("by_space", [False, True])
def test_buffers_grow_for_long_documents(by_space):
    words = [f"w{k * k % 7919}" for k in range(15_000)]
    documents = ["a b\n" * 3, " ".join(words), " ".join(words[:9000] * 2), "b a\n" * 5]
    counted = count_words(buffers(pa.array(documents)), by_space=by_space, repeated=True)
    assert counted.repeated_chars.T.tolist() == [
        naive_repeated_chars(text.split()) for text in documents
    ]


@given(st.binary(max_size=40))
def test_invalid_utf8_does_not_affect_other_documents(junk):
    several = [junk, b"the end", junk[: len(junk) // 2], b"\xe2\x80", b"the end"]
    offsets = pa.py_buffer(np.cumsum([0, *map(len, several)], dtype=np.int32))
    array = pa.Array.from_buffers(pa.string(), 5, [None, offsets, pa.py_buffer(b"".join(several))])
    rows = counts(array)
    assert rows[1] == rows[4] == naive("the end")
