"""The Where stage: filter documents by an SQL expression over their columns."""

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, Self

import polars as pl
from polars.exceptions import PolarsError
from pydantic import Field, model_validator

from etl.stages.base import Filter, Rules
from etl.stages.signals import SIGNALS, signals_identity

_TYPES: Final = {
    **dict.fromkeys(("id", "source", "text", "url", "lang", "metadata"), pl.String),
    "row": pl.Int64,
}
COLUMNS: Final = {
    name: _TYPES.get(name, pl.Float64) for name in (*_TYPES, "lang_score", "loss", *SIGNALS)
}
"""The columns that an expression may read and their types."""

_WORDS: Final = frozenset(
    "and or not in like ilike rlike regexp between is null true false case when then else end cast as "
    "int integer bigint double float varchar boolean "
    "lower upper length char_length octet_length trim ltrim rtrim substr left right replace reverse "
    "concat starts_with ends_with regexp_like coalesce nullif least greatest "
    "abs ceil floor round sign sqrt ln log".split()
)
"""The words that an expression may contain besides columns; it must depend on one row only.

Subqueries are excluded because Polars could read any file in them, and aggregates because their value would
depend on how the input is split into batches.
"""

_TOKEN: Final = re.compile(
    r"""(?P<comment>--|/\*) | \s+ | '(?:[^']|'')*' | "(?P<quoted>[^"]*)" | (?P<word>[A-Za-z_]\w*)
      | (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w)
      | (?P<operator><> | != | <= | >= | \|\| | !?~\*? | [-+*/%<>=]) | [(),] | (?P<other>.)""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)

_MAX_PARTS: Final = 250
"""Columns, words and operators in an expression. Polars crashes at a chain of 500 ``||``, and the time for
chains and lists of columns grows with their square: 0.5 s for 250 (measured with Polars 2.1)."""

_SHOWN_CHARS: Final = 200  # of an expression in an error


class Where(Filter):
    """Keep documents for which ``keep`` is true; if it is false or null, the reason is ``where.<name>``.

    ``keep`` is a Polars SQL expression over the columns of ``documents``, with the signals and, after a stage
    ``loss``, the loss. It can compare, calculate, match (LIKE, RLIKE) and call functions such as length and
    coalesce, for one row at a time. It may have 250 columns, words and operators, besides any number of
    literals in lists, and about 40 levels of parentheses.

    >>> sorted(Where(keep="num_words > 50 AND url NOT LIKE '%forum%'").signals())
    ['num_words', 'url']
    """

    kind: Literal["where"] = "where"
    shorthand = "keep"
    keep: str
    name: str = Field(default="condition", min_length=1)

    @model_validator(mode="after")
    def _check_condition(self) -> Self:
        _check_words(self.keep)
        shown = _shown(self.keep)
        empty = pl.DataFrame(schema=COLUMNS)
        try:
            type_ = empty.lazy().select(keep=pl.sql_expr(self.keep)).collect_schema()["keep"]
            empty.select(pl.sql_expr(self.keep))
        except PolarsError as error:
            message = _shown(str(error).splitlines()[0])
            raise ValueError(f"{shown} is not a valid SQL expression: {message}") from error
        if type_ != pl.Boolean:
            raise ValueError(f"{shown} has the type {type_}, not Boolean")
        if not self.signals():
            raise ValueError(f"{shown} reads no column")
        return self

    def rules(self) -> Rules:
        """Return the rule ``where.<name>``: the expression is not true."""
        return {self.name: ~pl.sql_expr(self.keep).fill_null(False)}

    def identity(self) -> dict[str, Any]:
        """Return the fields and the identity of the signals that depend on a model or word lists."""
        return super().identity() | signals_identity(self.signals())


def _check_words(expression: str) -> None:
    """Raise ValueError for too many parts, or a word that is not a column or a function of one row."""
    for count, (name, kind) in enumerate(_parts(expression), 1):
        if count > _MAX_PARTS:
            raise ValueError(
                f"{_shown(expression)} has more than {_MAX_PARTS} columns, words and operators; "
                "use IN with a list, RLIKE with alternatives, or several where stages"
            )
        if kind == "operator" or name in COLUMNS or (kind == "word" and name.lower() in _WORDS):
            continue
        known = [*COLUMNS] if kind == "quoted" else [*COLUMNS, *_WORDS]
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"columns are {', '.join(COLUMNS)}"
        problem = f"contains {_shown(name)}, which is not a column or an allowed function"
        raise ValueError(f"{_shown(expression)} {problem}; {hint}")


def _parts(expression: str) -> Iterator[tuple[str, str]]:
    """Yield the words and operators outside string literals, with the name of their group in _TOKEN."""
    for match in _TOKEN.finditer(expression):
        if token := match["comment"] or match["other"]:
            raise ValueError(f"{_shown(expression)} contains {token!r}, which is not allowed here")
        if match.lastgroup is not None:
            yield match[match.lastgroup], match.lastgroup


def _shown(text: str) -> str:
    """Return a text as an error quotes it."""
    return repr(text) if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]!r}..."
