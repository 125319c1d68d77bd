"""The filters of a recipe, judged again over the stored columns of ``documents``, without text.

A rule over signals gives the verdict that a run gives, for each document whose signals are stored. What a
rule cannot tell (a Python function's verdict, a condition on text) is known for the documents that came
to it: those that no stage before it had rejected. For others it is unknown, and never guessed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

import schemas
from etl.errors import TableError
from etl.stages import Filter, Stage, Transform
from etl.stages.apply import runs
from etl.stages.signals import SIGNALS

# Null for rejected rows, or no column of a rule.
_UNKEPT: Final = ("text", "content_hash", "verdict")
_FIXED: Final = frozenset(schemas.documents([]).names) - {*_UNKEPT}
_LANGUAGE: Final = frozenset({"lang", "lang_score"})
KEPT: Final = 1 << 30
"""After all places: no stage rejected it."""


@dataclass(frozen=True, kw_only=True)
class Judge:
    """A filter or transform in its place, and where the table keeps what its rules read."""

    place: int  # from 1, among the filters and transforms
    stage: Filter | Transform
    columns: dict[str, str]  # signal -> the column that holds it, of all signals at this place
    seen_from: int  # it has seen the documents that were not rejected before this place

    @property
    def is_opaque(self) -> bool:
        """Whether no columns tell its verdict."""
        if not self.stage.rules():
            return type(self.stage).reasons is not Stage.reasons
        return "text" in self.reads

    @property
    def reads(self) -> set[str]:
        """The signals that its rules read."""
        return {n for rule in self.stage.rules().values() for n in rule.meta.root_names()}

    @property
    def labels(self) -> list[str]:
        """The reasons that its rules give."""
        return [f"{self.stage.kind}.{name}" for name in self.stage.rules()]

    @property
    def name(self) -> str:
        """Place and kind, as in ``3 python``."""
        return f"{self.place} {self.stage.kind}"

    def missing(self) -> list[str]:
        """The signals that its rules read and no column holds."""
        return [] if self.is_opaque else sorted(self.reads - {*self.columns})


def judges(stages: Sequence[Stage], *, has_all_signals: bool) -> list[Judge]:
    """The filters and transforms of the recipe that made a table.

    ``has_all_signals``: it holds the signals of rejected documents, too.
    """
    found: list[Judge] = []
    last_cut = 0  # of the transforms that rewrite only what is still kept
    has_language = False
    for run in runs(stages):
        has_language |= any(_LANGUAGE & {*step.stage.signals()} for step in run)
        columns = {name: name for name in _FIXED if has_language or name not in _LANGUAGE}
        columns |= {name: column for step in run for name, column in step.columns.items()}
        for place, stage, _ in run:
            if stage.costly and isinstance(stage, Transform):
                last_cut = place
            sees_all = has_all_signals and not stage.sees_kept_only()
            seen_from = last_cut if sees_all else place
            found.append(Judge(place=place, stage=stage, columns=columns, seen_from=seen_from))
    return found


def with_stages(found: Sequence[Judge], stages: Iterable[Stage]) -> list[Judge]:
    """The same places with other settings."""
    others = [stage for stage in stages if isinstance(stage, Filter | Transform)]
    return [replace(judge, stage=stage) for judge, stage in zip(found, others, strict=True)]


def columns_of(*recipes: Sequence[Judge]) -> list[str]:
    """The columns of ``documents`` that judging by these takes, ``reason`` among them."""
    asked = {
        judge.columns[name]
        for recipe in recipes
        for judge in recipe
        if not judge.is_opaque
        for name in judge.reads
    }
    return ["reason", *sorted(asked)]


def reached(frame: pl.DataFrame, made_by: Sequence[Judge]) -> pl.Series:
    """The place that rejected each row: int32; ``KEPT`` for kept rows, 0 for what could not be read.

    ``frame`` has the columns of ``columns_of``. Raises TableError if these do not give the stored reasons.
    """
    kinds = [judge.stage.kind for judge in made_by]
    kind = pl.col("reason").str.split(".").list.first()
    unread = pl.col("reason").is_not_null() & ~kind.is_in(kinds)
    state = frame.select(
        "reason",
        place=pl.when(unread).then(pl.lit(0, pl.Int32)),
        found=pl.when(unread).then("reason"),
    )
    for judge in made_by:
        state = state.with_columns(
            _verdict(frame, judge), given=_given(judge, made_by), is_open=pl.col("place").is_null()
        )
        verdict = pl.coalesce("given", _in_full(judge))
        here = pl.col("is_open") & verdict.is_not_null()
        state = state.with_columns(
            place=pl.when(here).then(pl.lit(judge.place, pl.Int32)).otherwise("place"),
            found=pl.when(here).then(verdict).otherwise("found"),
        )
    wrong = state.filter(~pl.col("found").eq_missing(pl.col("reason")))
    if wrong.height:
        found, reason = wrong.row(0, named=True)["found"], wrong.row(0, named=True)["reason"]
        raise TableError(
            f"the signals of {wrong.height} documents do not give their reasons "
            f"({found or 'kept'} instead of {reason or 'kept'})",
            hint="another version of the code has made the table: run again with --rebuild",
        )
    return state["place"].fill_null(KEPT)


def judge_again(frame: pl.DataFrame, place: pl.Series, recipe: Sequence[Judge]) -> pl.DataFrame:
    """What becomes of each row: ``then`` (string, its reason; null: kept), ``unknown`` (int32, a place).

    ``place`` is that of ``reached``. A row with ``unknown`` would come to the stage at that place, and what
    this says of it is not stored.
    """
    state = frame.select(
        "reason",
        place,
        then=pl.when(place == 0).then("reason"),
        unknown=pl.lit(None, pl.Int32),
    )
    for judge in recipe:
        was_here = pl.col("place") == judge.place
        if judge.is_opaque:
            verdict: pl.Expr = pl.when(was_here).then("reason")
            missing = pl.col("place") < judge.place
        else:
            its_own = pl.when(was_here).then(_given(judge, recipe))
            in_full = pl.when(was_here).then(_in_full(judge)).otherwise("verdict")
            verdict = pl.coalesce(its_own, in_full)
            missing = pl.col("missing")
        is_open = pl.col("then").is_null() & pl.col("unknown").is_null()
        state = state.with_columns(
            _verdict(frame, judge), _missing(frame, place, judge), is_open=is_open
        )
        state = state.with_columns(
            then=pl.when(pl.col("is_open") & ~missing).then(verdict).otherwise("then"),
            unknown=pl.when(pl.col("is_open") & missing)
            .then(pl.lit(judge.place, pl.Int32))
            .otherwise("unknown"),
        )
    return state.select("then", "unknown")


def _verdict(frame: pl.DataFrame, judge: Judge) -> pl.Series:
    """What the rules say of every row, seen by the stage or not; null where nothing can be said."""
    rules = judge.stage.rules()
    if judge.is_opaque or not rules:
        return pl.repeat(None, frame.height, dtype=pl.String, eager=True).alias("verdict")
    reads = [pl.col(judge.columns[name]).alias(name) for name in sorted(judge.reads)]
    said = [
        pl.when(rule).then(pl.lit(label))
        for label, rule in zip(judge.labels, rules.values(), strict=True)
    ]
    view = frame.select("reason", *reads)  # as many rows, also where no rule reads a column
    return view.with_columns(verdict=pl.coalesce(said).cast(pl.String))["verdict"]


def _in_full(judge: Judge) -> pl.Expr:
    """Column ``verdict``, or the stored reason where the stage has said more than the name of a rule."""
    if type(judge.stage).reasons is Stage.reasons:
        return pl.col("verdict")
    reason, verdict = pl.col("reason"), pl.col("verdict")
    more = reason.str.starts_with(f"{judge.stage.kind}.") & ~reason.is_in(judge.labels)
    return pl.when(verdict.is_not_null() & more).then(reason).otherwise(verdict)


def _missing(frame: pl.DataFrame, place: pl.Series, judge: Judge) -> pl.Series:
    """Whether the rules' signals of a row were never computed."""
    names = [judge.columns[n] for n in judge.reads if n in SIGNALS and not judge.is_opaque]
    is_null = pl.any_horizontal(pl.col(names).is_null()) if names else pl.lit(False)
    unseen = (place < judge.seen_from) | (is_null & (place < judge.place))
    return frame.with_columns(missing=unseen)["missing"]


def _given(judge: Judge, made_by: Sequence[Judge]) -> pl.Expr:
    """The stored reason, where only this stage can have given it and its rules do not tell.

    A transform may reject of itself, without a rule; it is ``costly`` then, or nobody knows what it
    would say of documents that are rejected already.
    """
    reason = pl.col("reason")
    if judge.is_opaque and judge.labels:
        return pl.when(reason.is_in(judge.labels)).then(reason)
    if not judge.is_opaque and not isinstance(judge.stage, Transform):
        return pl.lit(None, pl.String)
    kind = judge.stage.kind
    others = [label for other in made_by if other.stage.kind == kind for label in other.labels]
    return pl.when(reason.str.starts_with(f"{kind}.") & ~reason.is_in(others)).then(reason)
