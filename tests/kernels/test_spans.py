"""Texts built from byte ranges against slices of strings."""

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.spans import Spans, keep_spans, replace_spans
from etl.kernels.bytes.utf8 import texts as buffers

words = st.none() | st.text(st.sampled_from("aé東😀\u0301\u200d\u05d0\n"), max_size=12)
joints = st.sampled_from(["", "\n", "<é>"])


@st.composite
def cuts(draw):
    """Draw documents and, for each, the characters at which spans begin and end."""
    documents = draw(st.lists(words, max_size=5))
    bounds_of = []
    for text in documents:
        bounds = sorted(draw(st.lists(st.integers(0, len(text or "")), max_size=6)))
        bounds_of.append(bounds[: len(bounds) // 2 * 2])
    return documents, bounds_of


def naive_keep(text: str, bounds: list[int], joint: str) -> str:
    return joint.join(text[a:b] for a, b in zip(bounds[::2], bounds[1::2], strict=True))


def naive_replace(text: str, bounds: list[int], mask: str) -> str:
    bounds = [0, *bounds, len(text)]
    return naive_keep(text, bounds, mask)


def spans(documents, bounds_of, array) -> Spans:
    """Return the bounds as bytes of the array's buffer."""
    offsets, starts, ends, first = buffers(array).offsets, [], [], [0]
    for text, bounds, offset in zip(documents, bounds_of, offsets, strict=False):
        in_bytes = [offset + len((text or "")[:char].encode()) for char in bounds]
        starts += in_bytes[::2]
        ends += in_bytes[1::2]
        first.append(len(starts))
    return Spans(np.array(starts, np.int64), np.array(ends, np.int64), np.array(first, np.int64))


@given(cuts(), joints)
@example((["", "a", ""], [[], [0, 0, 1, 1], []]), "<é>")  # empty spans between empty documents
def test_kept_and_replaced_spans_are_those_of_slices(case, joint):
    documents, bounds_of = case
    pairs = list(zip(documents, bounds_of, strict=True))
    array = pa.array(["before", *documents, "after"], pa.string())[1:-1]
    whole = spans(documents, bounds_of, array)
    kept = keep_spans(buffers(array), whole, separator=joint.encode())
    kept.validate(full=True)
    assert kept.type == pa.string()
    assert kept.to_pylist() == [t if t is None else naive_keep(t, b, joint) for t, b in pairs]
    masked = replace_spans(buffers(array), whole, mask=joint.encode())
    masked.validate(full=True)
    assert masked.to_pylist() == [t if t is None else naive_replace(t, b, joint) for t, b in pairs]
    assert whole.counts().tolist() == [len(bounds) // 2 for bounds in bounds_of]


def test_a_result_of_2_gib_is_a_large_string(monkeypatch):
    monkeypatch.setattr("etl.kernels.bytes.spans._MOST_BYTES", 5)
    array = pa.array(["abc", None, "def"])
    whole = Spans(np.array([0, 3]), np.array([3, 6]), np.array([0, 1, 1, 2]))
    kept = keep_spans(buffers(array), whole)
    assert kept.type == pa.large_string()
    assert kept.to_pylist() == ["abc", None, "def"]
    first = Spans(np.array([0]), np.array([3]), np.array([0, 1, 1]))
    assert keep_spans(buffers(array[:2]), first).type == pa.string()
