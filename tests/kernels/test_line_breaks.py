"""Line ends and stripped lines against ``str.splitlines`` and ``str.strip``."""

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.line_breaks import next_line, strip
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.jit import allocator, kernel
from tests.helpers.tricky_text import TRICKY

BREAKS = ["\n", "\v", "\f", "\r", "\r\n", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
SPACES = [" ", "\t", "\x1f", "\xa0", "\u1680", "\u2003", "\u202f", "\u205f", "\u3000"]
texts = (
    st.lists(st.sampled_from([*BREAKS, *SPACES, "a", "é", "\u2027", "東", "😀"]), max_size=100).map(
        "".join
    )
    | st.text(st.sampled_from(TRICKY), max_size=30)
    | st.text(max_size=40)
)


@kernel
def _next(data, at, end):
    return next_line(data, at, end)


@kernel
def _strip(data, at, end, classes):
    return strip(data, at, end, classes)


@allocator
def line_bounds(data, end, classes):
    """The start, the end, and the stripped start and end of each line before ``end``."""
    rows = np.empty((end, 4), np.int64)
    at = num = 0
    while at < end:
        line_end, after = next_line(data, at, end)
        first, last = strip(data, at, line_end, classes)
        rows[num] = at, line_end, first, last
        num += 1
        at = after
    return rows[:num]


@given(texts)
@example("a\r")
@example("\r\n\r\n\n\r")
@example("x" * 62 + "\u2028" + "y" * 70)
def test_lines_are_those_of_python(text):
    data = text.encode()
    rows = line_bounds(
        buffers(pa.array([text])).data, len(data), character_classes.classes()
    ).tolist()
    assert [data[start:end].decode() for start, end, _, _ in rows] == text.splitlines()
    stripped = [data[first:last].decode() for _, _, first, last in rows]
    assert stripped == [line.strip() for line in text.splitlines()]


@given(st.binary(max_size=30))
def test_no_byte_outside_the_text_is_read(junk):
    """Compare with the uncompiled functions, where NumPy checks every index."""
    data = np.frombuffer(junk, np.uint8)
    line = _next(data, 0, len(data))
    for other in (b"\n", b"x", b"\x85\xa8"):  # bytes after the text change nothing
        assert line == _next(np.frombuffer(junk + 4 * other, np.uint8), 0, len(data))
    stripped = strip.py_func(data, 0, len(data), character_classes.classes())
    assert stripped == _strip(data, 0, len(data), character_classes.classes())
    assert 0 <= stripped[0] <= stripped[1] <= len(data)


@given(st.binary(max_size=30))
def test_lines_do_not_depend_on_the_bytes_after_them(junk):
    """``strip`` is also called without compilation, where numpy checks every index."""
    data = np.frombuffer(junk, np.uint8)
    line = _next(data, 0, len(data))
    for other in (b"\n", b"x", b"\x85\xa8"):
        assert line == _next(np.frombuffer(junk + 4 * other, np.uint8), 0, len(data))
    stripped = strip.py_func(data, 0, len(data), character_classes.classes())
    assert stripped == _strip(data, 0, len(data), character_classes.classes())
    assert 0 <= stripped[0] <= stripped[1] <= len(data)
