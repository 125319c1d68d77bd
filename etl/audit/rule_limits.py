"""The limits of a recipe: the numbers that its rules compare signals with, and those that a document fails.

Limits are read from the expressions of the rules, so that a new filter needs nothing for them.
"""

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

from etl import schemas
from etl.audit.tune.rejudge import StoredFilter

Comparison = Literal["<", "<=", ">", ">="]

_COMPARISONS: Final[Mapping[str, Comparison]] = {"Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_OPPOSITE: Final[Mapping[Comparison, Comparison]] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED: Final[Mapping[Comparison, Comparison]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPERATORS: Final[Mapping[Comparison, Callable[[Any, Any], Any]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A comparison in a rule: the rule rejects where ``column comparison value`` holds.

    A rule may combine several; each is a part of its condition.
    """

    stage: int  # position among the filters and transforms, from 1
    rule: str  # as in ``reason``: gopher_quality.short
    column: str  # of ``documents``
    comparison: Comparison
    value: pl.Expr  # a number, or an expression over ``lang``

    def values(self, languages: Iterable[str | None]) -> dict[str | None, float | None]:
        """Return the limit of each language; None where none is set."""
        names = pl.DataFrame({"lang": [*languages]}, schema={"lang": pl.String})
        limits = names.select("lang", limit=self.value.cast(pl.Float64))
        return dict(limits.iter_rows())

    def holds(self, frame: pl.DataFrame) -> pl.Series:
        """Return for each row whether the comparison holds; false where a value is null."""
        holds: pl.Expr = _OPERATORS[self.comparison](pl.col(self.column), self.value)
        return frame.select("lang", holds=holds.fill_null(False))["holds"]


@dataclass(frozen=True, kw_only=True)
class FailedLimit:
    """A limit that a document fails: its value of a signal, and the number that it is compared with."""

    signal: str
    value: float
    comparison: Comparison
    limit: float

    def __str__(self) -> str:
        """Return the comparison, as in ``num_words = 12 < 50``."""
        return f"{self.signal} = {self.value:,.6g} {self.comparison} {self.limit:,.6g}"


def limits_of(filters: Sequence[StoredFilter]) -> list[Limit]:
    """Return the limits of the filters of a recipe that compare stored columns with numbers."""
    return [
        Limit(
            stage=judge.position,
            rule=label,
            column=judge.columns[signal],
            comparison=comparison,
            value=value,
        )
        for judge in filters
        for label, rule in zip(judge.labels, judge.rules.values(), strict=True)
        for signal, comparison, value in _comparisons(rule)
        if judge.columns.get(signal, "text") != "text"
    ]


def failed_limits(document: Mapping[str, Any], limits: Iterable[Limit]) -> list[FailedLimit]:
    """Return the limits of the rule that rejected a document, a row of ``documents``, that it fails."""
    reason = document["reason"]
    if reason is None:
        return []
    failed = []
    for limit in limits:
        if limit.rule == schemas.rule_of(reason) and document.get(limit.column) is not None:
            value = float(document[limit.column])
            number = limit.values([document["lang"]])[document["lang"]]
            if number is not None and _OPERATORS[limit.comparison](value, number):
                failed.append(
                    FailedLimit(
                        signal=limit.column,
                        value=value,
                        comparison=limit.comparison,
                        limit=number,
                    )
                )
    return failed


def _comparisons(
    rule: pl.Expr, *, is_negated: bool = False
) -> Iterator[tuple[str, Comparison, pl.Expr]]:
    """Yield the comparisons of a column with a number in an expression: column, comparison, number.

    >>> [(name, sign) for name, sign, _ in _comparisons(~((pl.col("a") > 3) & (7 > pl.col("b"))))]
    [('a', '<='), ('b', '>=')]
    """
    node = json.loads(rule.meta.serialize(format="json"))
    parts = rule.meta.pop()[::-1]  # the last operand comes first
    comparison = _COMPARISONS.get(node.get("BinaryExpr", {}).get("op"))
    if comparison is not None:
        left, right = parts
        if _is_number(left) and right.meta.is_column():
            left, right, comparison = right, left, _MIRRORED[comparison]
        if left.meta.is_column() and _is_number(right):
            shown = _OPPOSITE[comparison] if is_negated else comparison
            yield left.meta.output_name(), shown, right
        return
    if "Ternary" in node:
        then, otherwise, condition = parts
        if {*condition.meta.root_names()} <= {"lang"}:
            yield from _by_language(
                condition,
                [*_comparisons(then, is_negated=is_negated)],
                [*_comparisons(otherwise, is_negated=is_negated)],
            )
            return
    function = node.get("Function", {}).get("function")
    if function == {"Boolean": "IsNull"}:  # no number decides this
        return
    is_not = function == {"Boolean": "Not"}
    for part in parts:
        yield from _comparisons(part, is_negated=is_negated != is_not)


def _by_language(
    condition: pl.Expr,
    then: Sequence[tuple[str, Comparison, pl.Expr]],
    otherwise: Sequence[tuple[str, Comparison, pl.Expr]],
) -> Iterator[tuple[str, Comparison, pl.Expr]]:
    """Merge the comparisons of two branches whose condition reads the language only."""
    values = [{(name, sign): value for name, sign, value in branch} for branch in (then, otherwise)]
    none = pl.lit(None, pl.Float64)
    for name, sign in dict.fromkeys([*values[0], *values[1]]):
        of_then, of_others = (each.get((name, sign), none) for each in values)
        yield name, sign, pl.when(condition).then(of_then).otherwise(of_others)


def _is_number(expression: pl.Expr) -> bool:
    """Return whether an expression is a number, or one for each language."""
    if not {*expression.meta.root_names()} <= {"lang"} or expression.meta.is_column():
        return False
    empty = pl.LazyFrame(schema={"lang": pl.String})
    return empty.select(value=expression).collect_schema()["value"].is_numeric()
