"""Repeated n-grams of words against sets and counters of tuples of strings."""

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import count_chars
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.jit import kernel
from etl.kernels.signals.repeated_ngrams import (
    DUPLICATE,
    TOP,
    NgramBuffers,
    add_words,
    double_buffers,
    new_ngram_buffers,
    repeated_chars,
)
from etl.kernels.words.uax29 import CHARS, END, START
from tests.helpers.naive_signals import naive_repeated_chars
from tests.helpers.tricky_text import TRICKY

words = st.sampled_from(["a", "b", "ab", "é", "東", ".", '"', "w" * 20])
runs = st.lists(words, min_size=1, max_size=12)
documents = st.lists(words, max_size=60) | st.lists(
    st.tuples(runs, st.integers(1, 4)), max_size=6
).map(lambda repeats: [word for run, times in repeats for word in run * times])


@kernel
def append(data, block, buffers, num_words):
    add_words(data, block, len(block), buffers, num_words)


def repeated(document: list[str], block_size: int) -> list[int]:
    """Pass a document to the kernel in blocks of segments."""
    data, end = np.frombuffer("".join(document).encode() + bytes(64), np.uint8), 0
    block = np.zeros((len(document), 4), np.int64)
    for row, word in zip(block, document, strict=True):
        row[START], row[END], row[CHARS] = end, end + len(word.encode()), len(word)
        end = row[END]
    arrays: NgramBuffers = new_ngram_buffers(block_size)
    for start in range(0, len(document), block_size):
        part = block[start : start + block_size]
        if start + len(part) > len(arrays.firsts):
            arrays = double_buffers(arrays, start)
        append(data, part, arrays, start)
    out = np.zeros(len(TOP + DUPLICATE), np.int64)
    repeated_chars(arrays, len(document), out)
    return out.tolist()


@given(documents, st.integers(1, 9))
@example(["a"] * 40, 8)
@example(["a"] * 200, 9)
@example([*"abcdefghijk" * 9, *"abcdefghij" * 9], 9)
@example([*"abcabcabcabcabcdabcd"], 4)
def test_repeated_chars_are_those_of_counters(document, block_size):
    assert repeated(document, block_size) == naive_repeated_chars(document)


@given(st.lists(st.text(st.sampled_from(TRICKY), max_size=80) | st.text(max_size=60), max_size=4))
def test_chars_are_those_of_python(documents):
    counts = count_chars(buffers(pa.array(documents, pa.string()))).tolist()
    assert counts == [len(text) for text in documents]
