"""Keep documents for which an SQL expression over the columns is true."""

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, Self

import polars as pl
from polars.exceptions import PolarsError
from pydantic import Field, model_validator

from etl.stages.base import Filter, Rules
from etl.stages.signals import SIGNALS, identity

_TYPES: Final = {
    **dict.fromkeys(("id", "source", "text", "url", "lang", "metadata"), pl.String),
    "row": pl.Int64,
}
COLUMNS: Final = {name: _TYPES.get(name, pl.Float64) for name in (*_TYPES, "lang_score", *SIGNALS)}
"""The columns that an expression may read, and their types."""

_WORDS: Final = frozenset(
    "and or not in like ilike rlike regexp between is null true false case when then else end cast as "
    "int integer bigint double float varchar boolean "
    "lower upper length char_length octet_length trim ltrim rtrim substr left right replace reverse "
    "concat starts_with ends_with regexp_like coalesce nullif least greatest "
    "abs ceil floor round sign sqrt ln log".split()
)
"""What an expression may say besides columns: it looks at one row and at nothing else.

So there are no subqueries (Polars would read any file in them) and no aggregates (whose value would
depend on how the input is cut into batches).
"""

_TOKEN: Final = re.compile(
    r"""(?P<comment>--|/\*) | \s+ | '(?:[^']|'')*' | "(?P<quoted>[^"]*)" | (?P<word>[A-Za-z_]\w*)
      | (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w)
      | <> | != | <= | >= | \|\| | !?~\*? | [-+*/%(),<>=] | (?P<other>.)""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)


class Where(Filter):
    """Keep documents for which ``keep`` is true; where it is false or null, the reason is ``where.<name>``.

    An expression of SQL over the columns of ``documents``, signals included, as Polars reads it. It can
    compare, calculate, match (LIKE, RLIKE) and call the functions listed here, for one row at a time.

    >>> sorted(Where(keep="num_words > 50 AND url NOT LIKE '%forum%'").signals())
    ['num_words', 'url']
    """

    kind: Literal["where"] = "where"
    shorthand = "keep"
    keep: str
    name: str = Field(default="condition", min_length=1)

    @model_validator(mode="after")
    def _is_condition(self) -> Self:
        _check_words(self.keep)
        empty = pl.DataFrame(schema=COLUMNS)
        try:
            found = empty.lazy().select(keep=pl.sql_expr(self.keep)).collect_schema()["keep"]
            empty.select(pl.sql_expr(self.keep))
        except PolarsError as error:
            message = str(error).splitlines()[0]
            raise ValueError(f"{self.keep!r} is no SQL expression: {message}") from error
        if found != pl.Boolean:
            raise ValueError(f"{self.keep!r} gives {found}, not true or false")
        if not self.signals():
            raise ValueError(f"{self.keep!r} reads no column")
        return self

    def rules(self) -> Rules:
        """``where.<name>``, where the expression is not true."""
        return {self.name: ~pl.sql_expr(self.keep).fill_null(False)}

    def identity(self) -> dict[str, Any]:
        """The fields, and what decides signals that are found by a model or a list."""
        return super().identity() | identity(self.signals())


def _check_words(expression: str) -> None:
    """Refuse every word that is no column, operator or function of one row; raises ValueError."""
    for name, is_column in _names(expression):
        if name in COLUMNS or (not is_column and name.lower() in _WORDS):
            continue
        known = [*COLUMNS] if is_column else [*COLUMNS, *_WORDS]
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"columns are {', '.join(COLUMNS)}"
        raise ValueError(f"{expression!r} says {name!r}, which is no column or function; {hint}")


def _names(expression: str) -> Iterator[tuple[str, bool]]:
    """The words outside of strings, and whether each is in the quotes of a column's name."""
    for match in _TOKEN.finditer(expression):
        if found := match["comment"] or match["other"]:
            raise ValueError(f"{expression!r} has {found!r}, which no condition needs")
        if match["word"] is not None:
            yield match["word"], False
        elif match["quoted"] is not None:
            yield match["quoted"], True
