"""Line ends and control characters against ``str.splitlines`` and Unicode's categories."""

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.control_characters import CONTROLS, clean_controls
from etl.kernels.bytes.spans import build_strings
from etl.kernels.bytes.utf8 import point_at
from etl.kernels.bytes.utf8 import texts as buffers
from tests.helpers.naive_control_characters import is_control, naive, texts


@given(st.lists(texts, max_size=4), st.booleans(), st.booleans())
@example(["\r", "\r\r\n", "\n\r", "\x1f\x85", "\u2028" * 3], True, True)
def test_texts_and_counts_are_those_of_python(documents, line_ends, controls):
    array = pa.array(["\r", *documents, "\n\xc2"], pa.string())[1:-1]
    cleaned = clean_controls(buffers(array), line_ends=line_ends, controls=controls)
    result = build_strings(cleaned.offsets, cleaned.data, None)
    result.validate(full=True)
    counts = cleaned.line_ends.tolist(), cleaned.controls.tolist()
    rows = [*zip(result.to_pylist(), *counts, strict=True)]
    assert rows == [naive(text, line_ends, controls) for text in documents]
    if line_ends and not controls:  # the same lines as before
        assert [row[0].splitlines() for row in rows] == [text.splitlines() for text in documents]


def test_the_list_of_controls_is_complete():
    listed = [
        point
        for first, last in zip(CONTROLS[::2], CONTROLS[1::2], strict=True)
        for point in range(first, last + 1)
    ]
    every = (chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000)
    assert listed == [ord(char) for char in every if is_control(char)]


@given(st.text(max_size=10), st.binary(max_size=4))
def test_code_points_are_those_of_python(text, rest):
    data = buffers(pa.array([text.encode() + rest], pa.binary()).view(pa.string())).data
    at, points = 0, []
    while at < len(text.encode()):
        point, width = point_at(data, at, len(text.encode()))
        points.append(point)
        at += width
    assert points == [*map(ord, text)]
    while at < len(data):  # not valid UTF-8: at least one byte at a time, none after the end
        at += point_at(data, at, len(data))[1]
    assert at == len(data)
