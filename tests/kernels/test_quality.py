"""The counts of Gopher's rules against Python's own string methods."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels import unicode as u
from etl.kernels.lines import next_line, strip
from etl.kernels.quality import COUNTS, STOP_WORDS, count
from etl.kernels.utf8 import class_at
from etl.kernels.utf8 import texts as buffers
from tests.kernels.test_words import TRICKY, naive_segments

pieces = st.sampled_from(
    [*STOP_WORDS, *TRICKY, "...", "- ", "• ", "\r\n", " The ", "withal", " of "]
)
texts = st.lists(pieces, max_size=30).map("".join) | st.text(max_size=60)


def naive_counts(text: str) -> dict[str, int]:
    segments, lines = naive_segments(text), text.splitlines()
    kinds = {char: int(u.classes()[ord(char)]) for char in text}
    letters = {c for c, kind in kinds.items() if kind in (u.LETTER, u.HEBREW, u.KATAKANA, u.UNIT)}
    digits = {c for c, kind in kinds.items() if kind in (u.DIGIT, u.NUMBER)}
    words = [segment for segment in segments if set(segment) & (letters | digits)]
    return {
        "segments": len(segments),
        "words": len(words),
        "alpha_words": sum(bool(set(word) & letters) for word in words),
        "word_chars": sum(map(len, words)),
        "hashes": text.count("#"),
        "ellipses": text.count("...") + text.count("…"),
        "stop_words": len(set(words) & set(STOP_WORDS)),
        "lines": len(lines),
        "bullet_lines": sum(line.lstrip().startswith(("-", "•")) for line in lines),
        "ellipsis_lines": sum(line.rstrip().endswith(("...", "…")) for line in lines),
        "chars": len(text),
    }


def counts(array) -> list[dict[str, int]]:
    return [dict(zip(COUNTS, row, strict=True)) for row in count(buffers(array)).T.tolist()]


@given(st.lists(texts, max_size=5))
@example(["......", ". ..", "....…....", "a....b", ".\u0301.."])
@example(["with", "have", "and that", "withal", "The"])
def test_counts_are_those_of_python(documents):
    assert counts(pa.array(documents, pa.string())) == [naive_counts(text) for text in documents]


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()])
def test_slices_and_nulls(type_):
    array = pa.array(["of", None, "to be", "with", "", "# the..."], type_)
    assert counts(array[2:]) == [naive_counts(text or "") for text in array[2:].to_pylist()]
    chunked = pa.chunked_array([array[:1], array[3:]])
    assert counts(chunked) == [naive_counts(text or "") for text in chunked.to_pylist()]
    assert buffers(array).valid.tolist() == [True, False, True, True, True, True]
    assert buffers(array[2:]).valid is None


@pytest.mark.parametrize("array", [
    pa.array([], pa.string()),
    pa.array([None, None], pa.string()),
    pa.array(["", ""]),
    pa.array(["a"])[1:],
    pa.nulls(2),
])  # fmt: skip
def test_nothing_to_count(array):
    assert counts(array) == [naive_counts("")] * len(array)


@given(st.binary(max_size=30))
def test_no_byte_outside_is_read(junk):
    """The same functions uncompiled, where numpy checks every index."""
    data = np.frombuffer(junk, np.uint8)
    for at in range(len(data)):
        kind, width = class_at.py_func(data, at, len(data), u.classes())
        assert (kind, width) == class_at(data, at, len(data), u.classes())
        assert at + width <= len(data)
    line = next_line.py_func(data, 0, len(data))
    assert line == next_line(data, 0, len(data))
    stripped = strip.py_func(data, 0, len(data), u.classes())
    assert stripped == strip(data, 0, len(data), u.classes())
    assert 0 <= stripped[0] <= stripped[1] <= len(data)


def test_a_long_document_takes_many_blocks():
    text = "To be, or not to be... " * 5000
    assert counts(pa.array([text])) == [
        {"segments": 50_000, "words": 30_000, "alpha_words": 30_000, "word_chars": 65_000,
         "hashes": 0, "ellipses": 5000, "stop_words": 2, "lines": 1, "bullet_lines": 0,
         "ellipsis_lines": 1, "chars": len(text)}
    ]  # fmt: skip
