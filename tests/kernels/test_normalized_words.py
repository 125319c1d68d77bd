"""Normalized words against Python's ``str.lower``, character by character."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes as u
from etl.kernels.bytes.hash64 import mix_bits
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.jit import kernel
from etl.kernels.words import normalized_words
from etl.kernels.words.uax29 import next_segments
from tests.helpers.naive_uax29 import kind_of, naive_segments
from tests.helpers.tricky_text import TRICKY, texts

WORD_KINDS = {u.LETTER, u.HEBREW, u.KATAKANA, u.UNIT, u.DIGIT, u.NUMBER}
INSIDE_WORDS = (u.MID_LETTER, u.MID_NUMBER, u.MID_BOTH, u.SINGLE_QUOTE, u.DOUBLE_QUOTE)
DROPPED = {*INSIDE_WORDS, u.JOINER, u.FORMAT, u.ZWJ}
documents = texts | st.text(st.sampled_from(f"{TRICKY}ABΣςİ𝐀𐐀"), max_size=24)


@kernel
def _mix(number):
    return mix_bits(number)


def naive_words(text: str) -> list[str]:
    """The segments with a letter or a digit."""
    return [s for s in naive_segments(text) if WORD_KINDS & {kind_of(char) for char in s}]


def naive_plain(word: str) -> str:
    kept = [char.lower()[0] for char in word if kind_of(char) not in DROPPED]
    return "".join(kept).replace("ς", "σ")


def fnv1a(data: bytes) -> int:
    key = 0xCBF29CE484222325
    for byte in data:
        key = (key ^ byte) * 0x100000001B3 % 2**64
    return key - 2**64 if key >> 63 else key  # as an int64


def words_of(text: str, num_before: int = 0) -> normalized_words.WordBuffers:
    """The words of a text after some others, without those."""
    data, segments = np.frombuffer(text.encode(), np.uint8), np.empty((1000, 4), np.int64)
    _, num = next_segments(data, 0, len(data), u.classes(), segments)
    words = normalized_words.WordBuffers(
        np.zeros(2 * len(data) + 8, np.uint8), np.zeros(1008, np.int64), np.zeros(1008, np.int64)
    )
    num_words = normalized_words.add_words(
        data, segments[:num], normalized_words.fold_table(), words, num_before
    )
    ends = words.ends[num_before : num_words + 1]
    return normalized_words.WordBuffers(
        words.plain[: ends[-1]], ends, words.keys[num_before:num_words]
    )


@given(documents, st.integers(0, 3))
@example("Don’t PANIC_1 3.14 ΟΔΟΣ co\u00adop 東京", 0)
def test_words_are_lower_case_without_punctuation(text, num_before):
    expected = [naive_plain(word) for word in naive_words(text)]
    words = words_of(text, num_before)
    assert words.plain.tobytes().decode() == "".join(f"{word} " for word in expected)
    assert [words.plain[a : b - 1].tobytes().decode() for a, b in pairwise(words.ends)] == expected


@given(documents)
def test_keys_are_hashes_of_the_words(text):
    words = words_of(text)
    hashes = [fnv1a(naive_plain(word).encode()) for word in naive_words(text)]
    assert words.keys.tolist() == [_mix(key) for key in hashes]


@given(st.lists(documents, max_size=4))
def test_sizes_are_those_of_the_words(strings):
    sizes = normalized_words.sizes(buffers(pa.array(strings, pa.string())))
    words = [naive_words(text) for text in strings]
    assert sizes.num_words.tolist() == [len(of_text) for of_text in words]
    assert sizes.word_bytes.tolist() == [len("".join(of_text).encode()) for of_text in words]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True))
def test_mixed_numbers_differ(numbers):
    assert len({_mix(number) for number in numbers}) == len(numbers)
