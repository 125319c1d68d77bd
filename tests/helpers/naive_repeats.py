"""Repeated lines and paragraphs by lists and sets of strings."""

import re
from itertools import groupby, pairwise

from hypothesis import strategies as st

from etl.kernels.bytes import character_classes
from etl.kernels.lines.repeated import CASE, DIGITS, SPACE
from tests.helpers.tricky_text import TRICKY

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


def naive_compared(lines: list[str], ignore: int) -> str:
    """Return what is compared of a unit, given its lines without white space at their ends.

    >>> naive_compared(["One  line", "and another"], SPACE)
    'One line and another'
    """
    text = "\n".join(naive_key(line, ignore) for line in lines)
    return " ".join(text.split()) if ignore & SPACE else text


def naive(text: str, *, paragraphs: bool, min_chars: int, ignore: int) -> tuple[str, int]:
    rows = text.splitlines(keepends=True)
    cut, seen, repeated = set(), set(), 0
    for unit in naive_units(rows, paragraphs):
        key = naive_compared([rows[k].strip() for k in unit], ignore)
        if len(key) < min_chars:
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
