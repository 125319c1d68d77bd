"""Repeated lines and paragraphs against lists and sets of strings."""

import re
from itertools import groupby, pairwise

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.kernels.bytes import character_classes
from etl.kernels.bytes.spans import keep
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.lines.repeated import CASE, DIGITS, SPACE, without_repeats
from tests.kernels.test_words import TRICKY

lines = st.sampled_from(
    ["a", "A", " a\t", "b b", "b \u00a0b", "12", "7", "Éß東", "éß東", "", " ", "x" * 9]
)
ends = st.sampled_from(["\n", "\n", "\n\n", "\r\n", "\u2029", "\x85", "\n \n\r\n"])
texts = (
    st.lists(st.tuples(lines, ends).map("".join), max_size=12).map("".join)
    | st.tuples(st.lists(lines, max_size=8).map("\n".join), lines).map("".join)
    | st.text(st.sampled_from([*TRICKY, "\n", "\n"]), max_size=30)
    | st.text(max_size=40)
)


def naive_key(line: str, ignore: int) -> str:
    if ignore & DIGITS:
        line = "".join(
            "0" if character_classes.classes()[ord(c)] == character_classes.DIGIT else c
            for c in line
        )
        line = re.sub("0+", "0", line)
    if ignore & SPACE:
        line = " ".join(line.split())
    if ignore & CASE:
        line = "".join(c.casefold() if len(c.casefold()) == 1 else c for c in line)
    return line


def naive(text: str, *, paragraphs: bool, min_chars: int, ignore: int) -> tuple[str, int]:
    rows = text.splitlines(keepends=True)
    cut, seen, repeated = set(), set(), 0
    for unit in naive_units(rows, paragraphs):
        stripped = [rows[k].strip() for k in unit]
        key = tuple(naive_key(line, ignore) for line in stripped)
        if len("\n".join(stripped)) < min_chars:
            continue
        if key in seen:
            cut |= {*unit}
            repeated += 1
        seen.add(key)
    return naive_rest(rows, cut) if cut else text, repeated


def naive_units(rows: list[str], paragraphs: bool) -> list[list[int]]:
    runs = groupby(range(len(rows)), lambda k: rows[k].strip() != "")
    units = [[*run] for is_text, run in runs if is_text]
    return units if paragraphs else [[k] for unit in units for k in unit]


def naive_rest(rows: list[str], cut: set[int]) -> str:
    kept = [k for k in range(len(rows)) if k not in cut and rows[k].strip()]
    before = range(kept[0])
    rest = "" if cut & {*before} else "".join(rows[k] for k in before)
    rest += rows[kept[0]]
    for one, other in pairwise([*kept, len(rows)]):
        between = range(one + 1, other)
        if not cut & {*between}:
            rest += "".join(rows[k] for k in between)
        elif other < len(rows):
            runs = [
                "".join(rows[k] for k in run)
                for is_cut, run in groupby(between, cut.__contains__)
                if not is_cut
            ]
            rest += runs[0] if runs else ""
        elif rows[-1].splitlines() == [rows[-1]]:  # no line end
            rest = rest[: len(rest) - len(rows[one]) + len(rows[one].splitlines()[0])]
        rest += rows[other] if other < len(rows) else ""
    return rest


def without(array, **settings) -> list[tuple[str, int]]:
    spans, repeats = without_repeats(buffers(array), **settings)
    rest = keep(buffers(array), spans)
    rest.validate(full=True)
    return list(zip(rest.to_pylist(), repeats.tolist(), strict=True))


@given(st.lists(texts, max_size=4), st.booleans(), st.integers(0, 4), st.integers(0, 7))
@example(["a\n\nb\na\n\nc\na", "a\n\na\n", "a\n\na", "\n\na\na\n\n\nb"], False, 0, 0)
@example(["a\nb\n\na\nb\n \na\n\nb", "a\n\n\na\n \na\nb"], True, 2, 0)
@example(["Page 1\nPAGE 22\npage  3", "1 2\n12\n1 \u0663"], False, 0, CASE | SPACE | DIGITS)
def test_the_rest_is_that_of_sets(documents, paragraphs, min_chars, ignore):
    settings = {"paragraphs": paragraphs, "min_chars": min_chars, "ignore": ignore}
    array = pa.array(["a\na", *documents, "b"], pa.string())[1:-1]
    assert without(array, **settings) == [naive(text, **settings) for text in documents]


@given(texts, st.booleans(), st.integers(0, 7))
def test_a_second_pass_removes_nothing(text, paragraphs, ignore):
    settings = {"paragraphs": paragraphs, "min_chars": 0, "ignore": ignore}
    ((once, _),) = without(pa.array([text], pa.string()), **settings)
    assert without(pa.array([once], pa.string()), **settings) == [(once, 0)]


@pytest.mark.parametrize(("min_chars", "rest"), [(3, "éab\nab\nab"), (2, "éab\nab"), (4, None)])
def test_short_lines_are_never_removed(min_chars, rest):
    text = "éab\nab\néab\nab"
    settings = {"paragraphs": False, "min_chars": min_chars, "ignore": 0}
    assert without(pa.array([text]), **settings)[0][0] == (rest or text)


def test_buffers_grow_for_long_documents():
    many = "\n".join(f"line {k * k % 1999}" for k in range(5000))
    documents = ["a\na\n", many, many.replace("\n", "\n\n"), "b"]
    for paragraphs in (False, True):
        settings = {"paragraphs": paragraphs, "min_chars": 0, "ignore": 0}
        assert without(pa.array(documents), **settings) == [naive(t, **settings) for t in documents]
