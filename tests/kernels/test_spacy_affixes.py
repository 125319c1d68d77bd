"""Prefixes, suffixes and infixes against spaCy's rules as regular expressions."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.jit import allocator
from etl.kernels.words import spacy_affixes
from etl.kernels.words.spacy_tables import ALPHA, DIGIT, ICON, tables
from tests.helpers.naive_spacy import PIECES, chunk_of, patterns

languages = st.sampled_from(["en", "xx", "de", "fr"])  # Russian has the rules of "xx"
chunks = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)


@allocator
def _affixes(chunk, seen, rules):
    """The prefix, the suffix, and the infix at each character."""
    last = len(chunk) - 1
    infixes = np.zeros(last, np.int64)
    for k in range(last):
        infixes[k] = spacy_affixes.infix(chunk, 0, k, last, rules)
    return (
        spacy_affixes.prefix(chunk, 0, last, seen, rules),
        spacy_affixes.suffix(chunk, 0, last, seen, rules),
        infixes,
    )


def length(match) -> int:
    return len(match[0]) if match else 0


@given(chunks, languages)
@example("US$5", "en")
@example("5km/h", "en")
@example("°C.", "en")
@example("………", "en")
@example("l'a", "fr")
@example("d'+", "fr")
def test_a_prefix_and_a_suffix_are_those_of_the_rules(text, language):
    prefix, suffix, _ = _affixes(*chunk_of(text), tables(language).rules)
    prefixes, suffixes, _ = patterns(language)
    assert prefix == length(prefixes.match(text))
    assert suffix == length(suffixes.search(text))


@given(chunks, languages)
@example("b---c", "en")
@example("b--5", "en")
@example("b--c", "de")
def test_infixes_are_those_of_the_rules(text, language):
    text = f"a{text}"
    chunk, seen = chunk_of(text)
    infixes = _affixes(chunk, seen, tables(language).rules)[2]
    spans, k = [], 1
    while k < len(text):  # as etl.kernels.words.spacy does
        flag = chunk[k, spacy_affixes.FLAG]
        width = 0 if flag & (ALPHA | DIGIT) and not flag & ICON else int(infixes[k])
        if width:
            spans.append((k, k + width))
        k += width or 1
    found = [match.span() for match in patterns(language)[2].finditer(text)]
    assert spans == [span for span in found if span[0] < span[1]]  # an elision is empty
