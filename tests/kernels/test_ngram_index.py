"""Look-ups of n-grams in a set, against sets of tuples of strings."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing import ngram_index
from tests.helpers.naive_uax29 import naive_segments
from tests.helpers.tricky_text import documents


def naive_words(text: str) -> list[str]:
    """Split a text into words in lower case, without the punctuation inside them."""
    words = []
    for segment in naive_segments(text):
        kinds = [int(character_classes.classes()[ord(char)]) for char in segment]
        if not any(
            kind
            in (
                *range(character_classes.UNIT, character_classes.REGIONAL),
                *range(character_classes.LETTER, character_classes.JOINER),
            )
            for kind in kinds
        ):
            continue
        chars = (
            char.lower()[0].replace("ς", "σ")
            for char, kind in zip(segment, kinds, strict=True)
            if kind == character_classes.MARK or kind < character_classes.JOINER
        )
        words.append("".join(chars))
    return words


def naive_set(items: list[str], n: int, least: int) -> set[tuple[str, ...]]:
    runs = set()
    for words in map(naive_words, items):
        if len(words) >= n:
            runs |= {tuple(words[k : k + n]) for k in range(len(words) - n + 1)}
        elif len(words) >= least:
            runs.add(tuple(words))
    return runs


def naive_hits(text: str, known: set[tuple[str, ...]]) -> list[tuple[str, ...]]:
    words = naive_words(text)
    runs = (
        tuple(words[k : k + n]) for k in range(len(words)) for n in range(1, len(words) - k + 1)
    )
    return [run for run in runs if run in known]


def index(groups: list[list[str]], n: int, least: int) -> ngram_index.Grams:
    items = pa.array([item for group in groups for item in group], pa.string())
    group_of = np.repeat(np.arange(len(groups), dtype=np.uint8), [len(group) for group in groups])
    return ngram_index.build_index(buffers(items), group_of, words=n, short_words=least)


@given(
    st.lists(st.lists(documents, max_size=4), min_size=1, max_size=3),
    st.lists(documents, max_size=4),
    st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
)
@example([["a b c d"], ["b c"]], ["x A b. C, d e a b c d", "b-c", "b c d"], (3, 2))
@example([["İstanbul Ⱥ ΟΔΟΣ"]], ["istanbul ⱥ οδος"], (3, 3))
def test_hits_are_those_of_sets(groups, texts, sizes):
    n, least = sizes
    known = index(groups, n, least)
    hits, firsts = ngram_index.count_ngrams(
        buffers(pa.array(texts, pa.string())), known, len(groups)
    )
    for group, items in enumerate(groups):
        expected = [naive_hits(text, naive_set(items, n, least)) for text in texts]
        assert hits[group].tolist() == [len(runs) for runs in expected]
        for gram, runs in zip(firsts[group], expected, strict=True):
            assert (gram >= 0) == bool(runs)
            assert not runs or tuple(ngram_index.text_of(known, gram).split(" ")) in runs


@given(st.lists(documents, max_size=4))
def test_an_item_is_found_in_itself(items):
    known = index([items], 3, 1)
    hits, _ = ngram_index.count_ngrams(buffers(pa.array(items, pa.string())), known, 1)
    assert [int(hit) > 0 for hit in hits[0]] == [bool(naive_words(item)) for item in items]


@pytest.mark.parametrize("at", [0, 4080, 4094, 4095, 9000])
def test_a_run_across_two_blocks_is_found_once(at):
    words = [f"w{k}" for k in range(9020)]
    known = index([[" ".join(words[at : at + 13])], [" ".join(words[at + 2 : at + 12])]], 13, 8)
    texts = [" ".join(words), " ".join([*words[: at + 12], "x", *words[at + 12 :]]), " " * 9000]
    hits, _ = ngram_index.count_ngrams(buffers(pa.array(texts)), known, 2)
    assert hits.tolist() == [[1, 0, 0], [1, 1, 0]]


def test_a_short_item_at_the_end_of_a_block_is_found_once():
    text = " ".join(f"w{k}" for k in range(4094))
    known = index([[text.rpartition(" w4084 ")[2]]], 13, 8)
    for end in ("", " ", " \n" * 5000, " x"):
        hits, _ = ngram_index.count_ngrams(buffers(pa.array([text + end])), known, 1)
        assert hits.tolist() == [[1]]


def test_a_word_of_megabytes_is_found():
    long = "ab" * 1_500_000
    known = index([[f"x {long} y"]], 3, 3)
    hits, firsts = ngram_index.count_ngrams(
        buffers(pa.array([f"x {long} y", f"x {long}a y"])), known, 1
    )
    assert hits.tolist() == [[1, 0]]
    assert ngram_index.text_of(known, firsts[0, 0]) == f"x {long}"[:4096]


def test_different_words_with_equal_hashes_are_no_hit():
    """Forge an equal hash, so that only the words differ."""
    known = index([["a b c"]], 3, 3)
    data = buffers(pa.array(["x y z"]))
    (other,) = index([["x y z"]], 3, 3).hashes
    upper = int(np.int64(other).view(np.uint64) >> np.uint64(64 - 1))
    forged = known._replace(hashes=np.array([other]), buckets=np.array([0, 1 - upper, 1], np.int32))
    assert len(known.buckets) == len(forged.buckets) == 3
    assert ngram_index.count_ngrams(data, forged, 1)[0].tolist() == [[0]]


def test_a_set_contains_each_ngram_of_a_group_once():
    known = index([["a b c a b c a b c"], ["a b c"]], 3, 3)
    assert len(known.hashes) == 4
    assert not known.has_short


@pytest.mark.parametrize("array", [pa.array([], pa.string()), pa.array([None, None], pa.string())])
def test_empty_texts_and_sets_have_no_hits(array):
    empty = index([[]], 13, 8)
    assert ngram_index.count_ngrams(buffers(array), empty, 1)[0].sum() == 0
    assert ngram_index.count_ngrams(buffers(array), index([["a b c"]], 3, 3), 1)[0].shape == (
        1,
        len(array),
    )
    assert ngram_index.count_ngrams(buffers(pa.array(["a b c"])), empty, 1)[0].tolist() == [[0]]


def test_slices_are_searched_without_the_rest_of_their_buffers():
    array = pa.array(["x", "a b c d", None, "c d a b c"])[1:]
    assert ngram_index.count_ngrams(buffers(array), index([["a b c"]], 3, 3), 1)[0].tolist() == [
        [1, 0, 1]
    ]
