"""The naive counts of Gopher's rules, for ``test_counts``, and the lines that they are counted in."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes as u
from etl.kernels.bytes.line_breaks import next_line, strip
from etl.kernels.signals.word_counts import STOP_WORDS
from etl.kernels.words.spacy import HAS_LETTER, IS_WORD


def naive_counts(text: str, segments: list[tuple[str, int]]) -> dict[str, int]:
    """The counts of a text, given its segments and their flags."""
    lines = text.splitlines()
    words = [segment for segment, flags in segments if flags & IS_WORD]
    return {
        "segments": len(segments),
        "words": len(words),
        "alpha_words": sum(bool(flags & HAS_LETTER) for _, flags in segments),
        "word_chars": sum(map(len, words)),
        "stop_words": len(set(words) & set(STOP_WORDS)),
        "hashes": text.count("#"),
        "ellipses": text.count("...") + text.count("…"),
        "chars": len(text),
        "newlines": text.count("\n"),
        "lines": len(lines),
        "bullet_lines": sum(line.lstrip().startswith(("-", "•")) for line in lines),
        "ellipsis_lines": sum(line.rstrip().endswith(("...", "…")) for line in lines),
    }


@given(st.binary(max_size=30))
def test_lines_do_not_depend_on_the_bytes_after_them(junk):
    """``strip`` is also called without compilation, where numpy checks every index."""
    data = np.frombuffer(junk, np.uint8)
    line = next_line(data, 0, len(data))
    for other in (b"\n", b"x", b"\x85\xa8"):
        assert line == next_line(np.frombuffer(junk + 4 * other, np.uint8), 0, len(data))
    stripped = strip.py_func(data, 0, len(data), u.classes())
    assert stripped == strip(data, 0, len(data), u.classes())
    assert 0 <= stripped[0] <= stripped[1] <= len(data)
