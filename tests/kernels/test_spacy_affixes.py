"""Prefixes, suffixes and infixes against spaCy's rules as regular expressions."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.jit import kernel
from etl.kernels.words import spacy_affixes
from etl.kernels.words.spacy_english import ALPHA, DIGIT
from tests.helpers.naive_spacy import INFIX, PIECES, PREFIX, SUFFIX, chunk_of

chunks = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)


@kernel
def _affixes(chunk, seen):
    """The prefix, the suffix, and the infix at each character."""
    last = len(chunk) - 1
    infixes = np.zeros(last, np.int64)
    for k in range(last):
        infixes[k] = spacy_affixes.infix(chunk, 0, k, last)
    return (
        spacy_affixes.prefix(chunk, 0, last, seen),
        spacy_affixes.suffix(chunk, 0, last, seen),
        infixes,
    )


def length(match) -> int:
    return len(match[0]) if match else 0


@given(chunks)
@example("US$5")
@example("5km/h")
@example("°C.")
@example("………")
def test_a_prefix_and_a_suffix_are_those_of_the_rules(text):
    prefix, suffix, _ = _affixes(*chunk_of(text))
    assert prefix == length(PREFIX.match(text))
    assert suffix == length(SUFFIX.search(text))


@given(chunks)
@example("b---c")
@example("b--5")
def test_infixes_are_those_of_the_rules(text):
    text = f"a{text}"
    chunk, seen = chunk_of(text)
    infixes = _affixes(chunk, seen)[2]
    spans, k = [], 1
    while k < len(text):  # as etl.kernels.words.spacy does
        width = 0 if chunk[k, spacy_affixes.FLAG] & (ALPHA | DIGIT) else int(infixes[k])
        if width:
            spans.append((k, k + width))
        k += width or 1
    assert spans == [match.span() for match in INFIX.finditer(text)]
