"""Units of documents, and documents without some units, against lists of strings."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes.spans import keep_spans
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.lines import text_units
from etl.kernels.lines.remove_units import remove_units
from etl.kernels.lines.repeated import CASE, SPACE
from etl.kernels.lines.text_units import LINES, NOT_COMPARED, PARAGRAPHS, SENTENCES, Cutting
from tests.helpers.naive_repeats import naive_compared, naive_rest, naive_units, texts

blocks = st.sampled_from([PARAGRAPHS, LINES])
whole = [
    "He left.",
    "Why?",
    '"No!"',
    "Mr. Smith (a friend) paid 3.50 and left.",
    "東京。",
    "one",
    "Ünder",
]
lines = st.lists(st.sampled_from(whole), max_size=5)
documents = st.lists(lines, max_size=5)


def cut(text: str, cutting: Cutting, ordinals: list[int]) -> str:
    array = pa.array(["before", text, "after"])
    firsts = np.array([0, 0, len(ordinals), len(ordinals)])
    spans = remove_units(buffers(array), cutting, firsts, np.array(ordinals, np.int32))
    kept = keep_spans(buffers(array), spans)
    kept.validate(full=True)
    before, rest, after = kept.to_pylist()
    assert (before, after) == ("before", "after")
    return rest


def hashed(array: pa.Array, cutting: Cutting) -> list[list[tuple[int, int]]]:
    """Return the hash and the code points of each unit of each document."""
    units = text_units.hash_units(buffers(array), cutting)
    pairs = list(zip(units.hashes.tolist(), units.chars.tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(units.first_unit, units.first_unit[1:], strict=False)]


def build_strings(text: str, cutting: Cutting) -> list[str]:
    array = pa.array([text])
    spans = text_units.locate_units(buffers(array), cutting)
    data = text.encode()
    return [data[a:b].decode() for a, b in zip(spans.starts, spans.ends, strict=True)]


def naive_strings(text: str, unit: int) -> list[list[str]]:
    rows = text.splitlines(keepends=True)
    return [[rows[k].strip() for k in lines] for lines in naive_units(rows, unit == PARAGRAPHS)]


@given(st.lists(texts, max_size=4), blocks, st.integers(0, 4), st.integers(0, 7))
def test_hashes_are_equal_if_and_only_if_the_units_are(documents, unit, min_chars, ignore):
    cutting = Cutting(unit, min_chars, 1, ignore)
    array = pa.array(["a\na", *documents, "b"], pa.string())[1:-1]
    by_hash: dict[int, str] = {}
    by_key: dict[str, int] = {}
    for text, pairs in zip(documents, hashed(array, cutting), strict=True):
        expected = naive_strings(text, unit)
        assert [chars for _, chars in pairs] == [len("\n".join(part)) for part in expected]
        for (value, _), part in zip(pairs, expected, strict=True):
            key = naive_compared(part, ignore)
            assert (value == NOT_COMPARED) == (len(key) < min_chars)
            if value != NOT_COMPARED:
                assert by_hash.setdefault(value, key) == key
                assert by_key.setdefault(key, value) == value


some_words = st.lists(
    st.sampled_from(["one", "Two", "3", "Ünder", "東京。"]), min_size=1, max_size=6
)
gaps = st.sampled_from([" ", "  ", "\t", "\n", " \n ", "\r\n", "\u2028", "\u00a0", "\x85\t"])


@given(some_words, st.data(), st.sampled_from([SPACE, SPACE | CASE]), st.integers(0, 20))
def test_a_paragraph_is_found_however_it_is_wrapped(words, data, ignore, min_chars):
    def wrapped() -> str:
        return "".join(word + data.draw(gaps) for word in words)

    document = f"{wrapped()}\n\nAnother.\n\n{wrapped()}"
    (pairs,) = hashed(pa.array([document]), Cutting(PARAGRAPHS, min_chars, 1, ignore))
    is_compared = len(" ".join(words)) >= min_chars
    assert [value != NOT_COMPARED for value, _ in pairs] == [
        is_compared,
        min_chars <= 8,
        is_compared,
    ]
    assert pairs[0][0] == pairs[2][0]


@given(texts, blocks, st.data())
@example("a\n\nb\na\n\nc\na\n", PARAGRAPHS, None)
def test_the_rest_is_that_of_lists(text, unit, data):
    cutting = Cutting(unit, 0, 1, 0)
    rows = text.splitlines(keepends=True)
    units = naive_units(rows, unit == PARAGRAPHS)
    removed = range(len(units))[:-1]
    if data is not None and units:
        removed = data.draw(st.sets(st.sampled_from(range(len(units))), max_size=len(units) - 1))
    lines_cut = {line for k in removed for line in units[k]}
    rest = cut(text, cutting, sorted(removed))
    assert rest == (naive_rest(rows, lines_cut) if lines_cut else text)
    assert naive_strings(rest, unit) == [
        part for k, part in enumerate(naive_strings(text, unit)) if k not in removed
    ]


@given(documents, st.sampled_from(["\n", "\r\n", " \n\n"]), st.data())
def test_sentences_are_split_and_removed(document, end, data):
    text = end.join("  ".join(line) for line in document)
    cutting = Cutting(SENTENCES, 0, 1, 0)
    expected = [sentence for line in document for sentence in joined(line)]
    assert build_strings(text, cutting) == expected
    removed = data.draw(st.sets(st.sampled_from(range(len(expected))))) if expected else set()
    rest = cut(text, cutting, sorted(removed))
    assert build_strings(rest, cutting) == [s for k, s in enumerate(expected) if k not in removed]


def joined(line: list[str]) -> list[str]:
    """Join the parts of a line to sentences: a part without an end continues in the next one."""
    sentences: list[str] = []
    for part in line:
        if sentences and sentences[-1][-1] not in '.?!"。':
            sentences[-1] += f"  {part}"
        else:
            sentences.append(part)
    return sentences


@given(texts | st.text(st.sampled_from("aA.!?。 \n\"'()Xé東1,"), max_size=40), st.data())
def test_removing_sentences_keeps_all_other_characters(text, data):
    """The sentences contain all characters but white space, in order and without overlap."""
    cutting = Cutting(SENTENCES, 0, 1, 0)
    parts = build_strings(text, cutting)
    assert all(part == part.strip() != "" for part in parts)
    assert bare("".join(parts)) == bare(text)
    removed = data.draw(st.sets(st.sampled_from(range(len(parts))))) if parts else set()
    rest = cut(text, cutting, sorted(removed))
    assert bare(rest) == bare("".join(p for k, p in enumerate(parts) if k not in removed))


def bare(text: str | tuple[str, ...]) -> str:
    return "".join("".join(text).split())


@given(
    st.lists(st.sampled_from(["One.", "Two.", "Two  b?"]), max_size=8),
    st.integers(1, 4),
    st.integers(0, 9),
)
def test_a_sentence_is_compared_with_those_that_follow(sentences, span, min_chars):
    """The last sentences, which too few others follow, are not compared."""
    cutting = Cutting(SENTENCES, min_chars, span, SPACE | CASE)
    (pairs,) = hashed(pa.array([" ".join(sentences)]), cutting)
    spans = [tuple(sentences[k : k + span]) for k in range(len(sentences))]
    assert [chars for _, chars in pairs] == [len(s) for s in sentences]
    for (value, _), one in zip(pairs, spans, strict=True):
        length = sum(len(" ".join(sentence.split())) for sentence in one)
        is_compared = len(one) == span and length >= max(min_chars, 1)
        assert (value != NOT_COMPARED) == is_compared
        for (other_value, _), other in zip(pairs, spans, strict=True):
            if is_compared and other_value != NOT_COMPARED:
                assert (value == other_value) == (bare(one) == bare(other))


def test_an_ordinal_without_a_unit_is_refused():
    with pytest.raises(AssertionError, match="fewer units"):
        cut("a\n\nb", Cutting(PARAGRAPHS, 0, 1, 0), [2])


@pytest.mark.parametrize("unit", [PARAGRAPHS, LINES, SENTENCES])
def test_buffers_grow_for_long_documents(unit):
    separator = {PARAGRAPHS: "\n\n", LINES: "\n", SENTENCES: " "}[unit]
    parts = [f"line {k}." for k in range(5000)]
    text = separator.join(parts)
    assert build_strings(text, Cutting(unit, 0, 1, 0)) == parts
    removed = list(range(0, 5000, 2))
    assert cut(text, Cutting(unit, 0, 1, 0), removed) == separator.join(parts[1::2])
    assert cut(text, Cutting(unit, 0, 1, 0), list(range(5000))) == ""
