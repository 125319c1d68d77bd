"""CutRanges to cut against sets of bytes and lists of characters."""

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.cut_ranges import CutRanges, count_range_chars, merge_ranges, snap_ranges
from etl.kernels.bytes.utf8 import texts as buffers
from tests.helpers.naive_substrings import runs, snapped
from tests.helpers.tricky_text import TRICKY

rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(1, 9), st.integers(0, 3))
)
characters = st.sampled_from([*"ab é東😀 \n", "\u3000", *TRICKY])
some_texts = st.text(characters, max_size=40) | st.text("ab é", min_size=100, max_size=300)


def ranges(found):
    numbers = np.array(found, np.int64).reshape(-1, 4)
    return CutRanges(numbers[:, 0], numbers[:, 1], numbers[:, 1] + numbers[:, 2], numbers[:, 3])


@given(rows, st.randoms())
def test_merged_ranges_have_the_same_bytes(found, rng):
    merged = merge_ranges(ranges(found))
    for document in range(4):
        mask = [False] * 40
        for _, start, size, _ in (row for row in found if row[0] == document):
            mask[start : start + size] = [True] * size
        of_document = merged.documents == document
        bounds = zip(merged.starts[of_document], merged.ends[of_document], strict=True)
        assert [*bounds] == runs(mask)
    starts = {(d, s): min(k for e, t, _, k in found if (e, t) == (d, s)) for d, s, _, _ in found}
    for document, start, keeper in zip(merged[0], merged[1], merged[3], strict=True):
        assert keeper == starts[document, start]
    rng.shuffle(found)
    for one, other in zip(merge_ranges(ranges(found)), merged, strict=True):
        assert one.tolist() == other.tolist()


@given(st.lists(st.tuples(some_texts, st.data()), max_size=3), st.booleans())
def test_snapped_ranges_match_lists_of_characters(drawn, words):
    found, expected = [], []
    for number, (text, data) in enumerate(drawn):
        size = len(text.encode())
        mask = [False] * size
        for _ in range(data.draw(st.integers(0, 3))) if size else ():
            start = data.draw(st.integers(0, size - 1))
            end = data.draw(st.integers(start + 1, size))
            mask[start:end] = [True] * (end - start)
        for start, end in runs(mask):
            found.append((number, start, end - start, 7))
            low, high = snapped(text, start, end, words=words)
            expected += [(number, low, high)] if low < high else []
    array = pa.array(["x", *(text for text, _ in drawn), "y"], pa.string())[1:-1]
    texts = buffers(array)
    whole = ranges(found)
    first = np.searchsorted(whole.documents, np.arange(len(drawn) + 1))
    cut = snap_ranges(texts, first, whole, words=words)
    assert [*zip(cut.documents, cut.starts, cut.ends, strict=True)] == expected
    first = np.searchsorted(cut.documents, np.arange(len(drawn) + 1))
    chars = [0] * len(drawn)
    for number, low, high in expected:
        chars[number] += len(drawn[number][0].encode()[low:high].decode())
    assert count_range_chars(texts, first, cut).tolist() == chars


@given(st.text("ab é\n", min_size=150, max_size=400), st.data())
@example("a" * 300, None)
def test_words_on_both_sides_are_not_joined(text, data):
    size = len(text.encode())
    start = 70 if data is None else data.draw(st.integers(0, size - 1))
    end = size - 70 if data is None else data.draw(st.integers(start + 1, size))
    cut = snap_ranges(
        buffers(pa.array([text])),
        np.array([0, 1]),
        ranges([(0, start, end - start, 0)]),
        words=True,
    )
    for low, high in zip(cut.starts, cut.ends, strict=True):
        rest = text.encode()[:low].decode() + text.encode()[high:].decode()
        whole = max(map(len, text.split()), default=0)
        assert max(map(len, rest.split()), default=0) <= whole or whole > 64


@given(st.text("ab é\n", min_size=2, max_size=300), st.data(), st.booleans())
def test_a_part_of_a_range_is_not_larger_after_it_is_snapped(text, data, words):
    """Documents of which enough remains must stay when less is cut from them."""
    size = len(text.encode())
    start, low, high, end = sorted(data.draw(st.integers(0, size)) for _ in range(4))
    array = buffers(pa.array([text]))
    whole, part = (
        snap_ranges(array, np.array([0, 1]), ranges([(0, a, b - a, 0)]), words=words)
        for a, b in ((start, end), (low, high))
    )
    if len(part.starts):
        assert whole.starts[0] <= part.starts[0] < part.ends[0] <= whole.ends[0]
