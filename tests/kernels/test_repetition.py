"""Repeated n-grams, lines and paragraphs against lists, sets and counters of strings."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels import paragraphs
from etl.kernels.numbering import number
from etl.kernels.repetition import DUPLICATE, TOP, repeated_chars
from etl.kernels.utf8 import count_chars
from etl.kernels.utf8 import texts as buffers
from tests.kernels.test_words import TRICKY, naive_segments

pieces = st.sampled_from(
    ["a ", "b ", "ab ", "a.", "é-", "東", "\n", " \n", "\r\n\n", "\u2029", "x" * 30]
)
repeats = st.lists(pieces, max_size=6).map("".join)
texts = (
    st.lists(pieces, max_size=60).map("".join)
    | st.lists(repeats | st.just("a b a b c "), max_size=20).map("".join)
    | st.text(st.sampled_from(TRICKY), max_size=40)
    | st.text(max_size=60)
)


def naive_repeated_chars(text: str, split=naive_segments) -> list[int]:
    words = split(text)
    return [*(naive_top(words, n) for n in TOP), *(naive_duplicates(words, n) for n in DUPLICATE)]


def naive_top(words: list[str], n: int) -> int:
    counts = Counter(tuple(words[k : k + n]) for k in range(len(words) - n + 1))
    return max([0, *(len(" ".join(gram)) * count for gram, count in counts.most_common(1))])


def naive_duplicates(words: list[str], n: int) -> int:
    seen, chars, at = set(), 0, 0
    while at + n <= len(words):
        gram = tuple(words[at : at + n])
        if gram in seen:
            chars += len("".join(gram))
            at += n
        else:
            seen.add(gram)
            at += 1
    return chars


def naive_counts(text: str) -> dict[str, int]:
    lines: list[str] = []
    runs: list[list[str]] = [[]]
    for line in map(str.strip, text.splitlines()):
        if line:
            lines.append(line)
            runs[-1].append(line)
        else:
            runs.append([])
    blocks = ["\n".join(block) for block in runs if block]
    return {
        "lines": len(lines),
        "terminal_lines": sum(line.endswith(tuple(paragraphs.TERMINAL)) for line in lines),
        "short_lines": sum(len(line) <= 30 for line in lines),
        "duplicate_lines": len(lines) - len(set(lines)),
        "duplicate_line_chars": sum(map(len, lines)) - sum(map(len, set(lines))),
        "paragraphs": len(blocks),
        "duplicate_paragraphs": len(blocks) - len(set(blocks)),
        "duplicate_paragraph_chars": sum(map(len, blocks)) - sum(map(len, set(blocks))),
    }


def counts(array) -> list[dict[str, int]]:
    found = paragraphs.count(buffers(array)).T.tolist()
    return [dict(zip(paragraphs.COUNTS, row, strict=True)) for row in found]


@given(st.lists(texts, max_size=4))
@example(["a b a b a b a b c d", "a " * 40, "a b c d e " * 9, "x a x a a x a a a x"])
@example(["a.b a .b a. b"])  # the same characters, other words
def test_repeated_chars_are_those_of_counters(documents):
    found = repeated_chars(buffers(pa.array(documents, pa.string()))).T.tolist()
    assert found == [naive_repeated_chars(text) for text in documents]


@given(st.lists(texts, max_size=4))
@example(["a\nb\n\na\nb\n \na\n\nb", "a\n\u2029b\r\n\r\n a \r\n", "x." * 15, "x." * 15 + "x。"])
def test_counts_are_those_of_sets(documents):
    assert counts(pa.array(documents, pa.string())) == [naive_counts(text) for text in documents]


@given(st.lists(texts, max_size=4))
def test_chars_are_those_of_python(documents):
    found = count_chars(buffers(pa.array(documents, pa.string()))).tolist()
    assert found == [len(text) for text in documents]


@pytest.mark.parametrize("character", paragraphs.TERMINAL)
def test_every_end_of_a_sentence(character):
    assert counts(pa.array([f"a{character} \nb"])) == [naive_counts(f"a{character}\nb")]
    assert naive_counts(f"a{character}")["terminal_lines"] == 1


@given(st.lists(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), max_size=40))
def test_numbers_are_the_first_of_the_equal(keys):
    size = len(keys)
    firsts, equal = np.empty(size, np.int32), np.empty(size, np.int32)
    table = np.empty(max(8, 4 * size), np.int32)
    number(np.array(keys, np.int64), size, firsts, equal, table)
    assert firsts.tolist() == [keys.index(key) for key in keys]
    assert equal.tolist() == [
        keys.count(key) if keys.index(key) == k else 0 for k, key in enumerate(keys)
    ]


@pytest.mark.parametrize("array", [
    pa.array([], pa.string()),
    pa.array([None, None], pa.string()),
    pa.array(["", "\n\n"]),
    pa.array(["a a a\na"])[1:],
])  # fmt: skip
def test_nothing_to_count(array):
    assert not repeated_chars(buffers(array)).any()
    assert not paragraphs.count(buffers(array)).any()
    assert repeated_chars(buffers(array)).shape[1] == paragraphs.count(buffers(array)).shape[1]


def test_slices():
    array = pa.array(["x", "a b\na b\n\nc", None, "a b\n\na b"])[1:]
    documents = [text or "" for text in array.to_pylist()]
    assert counts(array) == [naive_counts(text) for text in documents]
    found = repeated_chars(buffers(array)).T.tolist()
    assert found == [naive_repeated_chars(text) for text in documents]


def test_long_documents_make_room_for_themselves():
    words = [f"w{k * k % 7919}" for k in range(9000)]  # 9,000 words, 3,000 lines
    lines = [" ".join(words[k : k + 3]) for k in range(0, 9000, 3)]
    documents = ["a b\n" * 3, "\n".join(lines), "\n\n".join(lines), "b a\n" * 5]
    array = pa.array(documents)
    assert counts(array) == [naive_counts(text) for text in documents]
    assert repeated_chars(buffers(array)).T.tolist() == [
        naive_repeated_chars(text, str.split) for text in documents
    ]
