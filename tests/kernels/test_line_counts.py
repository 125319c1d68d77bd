"""Counts of lines and paragraphs against lists and sets of strings."""

from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.signals import line_counts
from etl.kernels.words.spacy_tables import SENTENCE_ENDS
from tests.helpers.tricky_text import TRICKY

pieces = st.sampled_from(
    ["a ", "b ", "ab ", "a.", "é-", "東", "\n", " \n", "\r", "\r\n\n", "\u2029", "x" * 30, '."']
)
repeats = st.lists(pieces, max_size=6).map("".join)
texts = (
    st.lists(pieces, max_size=60).map("".join)
    | st.lists(repeats, max_size=20).map("".join)
    | st.text(st.sampled_from(TRICKY), max_size=40)
    | st.text(max_size=60)
)
ENDS = {chr(point) for first, last in SENTENCE_ENDS for point in range(first, last + 1)}


def naive_lines(text: str) -> list[str]:
    *ended, last = text.split("\n")
    return [*(line.removesuffix("\r") for line in ended), last]


def naive_counts(text: str) -> dict[str, int]:
    lines = [line for line in naive_lines(text) if line]
    ends = [""] * text.startswith("\n") + [""] * text.endswith("\n")
    full = [line for line in lines if line.strip()]
    runs = [list(run) for is_text, run in groupby(naive_lines(text), key=bool) if is_text]
    blocks = ["\n".join(run) for run in runs]
    return {
        "lines": len(lines + ends),
        "duplicate_lines": len(lines + ends) - len({*lines, *ends}),
        "duplicate_line_chars": sum(map(len, lines)) - sum(map(len, set(lines))),
        "paragraphs": len(blocks),
        "duplicate_paragraphs": len(blocks) - len(set(blocks)),
        "duplicate_paragraph_chars": sum(map(len, blocks)) - sum(map(len, set(blocks))),
        "full_lines": len(full),
        "terminal_lines": sum(line[-1] in ENDS for line in full),
        "quoted_lines": sum(line[-1] in {*ENDS, '"', "'"} for line in full),
        "short_lines": sum(len(line) <= 30 for line in full),
        "duplicate_full_line_chars": sum(map(len, full)) - sum(map(len, set(full))),
        "chars": len(text),
        "feeds": text.count("\n"),
    }


def counts(array: pa.Array) -> list[dict[str, int]]:
    every = line_counts.count_lines(buffers(array))
    of_lines = line_counts.count_lines(buffers(array), paragraphs=False)
    for name in every._fields:
        expected = getattr(every, name).tolist()
        if "paragraph" in name:
            expected = [0] * len(array)
        assert getattr(of_lines, name).tolist() == expected
    columns = [column.tolist() for column in every]
    return [dict(zip(every._fields, row, strict=True)) for row in zip(*columns, strict=True)]


@given(st.lists(texts, max_size=4))
@example(["a\nb\n\na\nb\n \na\n\nb", "a\n\u2029b\r\n\r\n a \r\n", "x." * 15, "x." * 15 + "x。"])
@example(["\n", "\n\n", "a\n", "\na", "\r\na\r\n\r\na\r", "a\r", "\r", " \n \n", "a\"\nb'\nc. "])
def test_counts_are_those_of_sets(documents):
    assert counts(pa.array(documents, pa.string())) == [naive_counts(text) for text in documents]


@pytest.mark.parametrize("character", sorted(ENDS))
def test_a_line_is_terminated_by_every_character_that_ends_a_sentence(character):
    (row,) = counts(pa.array([f"a{character} \na{character}\n{character}\r\nb"]))
    assert (row["terminal_lines"], row["full_lines"]) == (2, 4)


@pytest.mark.parametrize("array", [
    pa.array([], pa.string()),
    pa.array([None, None], pa.string()),
    pa.array(["", ""]),
    pa.array(["a a a\na"])[1:],
])  # fmt: skip
def test_empty_texts_count_as_zero(array):
    for column in line_counts.count_lines(buffers(array)):
        assert column.tolist() == [0] * len(array)


def test_slices_are_counted_without_the_rest_of_their_buffers():
    array = pa.array(["x", "a b\na b\n\nc", None, "a b\n\na b"])[1:]
    documents = [text or "" for text in array.to_pylist()]
    assert counts(array) == [naive_counts(text) for text in documents]


def test_buffers_grow_for_long_documents():
    words = [f"w{k * k % 7919}" for k in range(9000)]  # 9,000 words, 3,000 lines
    lines = [" ".join(words[k : k + 3]) for k in range(0, 9000, 3)]
    documents = ["a b\n" * 3, "\n".join(lines), "\n\n".join(lines), "b a\n" * 5]
    assert counts(pa.array(documents)) == [naive_counts(text) for text in documents]
