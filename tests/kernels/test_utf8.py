"""Buffers of Arrow strings and their code points against Python strings."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes as u
from etl.kernels.bytes.one_chunk import one_chunk
from etl.kernels.bytes.utf8 import class_at, count_chars, point_at
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.jit import kernel

documents = st.lists(st.none() | st.text(max_size=100), max_size=6)


@kernel
def _point_at(data, at, end):
    return point_at(data, at, end)


def decoded(data: np.ndarray, at: int, end: int) -> list[int]:
    points = []
    while at < end:
        point, width = _point_at(data, at, end)
        points.append(point)
        at += width
    assert at == end
    return points


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()])
@given(documents, st.integers(0, 6))
def test_buffers_hold_the_bytes_of_a_slice(type_, strings, start):
    array = pa.array(strings, type_)[start:]
    offsets, data, valid = buffers(array)
    pieces = [data[a:b].tobytes().decode() for a, b in pairwise(offsets)]
    assert pieces == [text or "" for text in strings[start:]]
    nulls = [text is None for text in strings[start:]]
    is_null = [False] * len(nulls) if valid is None else np.invert(valid).tolist()
    assert is_null == nulls
    assert len(data) >= 64
    assert not any(part.flags.writeable for part in (offsets, data))


@given(documents)
def test_chars_are_counted_as_by_len(strings):
    array = pa.array(strings, pa.string())
    assert count_chars(buffers(array)).tolist() == [len(text or "") for text in strings]


@given(st.text(max_size=40))
def test_code_points_equal_ord(text):
    data = np.frombuffer(text.encode(), np.uint8)
    assert decoded(data, 0, len(data)) == [ord(char) for char in text]


@given(st.binary(max_size=30), st.binary(max_size=4))
def test_code_points_of_junk_do_not_depend_on_the_bytes_after_it(junk, rest):
    points = decoded(np.frombuffer(junk, np.uint8), 0, len(junk))
    assert points == decoded(np.frombuffer(junk + rest, np.uint8), 0, len(junk))
    assert all(0 <= point < u.NUM_CODE_POINTS for point in points)


@given(st.binary(max_size=30))
def test_the_uncompiled_functions_stay_within_bounds(junk):
    """Without compilation numpy checks every index."""
    data = np.frombuffer(junk, np.uint8)
    for at in range(len(data)):
        point, width = point_at.py_func(data, at, len(data))
        assert (point, width) == _point_at(data, at, len(data))
        assert at + width <= len(data)
        kind, width = class_at.py_func(data, at, len(data), u.classes())
        assert (kind, width) == (u.classes()[point], width)


def test_chunks_become_one_array():
    chunked = pa.chunked_array([["a"], ["b", None]])
    assert one_chunk(chunked).to_pylist() == ["a", "b", None]
    assert one_chunk(chunked[:1]).to_pylist() == ["a"]
