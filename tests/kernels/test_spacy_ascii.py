"""Segments of ASCII chunks against spaCy's rules, and the sets of bytes against the tables."""

from itertools import accumulate
from string import ascii_letters

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import simd
from etl.kernels.jit import kernel
from etl.kernels.words import spacy_ascii, spacy_tables
from tests.helpers.bits import set_bits
from tests.helpers.naive_spacy import PIECES, naive_cut

_find_letters = simd.make_byte_finder(ascii_letters.encode())
printable = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
ascii_pieces = st.sampled_from([piece for piece in PIECES if piece.isascii()])
wide_letters = st.sampled_from("ÀÖ×ØÞßàö÷øÿ")
chunks = (
    st.text(printable | wide_letters, min_size=1, max_size=8)
    | st.lists(ascii_pieces | wide_letters, min_size=1, max_size=5).map("".join)
).filter(lambda chunk: chunk.isprintable() and len(chunk.encode()) <= 60)


@kernel
def _cut(data, first, last, tables):
    kinds = spacy_ascii.classify_bytes(data, 0, _find_letters(data, 0)[0], tables.rules)
    return spacy_ascii.cut_chunk(data, first, last, kinds, tables)


@kernel
def _find_kinds(data):
    return spacy_ascii.find_kinds(data, 0)


def starts(chunk: str, first: int = 0, language: str = "en") -> list[int]:
    """Where the segments of a chunk begin; empty if the chunk is left to other rules."""
    data = np.frombuffer((b" " * first + chunk.encode()).ljust(64), np.uint8)
    tables = spacy_tables.tables(language)
    return [k - first for k in set_bits(_cut(data, first, first + len(chunk.encode()), tables))]


@given(chunks, st.integers(0, 4), st.sampled_from(["en", "xx", "de", "fr"]))
@example("can't.", 0, "en")
@example("(e.g.,", 1, "en")
@example("'Tis'", 0, "en")
@example("3-D", 0, "xx")
@example("3.", 0, "de")
@example("ab/3)", 0, "de")
@example("Ä.B", 0, "en")
@example("übers,", 0, "de")
def test_segments_are_those_of_the_rules_unless_left(chunk, first, language):
    lengths = [len(segment.encode()) for segment in naive_cut(chunk, language)]
    assert starts(chunk, first, language) in ([], [0, *accumulate(lengths[:-1])])


@pytest.mark.parametrize(
    "chunk", ["word", "(end).", "can't", "we're,", "well-known", '"A', "1,000", "Größe", "(für)."]
)
@pytest.mark.parametrize("language", ["en", "xx", "de"])
def test_common_chunks_are_not_left(chunk, language):
    assert starts(chunk, language=language)


def test_letters_of_two_bytes_are_those_with_case():
    flags = spacy_tables.tables().flags
    masks = [_find_kinds(np.full(64, byte, np.uint8)) for byte in range(256)]
    kinds = [dict(zip(spacy_ascii.BYTES, of_byte, strict=True)) for of_byte in masks]
    assert [byte for byte in range(256) if kinds[byte]["leads"]] == [0xC3]
    for point in range(0xC0, 0x100):
        tail = kinds[chr(point).encode()[1]]
        of_case = flags[point] & (spacy_tables.UPPER | spacy_tables.LOWER)
        assert (tail["small_tails"] != 0) == (of_case == spacy_tables.LOWER)
        assert (tail["capital_tails"] != 0) == (of_case == spacy_tables.UPPER)


def test_the_sets_of_bytes_agree_with_the_flags_of_characters() -> None:
    flags = spacy_tables.tables().flags[:128]
    masks = [_find_kinds(np.arange(k, k + 64, dtype=np.uint8)) for k in (0, 64)]
    kinds = {
        name: np.isin(np.arange(128), [*set_bits(low), *(64 + k for k in set_bits(high))])
        for name, low, high in zip(spacy_ascii.BYTES, *masks, strict=True)
    }
    capitals = (flags & spacy_tables.UPPER > 0) & (flags & spacy_tables.LOWER == 0)
    assert (kinds["capitals"] == capitals).all()
    assert (kinds["digits"] == (flags & spacy_tables.DIGIT > 0)).all()
    assert (kinds["prefixes"] == (flags & spacy_tables.PREFIX > 0)).all()
    suffixes = kinds["prefixes"] & ~kinds["only_prefixes"]
    assert (suffixes == (flags & spacy_tables.SUFFIX > 0)).all()
    assert (kinds["quotes"] == (flags & spacy_tables.QUOTE > 0)).all()
    words = flags & (spacy_tables.LETTER | spacy_tables.DIGIT) > 0
    assert ((flags & (spacy_tables.NO_WORD | spacy_tables.SPACE) > 0) == ~words).all()
