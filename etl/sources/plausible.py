"""Judge whether a column or a file holds what its name or place suggests, from a few records.

Each check has one reason that a reader can follow, and is not a score. Checks suggest, and refuse nothing.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

_SEEN_SHARE: Final = 0.8  # of the values of a column, which determine its kind
_FEW_VALUES: Final = (
    0.05  # distinct values per value of a category; a column of texts has one per record
)
_MIN_VALUES: Final = 20  # for a column of few values to be known
_DATE_WORDS: Final = frozenset(
    "jan feb mar apr may jun jul aug sep oct nov dec january february march april june july august "
    "september october november december mon tue wed thu fri sat sun monday tuesday wednesday thursday "
    "friday saturday sunday am pm utc gmt z t e st nd rd th".split()
)
_CODE_CHARS: Final = "{}()[]<>=;_"
_CODE_SHARE: Final = (
    0.03  # of the characters: 1 in 100 texts of the sample has more, 95 in 100 of Python
)
_CODE_WORD_CHARS: Final = (
    30  # per word of hashes and Base64; ASCII prose has 5 to 8, with the space
)
_MAX_DEPTH: Final = 4  # of nested fields
_TRAIN: Final = frozenset({"train", "training"})
_HELD_OUT: Final = frozenset(
    "test testing valid validation val dev devel eval evaluation heldout holdout".split()
)


def kind_of_value(value: str) -> str | None:
    """Return what a string is if it is not prose; None if it may be prose.

    >>> kind_of_value("2024-01-31T10:00:00Z"), kind_of_value("Mon, 05 Jan 2026 10:00 GMT")
    ('dates or numbers', 'dates or numbers')
    >>> kind_of_value("9f86d081"), kind_of_value("s3://b/k v"), kind_of_value('{"a": "b c"}')
    ('single words or codes', 'URLs', 'JSON')
    >>> kind_of_value("A text of 2024."), kind_of_value("犬が庭を走る。")
    (None, None)
    """
    value = value.strip()
    if value.startswith(("{", "[")) and _parsed(value) is not None:
        return "JSON"
    if re.match(r"[a-z][a-z0-9+.-]*://\S+", value):
        return "URLs" if len(value.split()) <= 2 else None
    words = re.findall(r"[^\W\d_]+", value.lower())
    if re.search(r"\d", value) and _DATE_WORDS.issuperset(words):
        return "dates or numbers"
    num_words = len(value.split())
    if value.isascii() and (num_words == 1 or len(value) >= _CODE_WORD_CHARS * num_words > 0):
        return "single words or codes"
    return None


def kind_of_column(values: Sequence[object]) -> str | None:
    """Return what the strings of a column are if they are not prose; None if they may be prose.

    >>> kind_of_column(["CC BY 4.0 International"] * 40)
    'few distinct values'
    """
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    kinds = [kind_of_value(text) for text in texts]
    for kind in dict.fromkeys(kinds):
        if kind is not None and kinds.count(kind) >= _SEEN_SHARE * len(kinds):
            return kind
    if len(texts) >= _MIN_VALUES and len({*texts}) <= _FEW_VALUES * len(texts):
        return "few distinct values"
    return None


def is_code(text: str) -> bool:
    """Return whether a text has as many brackets and signs as source code.

    >>> is_code("for (int i = 0; i < n; i++) { sum += x[i]; }")
    True
    >>> is_code("A text may contain some words (in brackets), as here, and it is still a text of prose.")
    False
    """
    dense = re.sub(r"\s", "", text)
    return sum(map(dense.count, _CODE_CHARS)) > _CODE_SHARE * max(len(dense), 1)


def nested_texts(records: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean length of the prose in nested fields, by path; strings of JSON are nested, too.

    >>> nested_texts([{"id": 1, "data": {"content": {"body": "Some prose."}}}])
    {'data.content.body': 11.0}
    """
    lengths: dict[str, int] = {}
    count = 0
    for count, record in enumerate(records, 1):  # noqa: B007 - the last number is the count
        for path, text in _strings(record, ()):
            if len(path) > 1 and kind_of_value(text) is None:
                lengths[".".join(path)] = lengths.get(".".join(path), 0) + len(text)
    return {path: length / count for path, length in lengths.items()}


def _strings(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, str) and path:
        parsed = _parsed(value)
        if not isinstance(parsed, dict | list):
            yield path, value
            return
        value = parsed
    if len(path) < _MAX_DEPTH and isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(inner, (*path, str(key)))
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, (*path[:-1], f"{path[-1]}[]") if path else path)


def _parsed(value: str) -> Any:
    if not value.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def mixed_parts(names: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Return the names of training and of held-out data if both are among the names; else None.

    The folder that all names share does not count.

    >>> mixed_parts(["test/train-0.csv", "test/train-1.csv", "test/dev-0.csv", "test/latest.csv"])
    (['test/train-0.csv', 'test/train-1.csv'], ['test/dev-0.csv'])
    """
    folders = [name.rpartition("/")[0] for name in names]
    shared = len(os.path.commonpath(folders)) if all(folders) else 0
    words = {name: {*re.findall(r"[a-z]+", name[shared:].lower())} for name in names}
    train = [name for name, own in words.items() if own & _TRAIN]
    held_out = [name for name, own in words.items() if own & _HELD_OUT and not own & _TRAIN]
    return (train, held_out) if train and held_out else None


def parts_of_column(values: Iterable[object]) -> list[str] | None:
    """Return the data sets that a column names if training and held-out data are among them; else None.

    >>> parts_of_column(["train", "train", "test"]), parts_of_column(["train"]), parts_of_column([1, None])
    (['train', 'test'], None, None)
    """
    names = [*dict.fromkeys(value for value in values if isinstance(value, str))]
    plain = {name.lower() for name in names}
    is_mixed = plain <= _TRAIN | _HELD_OUT and plain & _TRAIN and plain & _HELD_OUT
    return names if is_mixed else None
