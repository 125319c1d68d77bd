"""Filters as a user would write them; the golden files of the stage ``python`` call them."""

import pyarrow.compute as pc


def has_digit(table):
    return pc.match_substring_regex(table["text"], r"\d")


def too_long(table):
    return [None if text.count("\n") < 2 else "many_lines" for text in table["text"].to_pylist()]


def three_words(table):
    assert table.num_rows > 0
    return pc.equal(table["num_words"], 3)


def polite(document):
    if not document["text"]:
        return None
    if document["text"].isupper():
        return "loud"
    return document["text"].startswith("hello")


def number(document):
    return len(document["text"])


def short(table):
    return [True] * (table.num_rows - 1)


def numbers(table):
    return list(range(table.num_rows))


def fails(table):
    raise KeyError("no such column")


def fails_at_two(document):
    if document["row"] == 2:
        raise ValueError("two is bad")
    return True
