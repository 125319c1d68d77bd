"""Guess the delimiter of lines that may be CSV."""

import csv
from collections.abc import Sequence
from typing import Final, Literal

Delimiter = Literal[",", ";", "\t", "|"]

_DELIMITERS: Final[tuple[Delimiter, ...]] = (",", ";", "\t", "|")
_MANY_ROWS: Final = 4  # the last one may be cut in a quoted field
_SAME: Final = 0.9  # of the records, with as many fields as the header; chosen here
_MAX_NAME_CHARS: Final = 64


def guess_delimiter(lines: Sequence[str]) -> Delimiter | None:
    """Return the delimiter that gives the records as many fields as the header; None if there is none.

    Of several, it is the one with most fields. ``csv.Sniffer`` guesses by counts of characters, and is often
    wrong where fields are prose.

    >>> guess_delimiter(["title;body;n", "A;One, two, three;1", 'B;"Four; five";2'])
    ';'
    >>> guess_delimiter(["This is prose, with commas.", "As here,", "or, perhaps, here."]) is None
    True
    """
    guess: Delimiter | None = None
    num_fields = 1
    for delimiter in _DELIMITERS:
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
            header, *records = rows if len(rows) < _MANY_ROWS else rows[:-1]
        except (csv.Error, ValueError):  # the latter: there are no lines
            continue
        names = [name.strip() for name in header]
        is_header = all(names) and len({*names}) == len(names)
        is_header &= max(map(len, names)) <= _MAX_NAME_CHARS and not names[-1].endswith(
            (".", "!", "?")
        )
        same = sum(len(record) == len(header) for record in records)
        is_same = bool(records) and same >= _SAME * len(records)
        if is_header and is_same and len(header) > num_fields:
            guess, num_fields = delimiter, len(header)
    return guess
