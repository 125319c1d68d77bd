"""What a stage is: a frozen model with one method over an Arrow table."""

from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

Rules = dict[str, pl.Expr]
"""Rule name -> a boolean expression over signals; the first that holds rejects the document."""


Limit = float | pl.Expr | None
"""What a signal is compared with: a number, or an expression over columns; None and null are no limit."""


def below(signal: pl.Expr, limit: Limit) -> pl.Expr:
    """The rule that a signal is less than a limit; None is no limit."""
    return signal < (limit if isinstance(limit, pl.Expr) else pl.lit(limit))


def above(signal: pl.Expr, limit: Limit) -> pl.Expr:
    """The rule that a signal is more than a limit; None is no limit."""
    return signal > (limit if isinstance(limit, pl.Expr) else pl.lit(limit))


def _roots(rules: Rules) -> list[str]:
    """The columns that rules read."""
    return list(dict.fromkeys(n for rule in rules.values() for n in rule.meta.root_names()))


class Stage(BaseModel):
    """One step of a recipe; unknown keys are refused and types are not coerced."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: str
    shorthand: ClassVar[str | None] = None  # the field that a bare value in a recipe sets
    paths: ClassVar[tuple[str, ...]] = ()  # the fields that hold a path or URL
    costly: ClassVar[bool] = False  # too much so for what a filter before it has rejected
    # The fields that rules() alone reads, of a stage that makes signals or rewrites text; of others: all.
    thresholds: ClassVar[tuple[str, ...]] = ()

    def columns(self) -> dict[str, str]:
        """The signals that the stage itself makes, float64, each with its unit; they begin with its kind."""
        return {}

    def rules(self) -> Rules:
        """The rules over signals, in order; the first that holds gives ``kind.rule`` as reason."""
        return {}

    def signals(self) -> list[str]:
        """The columns that the stage reads; those of its rules, unless it says otherwise."""
        return _roots(self.rules())

    def reasons(self, table: pa.Table) -> pa.Array:
        """For each row null (kept), or ``kind.rule`` of the first rule that holds.

        The table has the columns that the rules read; a rule that is null does not reject.
        """
        rules = self.rules()
        if not rules:
            return pa.nulls(table.num_rows, pa.string())
        verdict = pl.coalesce(
            [pl.when(rule).then(pl.lit(f"{self.kind}.{name}")) for name, rule in rules.items()]
        ).cast(pl.String)
        frame = pl.DataFrame(table.select(_roots(rules)))
        column = frame.select(reason=verdict)["reason"].to_arrow()
        return column.cast(pa.string())

    def sees_kept_only(self) -> bool:
        """Whether it sees only what no filter before it has rejected: it is costly, or reads text itself.

        What a stage without columns makes of a text leaves no trace that other thresholds could be tried on.
        """
        return self.costly or ("text" in self.signals() and not self.columns())

    def check(self) -> None:
        """Raise what a user can mend, before any work is done: a list, a function, a label not there."""

    def identity(self) -> dict[str, Any]:
        """What decides this stage's result, for the fingerprint; a file counts by its content."""
        return self.model_dump(mode="json")


class Filter(Stage):
    """A stage that keeps or rejects documents and changes none."""

    def measure(self, table: pa.Table) -> pa.Table:
        """The stage's own signals, row for row: a table of ``columns()``, float64, null where unknown.

        The table has the columns named by ``signals()``, as far as they are there already.
        """
        raise NotImplementedError


class Transform(Stage):
    """A stage that rewrites documents; signals needed after it are computed anew.

    Its rules, over its own signals, judge the document as it stands rewritten.
    """

    def apply(self, table: pa.Table) -> pa.Table:
        """The table with its text rewritten and ``columns()`` in it, row for row."""
        raise NotImplementedError
