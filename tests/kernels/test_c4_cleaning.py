"""C4's cleaning against a plain implementation of its rules."""

import re
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl.kernels.bytes.utf8 import texts
from etl.kernels.lines import c4_cleaning
from etl.kernels.words import spacy, spacy_tables
from etl.kernels.words.uax29 import END, START

CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
ENDS = {
    chr(point) for first, last in spacy_tables.SENTENCE_ENDS for point in range(first, last + 1)
}
RULES = c4_cleaning.Rules(
    terminal=True, min_words=3, max_word_chars=20, javascript=True, policy=True, citations=True
)

pieces = st.sampled_from(
    [
        *(
            "The ",
            "word",
            " and ",
            "end. ",
            "end.",
            "?",
            "! ",
            '"',
            "'",
            "...",
            "…",
            "e.g. ",
            "3.5 ",
        ),
        *("[1]", "[ 1]", "[]", "[edit]", "[citation needed]", "[edit", "[١]", "\n", "\r\n", "\x85"),
        *(
            "JavaScript",
            "lorem Ipsum",
            "{",
            "Cookie Policy",
            "uses cookies",
            "terms of use",
            "\u2028",
        ),
        *(
            "x" * 19,
            "é" * 20,
            "é" * 21,
            "。",
            "日本語。",
            "؟",
            "\u200b",
            "🙂",
            "\u00a0",
            "\t",
            "  ",
            "”",
        ),
    ]
)
documents = st.lists(pieces, max_size=30).map("".join) | st.text(max_size=40)


def lower(text: str) -> str:
    """Return the text with its ASCII letters in lower case."""
    return re.sub("[A-Z]+", lambda match: match[0].lower(), text)


def sentences(line: str) -> int:
    """Count sentences: the first word begins one, and so does the first word after an end.

    Punctuation does not begin a sentence.
    """
    data, size = texts(pa.array([line])).data, len(line.encode())
    buffers, at, begun, ended = spacy.new_chunk_buffers(), 0, 0, True
    while at < size:
        at, num = spacy.next_words(data, at, size, spacy_tables.tables(), buffers, True)
        for row in buffers.block[:num]:
            word = bytes(data[row[START] : row[END]]).decode()
            if begun == 0:
                begun, ended = 1, word in ENDS
            elif word in ENDS:
                ended = True
            elif ended and not all(unicodedata.category(char)[0] == "P" for char in word):
                begun, ended = begun + 1, False
    return begun


def cleaned(text: str, rules: c4_cleaning.Rules) -> tuple[str, dict[str, int]]:
    """Return the lines that are kept, and the counts."""
    counts = dict.fromkeys(c4_cleaning.C4Counts._fields, 0)
    kept = []
    for whole in text.splitlines():
        words = whole.split()
        line = CITATION.sub("", whole.strip()) if rules.citations else whole.strip()
        small = lower(line)
        rules_of_line = {
            "long_word_lines": any(len(word) > rules.max_word_chars for word in words),
            "open_lines": rules.terminal
            and (not line.endswith((".", "?", "!", '"', "'")) or line.endswith("...")),
            "short_lines": len(words) < rules.min_words,
        }
        reason = next((name for name, holds in rules_of_line.items() if holds), None)
        if reason is None:
            counts["lorem_ipsum_lines"] += "lorem ipsum" in small
            if rules.javascript and "javascript" in small:
                reason = "javascript_lines"
            else:
                counts["brace_lines"] += "{" in line
                if rules.policy and any(phrase in small for phrase in c4_cleaning.POLICIES):
                    reason = "policy_lines"
        if reason is not None:
            counts[reason] += 1
        else:
            counts["sentences"] += sentences(line)
            kept.append(line)
    return "\n".join(kept).strip(), counts


def clean(
    documents: list[str | None], rules: c4_cleaning.Rules
) -> list[tuple[str | None, dict[str, int]]]:
    cleaned, counts, _ = c4_cleaning.clean_pages(texts(pa.array(documents, pa.string())), rules)
    columns = [column.tolist() for column in counts]
    rows = [
        dict(zip(c4_cleaning.C4Counts._fields, row, strict=True))
        for row in zip(*columns, strict=True)
    ]
    return list(zip(cleaned.to_pylist(), rows, strict=True))


@settings(max_examples=300)
@example(["a b. \x1c[1] c d."])
@given(st.lists(documents, max_size=4))
def test_the_result_is_that_of_the_plain_rules(documents):
    lenient = RULES._replace(terminal=False, citations=False, policy=False)
    for rules in (RULES, lenient, lenient._replace(max_word_chars=64, citations=True)):
        assert clean(documents, rules) == [cleaned(text, rules) for text in documents]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("One two " + "x" * 19 + ".", None),
        ("One two " + "x" * 21, "long_word_lines"),
        ("One two three.", None),
        ("One two three", "open_lines"),
        ("One two three...", "open_lines"),
        ("One two three [1].", None),
        ("One two three. [1]", "open_lines"),  # a blank remains at the end
        ("One two.", "short_lines"),
        ("We like JAVASCRIPT.", "javascript_lines"),
        ("Read our Privacy Policy.", "policy_lines"),
        ("The site uses cookies.", "policy_lines"),
        ("He uses a cookie.", None),
    ],
)
def test_each_rule_removes_its_lines(line, rule):
    ((text, counts),) = clean([f"A line to keep.\n{line}"], RULES)
    expected = "A line to keep." if rule else f"A line to keep.\n{CITATION.sub('', line)}"
    assert text == expected
    assert {name for name, count in counts.items() if count and name != "sentences"} == {
        *([rule] if rule else [])
    }


def test_sentences_are_counted():
    text = 'One is here. Two (e.g. "this!") is, too? "Three." 3.5 is in four! It\'s in five...\nAnd six.'
    ((_, counts),) = clean([text], RULES._replace(terminal=False))
    assert counts["sentences"] == 6


@pytest.mark.parametrize(
    "text", ["a b 日.x c.", "a b 日a.3 c.", "a b c.d 1.2 e.", "a b .c d.", "A.b c d."]
)
def test_full_stops_inside_words_are_handled(text):
    ((_, counts),) = clean([text], RULES)
    assert counts["sentences"] == sentences(text)


def test_nulls_slices_and_empty_columns_are_cleaned():
    column = pa.array(["skipped", None, "It is a line.", ""])[1:]
    cleaned, counts, _ = c4_cleaning.clean_pages(texts(column), RULES)
    assert cleaned.to_pylist() == [None, "It is a line.", ""]
    assert [len(column) for column in counts] == [3] * len(c4_cleaning.C4Counts._fields)
    cleaned, counts, _ = c4_cleaning.clean_pages(texts(pa.array([], pa.string())), RULES)
    assert len(cleaned) == len(counts.sentences) == 0
