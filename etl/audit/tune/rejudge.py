"""Apply the filters of a recipe again to the stored columns of ``documents``.

A rule over signals gives the same verdict as a run for each document whose signals are stored. The verdict
of a stage without such rules (a Python function, a condition on text) is known only for the documents that
reached it, because no earlier stage rejected them. For all others it is unknown, and never guessed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import polars as pl

from etl import schemas
from etl.errors import TableError
from etl.plural import many
from etl.stages import Filter, Stage, Transform
from etl.stages.base import Rules
from etl.stages.document_columns import split_at_transforms
from etl.stages.signals import SIGNALS

# Columns that are null for rejected rows, or that no rule reads.
_UNKEPT: Final = ("text", "text_bytes", "content_hash", "verdict")
_FIXED: Final = frozenset(schemas.judged([]).names) - {*_UNKEPT}
_LANGUAGE: Final = frozenset({"lang", "lang_score"})
KEPT: Final = 1 << 30
"""The position of kept rows, after the positions of all stages."""
UNREADABLE: Final = 0
"""The position of rows that could not be read."""


@dataclass(frozen=True, kw_only=True)
class StoredFilter:
    """A filter or transform at its position in a recipe, and the columns that hold its signals."""

    position: int  # among the filters and transforms, from 1
    stage: Filter | Transform
    columns: dict[str, str]  # signal -> its column, for all signals at this position
    seen_from: int  # it saw the documents that were not rejected before this position

    @cached_property
    def rules(self) -> Rules:
        """The rules of the stage."""
        return self.stage.rules()

    @cached_property
    def is_opaque(self) -> bool:
        """Whether its verdict cannot be computed from stored columns."""
        if not self.rules:
            return type(self.stage).reasons is not Stage.reasons
        return "text" in self.reads

    @cached_property
    def reads(self) -> set[str]:
        """The signals that its rules read."""
        return {n for rule in self.rules.values() for n in rule.meta.root_names()}

    @cached_property
    def labels(self) -> list[str]:
        """The reasons for rejection that its rules give."""
        return [f"{self.stage.kind}.{name}" for name in self.rules]

    @property
    def name(self) -> str:
        """Position and kind, as in ``3 python``."""
        return f"{self.position} {self.stage.kind}"

    def missing(self) -> list[str]:
        """Return the signals that its rules read but no column holds."""
        return [] if self.is_opaque else sorted(self.reads - {*self.columns})


def stored_filters(stages: Sequence[Stage], *, has_all_signals: bool) -> list[StoredFilter]:
    """Return the filters and transforms of the recipe that made a table.

    With ``has_all_signals``, the table holds the signals of rejected documents too.
    """
    result: list[StoredFilter] = []
    last_rewrite = 0  # position of the last transform that rewrites only documents still kept
    has_language = False
    own: dict[str, str] = {}  # columns that stages compute themselves, also of earlier runs
    for run in split_at_transforms(stages):
        has_language |= any(_LANGUAGE & {*step.reads} for step in run)
        columns = {name: name for name in _FIXED if has_language or name not in _LANGUAGE}
        own |= {name: name for step in run for name in step.stage.columns()}
        columns |= own
        columns |= {name: column for step in run for name, column in step.columns.items()}
        for position, stage, _, _ in run:
            if stage.costly and isinstance(stage, Transform):
                last_rewrite = position
            sees_all = has_all_signals and not stage.sees_kept_only()
            seen_from = last_rewrite if sees_all else position
            result.append(
                StoredFilter(position=position, stage=stage, columns=columns, seen_from=seen_from)
            )
    return result


def with_stages(recipe: Sequence[StoredFilter], stages: Iterable[Stage]) -> list[StoredFilter]:
    """Return the same positions with stages of other settings."""
    others = [stage for stage in stages if isinstance(stage, Filter | Transform)]
    return [replace(judge, stage=stage) for judge, stage in zip(recipe, others, strict=True)]


def columns_of(*recipes: Sequence[StoredFilter]) -> list[str]:
    """Return the columns of ``documents`` that these recipes need, with ``reason``."""
    needed = {
        judge.columns[name]
        for recipe in recipes
        for judge in recipe
        if not judge.is_opaque
        for name in judge.reads
    }
    return ["reason", *sorted(needed)]


def rejecting_stage(frame: pl.DataFrame, made_by: Sequence[StoredFilter]) -> pl.Series:
    """Return the position of the stage that rejected each row, by replaying the original recipe.

    The result is int32: ``KEPT`` for kept rows, 0 for rows that could not be read. ``frame`` has the columns
    of ``columns_of``. Raises TableError if the replay does not reproduce the stored reasons.
    """
    kinds = [judge.stage.kind for judge in made_by]
    rejected_by = pl.col("reason").str.split(".").list.first()
    is_unreadable = pl.col("reason").is_not_null() & ~rejected_by.is_in(kinds)
    state = frame.select(
        "reason",
        position=pl.when(is_unreadable).then(pl.lit(UNREADABLE, pl.Int32)),
        replayed=pl.when(is_unreadable).then("reason"),
    )
    for judge in made_by:
        verdict = _in_full(frame["reason"], rule_verdict(frame, judge), judge, made_by)
        is_rejected = state["position"].is_null() & verdict.is_not_null()
        state = state.with_columns(
            position=pl.when(is_rejected)
            .then(pl.lit(judge.position, pl.Int32))
            .otherwise("position"),
            replayed=pl.when(is_rejected).then(verdict).otherwise("replayed"),
        )
    _check_reasons(state)
    return state["position"].fill_null(KEPT)


def rejudge(
    frame: pl.DataFrame, position: pl.Series, recipe: Sequence[StoredFilter]
) -> pl.DataFrame:
    """Return the outcome of each row under another recipe: columns ``then`` and ``unknown``.

    ``then`` (string) is the reason for rejection, null for kept rows. ``unknown`` (int32) is the position of
    a stage that the row would reach and whose verdict is not stored; ``then`` is null in that case.
    ``position`` is the result of ``rejecting_stage``.
    """
    state = frame.select(
        then=pl.when(position == UNREADABLE).then("reason"),
        unknown=pl.lit(None, pl.Int32),
    )
    for judge in recipe:
        verdict, is_unknown = _new_verdict(frame, position, judge, recipe)
        is_open = state["then"].is_null() & state["unknown"].is_null()
        state = state.with_columns(
            then=pl.when(is_open & ~is_unknown).then(verdict).otherwise("then"),
            unknown=pl.when(is_open & is_unknown)
            .then(pl.lit(judge.position, pl.Int32))
            .otherwise("unknown"),
        )
    return state


def _check_reasons(state: pl.DataFrame) -> None:
    """Raise TableError if the replayed reasons differ from the stored ones."""
    wrong = state.filter(~pl.col("replayed").eq_missing(pl.col("reason")))
    if wrong.height:
        first = wrong.row(0, named=True)
        replayed, stored = first["replayed"] or "kept", first["reason"] or "kept"
        raise TableError(
            f"the signals of {many(wrong.height, 'document')} do not give the stored reasons "
            f"({replayed} instead of {stored})",
            hint="another version of the code made this table: run the recipe again with --rebuild",
        )


def _new_verdict(
    frame: pl.DataFrame, position: pl.Series, judge: StoredFilter, recipe: Sequence[StoredFilter]
) -> tuple[pl.Series, pl.Series]:
    """Return the verdict of a stage with new settings on each row, and whether it is unknown."""
    was_rejected_here = position == judge.position
    if judge.is_opaque:  # only the stored verdicts are known: those on the rows that reached it
        stored = frame.select(verdict=pl.when(was_rejected_here).then("reason"))
        return stored["verdict"], position < judge.position
    by_rules = rule_verdict(frame, judge)
    in_full = _in_full(frame["reason"], by_rules, judge, recipe)
    return in_full.zip_with(was_rejected_here, by_rules), _has_no_signals(frame, position, judge)


def rule_verdict(frame: pl.DataFrame, judge: StoredFilter) -> pl.Series:
    """Return the label of the first rule that rejects each row, whether or not it reached the stage.

    Null for rows that no rule rejects, and for stages without rules over columns.
    """
    if judge.is_opaque or not judge.rules:
        return pl.repeat(None, frame.height, dtype=pl.String, eager=True).alias("verdict")
    signals = [pl.col(judge.columns[name]).alias(name) for name in sorted(judge.reads)]
    rules = enumerate(judge.rules.values())
    first = pl.coalesce(pl.when(rule).then(pl.lit(number, pl.Int16)) for number, rule in rules)
    # ``reason`` gives the frame its height where no rule reads a column.
    rows = frame.select("reason", *signals).select("reason", first=first)
    # A string for each rule and row would take ten times as long.
    return rows.select(verdict=pl.lit(pl.Series(judge.labels)).gather("first"))["verdict"]


def _in_full(
    reason: pl.Series, by_rules: pl.Series, judge: StoredFilter, recipe: Sequence[StoredFilter]
) -> pl.Series:
    """Return the verdict on each row, with the stored reason where it says more than the rules."""
    rows = pl.DataFrame({"reason": reason, "verdict": by_rules})
    verdict = pl.coalesce(_only_stored(judge, recipe), _with_details(judge))
    return rows.select("reason", verdict=verdict)["verdict"]


def _only_stored(judge: StoredFilter, recipe: Sequence[StoredFilter]) -> pl.Expr:
    """Return the stored reason where only this stage can have given it, but not by its rules.

    A transform may reject documents without a rule. It must be ``costly`` then, because its verdict on
    documents that an earlier stage rejected is not stored.
    """
    reason = pl.col("reason")
    if judge.is_opaque and judge.labels:
        return pl.when(reason.is_in(judge.labels)).then(reason)
    if not judge.is_opaque and not isinstance(judge.stage, Transform):
        return pl.lit(None, pl.String)
    kind = judge.stage.kind
    by_rules = [label for other in recipe if other.stage.kind == kind for label in other.labels]
    return pl.when(reason.str.starts_with(f"{kind}.") & ~reason.is_in(by_rules)).then(reason)


def _with_details(judge: StoredFilter) -> pl.Expr:
    """Return column ``verdict``, or the stored reason where the stage added details to its rule."""
    reason, verdict = pl.col("reason"), pl.col("verdict")
    if type(judge.stage).reasons is Stage.reasons:
        return verdict
    has_details = reason.str.starts_with(f"{judge.stage.kind}.") & ~reason.is_in(judge.labels)
    return pl.when(verdict.is_not_null() & has_details).then(reason).otherwise(verdict)


def _has_no_signals(frame: pl.DataFrame, position: pl.Series, judge: StoredFilter) -> pl.Series:
    """Return whether the signals that the rules read were never computed for each row."""
    names = [judge.columns[n] for n in judge.reads if n in SIGNALS and not judge.is_opaque]
    is_null = pl.any_horizontal(pl.col(names).is_null()) if names else pl.lit(False)
    was_skipped = (position < judge.seen_from) | (is_null & (position < judge.position))
    return frame.select("reason", missing=was_skipped)["missing"]
