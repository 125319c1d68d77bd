"""Repeated lines and paragraphs against lists and sets of strings."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.spans import keep_spans
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.lines.repeated import CASE, DIGITS, SPACE, remove_repeats
from tests.helpers.naive_repeats import naive, texts


def without(array, **settings) -> list[tuple[str, int]]:
    spans, repeats = remove_repeats(buffers(array), **settings)
    rest = keep_spans(buffers(array), spans)
    rest.validate(full=True)
    return list(zip(rest.to_pylist(), repeats.tolist(), strict=True))


@given(st.lists(texts, max_size=4), st.booleans(), st.integers(0, 4), st.integers(0, 7))
@example(["a\n\nb\na\n\nc\na", "a\n\na\n", "a\n\na", "\n\na\na\n\n\nb"], False, 0, 0)
@example(["a\nb\n\na\nb\n \na\n\nb", "a\n\n\na\n \na\nb"], True, 2, 0)
@example(["Page 1\nPAGE 22\npage  3", "1 2\n12\n1 \u0663"], False, 0, CASE | SPACE | DIGITS)
def test_the_rest_is_that_of_sets(documents, paragraphs, min_chars, ignore):
    settings = {"paragraphs": paragraphs, "min_chars": min_chars, "ignore": ignore}
    array = pa.array(["a\na", *documents, "b"], pa.string())[1:-1]
    assert without(array, **settings) == [naive(text, **settings) for text in documents]


@given(texts, st.booleans(), st.integers(0, 7))
def test_a_second_pass_removes_nothing(text, paragraphs, ignore):
    settings = {"paragraphs": paragraphs, "min_chars": 0, "ignore": ignore}
    ((once, _),) = without(pa.array([text], pa.string()), **settings)
    assert without(pa.array([once], pa.string()), **settings) == [(once, 0)]


@pytest.mark.parametrize(("min_chars", "rest"), [(3, "éab\nab\nab"), (2, "éab\nab"), (4, None)])
def test_short_lines_are_never_removed(min_chars, rest):
    text = "éab\nab\néab\nab"
    settings = {"paragraphs": False, "min_chars": min_chars, "ignore": 0}
    assert without(pa.array([text]), **settings)[0][0] == (rest or text)


def test_buffers_grow_for_long_documents():
    many = "\n".join(f"line {k * k % 1999}" for k in range(5000))
    documents = ["a\na\n", many, many.replace("\n", "\n\n"), "b"]
    for paragraphs in (False, True):
        settings = {"paragraphs": paragraphs, "min_chars": 0, "ignore": 0}
        assert without(pa.array(documents), **settings) == [naive(t, **settings) for t in documents]
