"""Collapsed white space against ``str.split``."""

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import whitespace
from etl.kernels.bytes.spans import build_strings
from etl.kernels.bytes.utf8 import texts as buffers
from tests.helpers.tricky_text import TRICKY

SPACES = [
    "\t",
    "\n",
    "\r\n",
    "\x1c",
    "\x1f",
    "\x85",
    "\xa0",
    "\u1680",
    "\u2003",
    "\u2028",
    "\u3000",
]
pieces = st.sampled_from(
    [" ", " ", "  ", *SPACES, "a", "word", "é", "\u200b", "東", "😀", "x" * 61]
)
texts = (
    st.lists(pieces, max_size=40).map("".join)
    | st.text(st.sampled_from(TRICKY), max_size=30)
    | st.text(max_size=40)
)


def collapsed(array: pa.Array) -> list[str]:
    result = build_strings(*whitespace.collapse(buffers(array)), None)
    result.validate(full=True)
    return result.to_pylist()


@given(st.lists(texts, max_size=4))
@example(["a " * 40, " " * 70, "a" * 63 + "  b", "a" * 64 + " ", "\u00a0a\u00a0"])
def test_words_are_joined_by_single_blanks(documents):
    array = pa.array(["a  b", *documents, " c "], pa.string())[1:-1]
    assert collapsed(array) == [" ".join(text.split()) for text in documents]


@given(texts)
def test_a_second_pass_changes_nothing(text):
    once = collapsed(pa.array([text]))
    assert collapsed(pa.array(once)) == once


def test_nulls_become_empty_texts():
    assert collapsed(pa.array([None, " a ", None], pa.string())) == ["", "a", ""]
    assert collapsed(pa.array([], pa.string())) == []
