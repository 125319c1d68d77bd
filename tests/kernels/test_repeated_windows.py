"""Anchors, chunks and windows of texts against a dictionary of all windows."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing.equal_chunks import compare_chunks, may_share_windows
from etl.kernels.hashing.window_anchors import LOCAL, find_anchors
from tests.helpers.cut_by_kernels import described, encoded, masks
from tests.helpers.naive_substrings import corpora, corpus, cut_masks, repeated_windows


@given(corpora(), st.integers(0, 2**32), st.booleans())
@example((["-" * 40 + " " * 40, "=" * 40 + " " * 40, "x" + "-" * 21], 20), 0, False)
@example((["-" * 40, "=" * 40], 20), 0, True)
def test_the_same_bytes_are_cut_as_with_all_windows(drawn, seed, by_hash):
    documents, size = drawn

    def order(n):
        return np.random.default_rng(seed).permutation(n)

    assert masks(documents, size, order, by_hash=by_hash) == cut_masks(encoded(documents), size)


@pytest.mark.parametrize("size", [64, 500])
def test_planted_repeats_of_every_length_around_the_limit(size):
    rng = random.Random(size)
    letters = "abcdefghij klmnopqrst"
    source = "".join(rng.choices(letters, k=4 * size))
    for length in range(size - 3, size + 4):
        start = rng.randrange(3 * size - 4)
        piece = source[start : start + length]
        copies = [f"A{piece}", f"é{piece}東", f"{piece}B{piece}"]
        expected = cut_masks(encoded([source, *copies]), size)
        assert masks([source, *copies], size) == expected
        assert [any(mask) for mask in expected] == [False] + 3 * [length >= size]


@pytest.mark.parametrize("seed", range(4))
def test_long_windows(seed):
    documents = corpus(random.Random(seed), 500)
    assert masks(documents, 500) == cut_masks(encoded(documents), 500)


@given(corpora())
def test_intervals_partition_the_windows_and_equal_windows_have_equal_keys(drawn):
    documents, size = drawn
    intervals, keys, chunks, _ = described(documents)(size)
    assert (intervals.counts > 0).all()
    windows = np.bincount(intervals.documents, intervals.counts, len(documents))
    assert windows.tolist() == [max(0, len(d) - size + 1) for d in encoded(documents)]
    seen: dict[bytes, int] = {}
    repeats = [
        {start for start, _, _ in found} for found in repeated_windows(encoded(documents), size)
    ]
    for document, start, count, key, chunk in zip(*intervals, keys, chunks, strict=True):
        for window in range(start, start + count):
            if chunk == LOCAL:
                assert window in repeats[document]
            else:
                text = encoded(documents)[document][window : window + size]
                assert seen.setdefault(text, key) == key
        assert chunk % 2 == 0


@given(corpora(), st.text(max_size=30), st.text(max_size=30))
def test_anchors_are_a_function_of_one_text(drawn, before, after):
    documents, size = drawn
    array = pa.array([before, *documents, None, after], pa.string())[1:-1]
    whole = find_anchors(buffers(array), size)
    assert whole.first[-1] == whole.first[-2]
    for k, document in enumerate(documents):
        alone = find_anchors(buffers(pa.array([document])), size)
        part = slice(whole.first[k], whole.first[k + 1])
        assert whole.keys[part].tolist() == alone.keys.tolist()
        assert whole.chunks[part].tolist() == alone.chunks.tolist()
        assert whole.counts[part].tolist() == alone.counts.tolist()
        assert whole.cores[part].tolist() == alone.cores.tolist()


@pytest.mark.parametrize(("common", "least", "most"), [(400, 0, 4), (650, 60, 80)])
def test_intervals_without_common_windows_are_not_asked_for(common, least, most):
    """Twenty pairs of texts have so many bytes in common; windows have 500. Small hashes may be equal."""
    rng = random.Random(common)
    pieces = ["".join(rng.choices("abcdefghij ", k=common)) for _ in range(20)]
    own = ("".join(rng.choices("klmnopqrst", k=900)) for _ in range(80))
    texts = [f"{next(own)}{piece}{next(own)}" for piece in pieces for _ in range(2)]
    intervals, keys, chunks, cores = described(texts)(500)
    matches = compare_chunks(keys, chunks, intervals)
    different = (matches.chunks_of_key > 1).sum()
    assert different >= 30
    assert least <= may_share_windows(keys, cores, matches).sum() <= most


def test_runs_and_periods_have_few_anchors():
    """One byte, a period and a table of blanks: at most a hundredth of one anchor per window."""
    rng = random.Random(1)
    table = "".join(f"|{rng.randrange(999)}|" + " " * 400 for _ in range(200))
    for text, share in ((" " * 100_000, 0.001), ("abcdefg" * 15_000, 0.01), (table, 0.1)):
        found = find_anchors(buffers(pa.array([text])), 500)
        assert len(found.keys) < share * len(text)


def test_keys_of_the_shipped_kernel_stay_the_same():
    """Anchors are stored in tables: other numbers are another format."""
    found = find_anchors(buffers(pa.array(["The quick brown fox jumps over the lazy dog."])), 32)
    assert found.counts.sum() == 13
    assert [found.keys.tolist()[0], found.chunks.tolist()[0]] == [
        1880477548559709586,
        -2578070980387169142,
    ]
