"""Check SQL conditions over the columns of one row, before Polars evaluates them.

Subqueries are excluded because Polars could read any file in them, and aggregates because their value would
depend on how the rows are split into batches.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

_WORDS: Final = frozenset(
    "and or not in like ilike rlike regexp between is null true false case when then else end cast as "
    "int integer bigint double float varchar boolean "
    "lower upper length char_length octet_length trim ltrim rtrim substr left right replace reverse "
    "concat starts_with ends_with regexp_like coalesce nullif least greatest "
    "abs ceil floor round sign sqrt ln log".split()
)
"""The words that a condition may contain besides columns; it must depend on one row only."""

_TOKEN: Final = re.compile(
    r"""(?P<comment>--|/\*) | \s+ | '(?:[^']|'')*' | "(?P<quoted>[^"]*)" | (?P<word>[A-Za-z_]\w*)
      | (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w)
      | (?P<operator><> | != | <= | >= | \|\| | !?~\*? | [-+*/%<>=]) | [(),] | (?P<other>.)""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)

_MAX_PARTS: Final = 250
"""Columns, words and operators in a condition. Polars crashes at a chain of 500 ``||``, and the time for
chains and lists of columns grows with their square: 0.5 s for 250 (measured with Polars 2.1)."""

_OPERATORS: Final = {"&": "AND", "|": "OR", "!": "NOT", "`": "the name without quotes"}
"""An operator of other languages -> that of SQL."""

_SHOWN_CHARS: Final = 200  # of a condition in an error


def check_condition(condition: str, columns: Mapping[str, Any]) -> list[str]:
    """Return the columns that a condition reads; ``columns`` are those that exist, with their Polars types.

    Raises ValueError if it is not a Boolean SQL expression that reads at least one of the columns.

    >>> check_condition("lang = 'de' AND quality > 0.5", {"lang": pl.String, "quality": pl.Float64})
    ['lang', 'quality']
    """
    _check_words(condition, columns)
    shown = _shown(condition)
    empty = pl.DataFrame(schema=columns)
    try:
        expression = pl.sql_expr(condition)
        type_ = empty.lazy().select(keep=expression).collect_schema()["keep"]
        empty.select(expression)
    except PolarsError as error:
        message = _shown(str(error).splitlines()[0])
        raise ValueError(f"{shown} is not a valid SQL expression: {message}") from error
    if type_ != pl.Boolean:
        raise ValueError(f"{shown} has the type {type_}, not Boolean")
    names = list(dict.fromkeys(expression.meta.root_names()))
    if not names:
        raise ValueError(f"{shown} reads no column")
    return names


def _check_words(condition: str, columns: Mapping[str, Any]) -> None:
    """Raise ValueError for too many parts, or a word that is not a column or a function of one row."""
    for count, (name, kind) in enumerate(_parts(condition), 1):
        if count > _MAX_PARTS:
            raise ValueError(
                f"{_shown(condition)} has more than {_MAX_PARTS} columns, words and operators; "
                "use IN with a list, or RLIKE with alternatives"
            )
        if kind == "operator" or name in columns or (kind == "word" and name.lower() in _WORDS):
            continue
        known = [*columns] if kind == "quoted" else [*columns, *_WORDS]
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"columns are {', '.join(columns)}"
        problem = f"contains {_shown(name)}, which is not a column or an allowed function"
        raise ValueError(f"{_shown(condition)} {problem}; {hint}")


def _parts(condition: str) -> Iterator[tuple[str, str]]:
    """Yield the words and operators outside string literals, with the name of their group in _TOKEN."""
    for match in _TOKEN.finditer(condition):
        if token := match["comment"] or match["other"]:
            word = _OPERATORS.get(token)
            hint = "" if word is None else f"; write {word}"
            raise ValueError(
                f"{_shown(condition)} contains {token!r}, which is not allowed here{hint}"
            )
        if match.lastgroup is not None:
            yield match[match.lastgroup], match.lastgroup


def _shown(text: str) -> str:
    """Return a text as an error quotes it."""
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}..."
