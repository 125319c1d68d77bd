"""The Where stage: filter documents by an SQL expression over their columns."""

import re
from typing import Any, Final, Literal, Self

import polars as pl
from pydantic import Field, model_validator

from etl.row_condition import check_condition
from etl.stages.base import Filter, Rules
from etl.stages.filters.annotate import PREFIX
from etl.stages.signals import SIGNALS, signals_identity

_TYPES: Final = {
    **dict.fromkeys(("id", "source", "text", "url", "lang", "metadata"), pl.String),
    "row": pl.Int64,
}
COLUMNS: Final = {
    name: _TYPES.get(name, pl.Float64) for name in (*_TYPES, "lang_score", "loss", *SIGNALS)
}
"""The columns that an expression may read and their types, besides annotations."""

_NAME: Final = "condition"


class Where(Filter):
    """Keep documents for which ``keep`` is true; if it is false, the reason is ``where.<name>``.

    The expression is null if a column that it depends on is null: ``url NOT LIKE '%forum%'`` is null for a
    document without a URL. Such a document is rejected as ``where.unknown`` (``where.<name>_unknown`` if the
    stage has a name), or kept with ``unknown: keep``. ``coalesce(url, '') NOT LIKE '%forum%'`` is never null.

    ``keep`` is a Polars SQL expression over ``text`` and the columns of ``documents``, with the signals and,
    after the stages ``loss`` and ``annotate``, their columns. It can compare, calculate, match (LIKE, RLIKE)
    and call functions such as length and coalesce, for one row at a time. It may have 250 columns, words and
    operators, besides any number of literals in lists, and about 40 levels of parentheses.

    >>> sorted(Where(keep="num_words > 50 AND url NOT LIKE '%forum%'").signals())
    ['num_words', 'url']
    """

    kind: Literal["where"] = "where"
    example = "where: num_words > 50 AND coalesce(url, '') NOT LIKE '%forum%'"
    shorthand = "keep"
    keep: str
    """The SQL expression that is true for documents to keep."""
    name: str = Field(default=_NAME, min_length=1)
    """The name in the reason of rejected documents: ``where.<name>``."""
    unknown: Literal["reject", "keep"] = "reject"
    """What to do with documents for which the expression is null."""

    @model_validator(mode="after")
    def _check_condition(self) -> Self:
        annotations = re.findall(rf"\b{PREFIX}\w+", self.keep)
        check_condition(self.keep, COLUMNS | dict.fromkeys(annotations, pl.Float64))
        return self

    def rules(self) -> Rules:
        """Return the rule ``where.<name>``, that the expression is false, and the rule that it is null."""
        expression = pl.sql_expr(self.keep)
        rules = {self.name: ~expression}
        return (
            rules if self.unknown == "keep" else rules | {self.unknown_rule: expression.is_null()}
        )

    @property
    def unknown_rule(self) -> str:
        """The name of the rule that the expression is null."""
        return "unknown" if self.name == _NAME else f"{self.name}_unknown"

    def identity(self) -> dict[str, Any]:
        """Return the fields and the identity of the signals that depend on a model or word lists."""
        return super().identity() | signals_identity(self.signals())
