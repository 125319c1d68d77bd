"""Repeated n-grams, lines and paragraphs against lists, sets and counters of strings."""

from collections import Counter
from itertools import groupby

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import count_chars
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing.equal_keys import TABLE_ROOM, number
from etl.kernels.signals import line_counts
from etl.kernels.signals.repeated_ngrams import DUPLICATE, TOP
from etl.kernels.words.spacy_english import SENTENCE_ENDS
from tests.kernels.test_words import TRICKY

pieces = st.sampled_from(
    ["a ", "b ", "ab ", "a.", "é-", "東", "\n", " \n", "\r", "\r\n\n", "\u2029", "x" * 30, '."']
)
repeats = st.lists(pieces, max_size=6).map("".join)
texts = (
    st.lists(pieces, max_size=60).map("".join)
    | st.lists(repeats | st.just("a b a b c "), max_size=20).map("".join)
    | st.text(st.sampled_from(TRICKY), max_size=40)
    | st.text(max_size=60)
)


ENDS = {chr(point) for first, last in SENTENCE_ENDS for point in range(first, last + 1)}


def naive_repeated_chars(words: list[str]) -> list[int]:
    """Of a document with these segments; ``test_counts`` uses it."""
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


def naive_lines(text: str) -> list[str]:
    *ended, last = text.split("\n")
    return [*(line.removesuffix("\r") for line in ended), last]


def naive_counts(text: str) -> dict[str, int]:
    lines = [line for line in naive_lines(text) if line]
    ends = [""] * text.startswith("\n") + [""] * text.endswith("\n")
    full = [line for line in lines if line.strip()]
    runs = [list(run) for full, run in groupby(naive_lines(text), key=bool) if full]
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


def counts(array) -> list[dict[str, int]]:
    found = line_counts.count(buffers(array)).T.tolist()
    of_lines = line_counts.count(buffers(array), paragraphs=False).T.tolist()
    assert of_lines == [[*row[:3], 0, 0, 0, *row[6:]] for row in found]
    return [dict(zip(line_counts.COUNTS, row, strict=True)) for row in found]


@given(st.lists(texts, max_size=4))
@example(["a\nb\n\na\nb\n \na\n\nb", "a\n\u2029b\r\n\r\n a \r\n", "x." * 15, "x." * 15 + "x。"])
@example(["\n", "\n\n", "a\n", "\na", "\r\na\r\n\r\na\r", "a\r", "\r", " \n \n", "a\"\nb'\nc. "])
def test_counts_are_those_of_sets(documents):
    assert counts(pa.array(documents, pa.string())) == [naive_counts(text) for text in documents]


@given(st.lists(texts, max_size=4))
def test_chars_are_those_of_python(documents):
    found = count_chars(buffers(pa.array(documents, pa.string()))).tolist()
    assert found == [len(text) for text in documents]


@pytest.mark.parametrize("character", sorted(ENDS))
def test_every_end_of_a_sentence(character):
    (found,) = counts(pa.array([f"a{character} \na{character}\n{character}\r\nb"]))
    assert (found["terminal_lines"], found["full_lines"]) == (2, 4)


@given(st.lists(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), max_size=40))
def test_numbers_are_the_first_of_the_equal(keys):
    size = len(keys)
    firsts, equal = np.empty(size, np.int32), np.empty(size, np.int32)
    table = np.empty(TABLE_ROOM * max(1, size), np.int32)
    number(np.array(keys, np.int64), size, firsts, equal, table)
    assert firsts.tolist() == [keys.index(key) for key in keys]
    assert equal.tolist() == [
        keys.count(key) if keys.index(key) == k else 0 for k, key in enumerate(keys)
    ]


@pytest.mark.parametrize("array", [
    pa.array([], pa.string()),
    pa.array([None, None], pa.string()),
    pa.array(["", ""]),
    pa.array(["a a a\na"])[1:],
])  # fmt: skip
def test_nothing_to_count(array):
    found = line_counts.count(buffers(array))
    assert found.shape == (len(line_counts.COUNTS), len(array))
    assert not found.any()


def test_slices():
    array = pa.array(["x", "a b\na b\n\nc", None, "a b\n\na b"])[1:]
    documents = [text or "" for text in array.to_pylist()]
    assert counts(array) == [naive_counts(text) for text in documents]


def test_long_documents_make_room_for_themselves():
    words = [f"w{k * k % 7919}" for k in range(9000)]  # 9,000 words, 3,000 lines
    lines = [" ".join(words[k : k + 3]) for k in range(0, 9000, 3)]
    documents = ["a b\n" * 3, "\n".join(lines), "\n\n".join(lines), "b a\n" * 5]
    array = pa.array(documents)
    assert counts(array) == [naive_counts(text) for text in documents]
