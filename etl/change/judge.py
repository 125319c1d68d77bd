"""Judge documents by another recipe from their stored columns, as far as these say what a run would.

A rule over columns that both recipes compute gives the same verdict as a run. So does a rule over columns
that are computed from an address, an id, a URL or a content hash alone, such as annotations. The verdict of
any other stage is known only if it is a stage of the old recipe, too, and for the documents that had reached
it. Whatever is not known is never guessed: such a document is judged again from its text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import polars as pl
import pyarrow as pa

from etl import schemas
from etl.audit.tune.rejudge import (
    KEPT,
    UNREADABLE,
    StoredFilter,
    rejecting_stage,
    rule_verdict,
    stored_filters,
)
from etl.change.recipe_columns import LANGUAGE, RecipeColumns
from etl.schemas import ADDRESS, CONTENT_HASH
from etl.stages import Filter, Stage
from etl.stages.document_columns import signal_names
from etl.stages.filters.python import Python

_BY_COLUMNS: Final = (Stage.reasons, Python.reasons)
"""What gives reasons by nothing but rules, if a stage has rules: other stages add details."""

_SCHEMA: Final = schemas.documents([])
_UNCHANGED: Final = frozenset({*ADDRESS, "id", "url", CONTENT_HASH.name})
"""Stored columns that are as a stage reads them: no transform changes them, and a content hash is read after
the last transform."""


@dataclass(frozen=True)
class Judge:
    """Two recipes, of which the old one made the stored columns."""

    old_stages: Sequence[Stage]
    new_stages: Sequence[Stage]
    old: RecipeColumns
    new: RecipeColumns

    @cached_property
    def _made_by(self) -> list[StoredFilter]:
        return stored_filters(self.old_stages, has_all_signals=True)

    @cached_property
    def _judges(self) -> list[StoredFilter]:
        return stored_filters(self.new_stages, has_all_signals=True)

    @cached_property
    def _names(self) -> list[str]:
        """The columns that the new recipe may compute."""
        return [*dict.fromkeys([*LANGUAGE, *signal_names(self.new_stages)])]

    @cached_property
    def sources(self) -> Mapping[str, str | None]:
        """The columns that the new recipe computes, each with the stored column of its values."""
        stored = {column.identity: name for name, column in self.old.columns.items()}
        return {name: stored.get(column.identity) for name, column in self.new.columns.items()}

    @cached_property
    def measuring(self) -> Sequence[Filter]:
        """The filters of the new recipe with columns that are not stored, and need no text."""
        return [
            stage
            for stage in self.new_stages
            if isinstance(stage, Filter)
            and any(self.sources[name] is None for name in stage.columns())
            and _UNCHANGED.issuperset(keys := _keys_of(stage))
            and keys
        ]

    @cached_property
    def reads(self) -> list[str]:
        """The stored columns that ``judge`` needs."""
        old = (
            judge.columns[n] for judge in self._made_by if _has_rules(judge) for n in judge.reads
        )
        new = (n for judge in self._judges if _decides_by_columns(judge) for n in judge.reads)
        fixed = (name for name in new if name not in self.new.columns)
        stored = (name for name in self.sources.values() if name is not None)
        held = (name for name in self.new.columns if name in self.old.columns)
        keys = (name for stage in self.measuring for name in _keys_of(stage))
        names = [*ADDRESS, "reason", *LANGUAGE, *old, *fixed, *stored, *held, *keys]
        return [*dict.fromkeys(names)]

    def judge(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return ``then``, the new reason of each row (null: kept), ``is_known``, and the new columns.

        ``frame`` has the columns ``reads``. Of rows that are not known, the other values mean nothing. Raises
        TableError if the old recipe does not give the stored reasons.
        """
        before = rejecting_stage(frame, self._made_by)
        values = self._values(frame, before)
        state = frame.select(
            then=pl.when(before == UNREADABLE).then("reason"),
            after=pl.when(before == UNREADABLE).then(pl.lit(UNREADABLE)).otherwise(pl.lit(KEPT)),
            is_known=pl.lit(value=True),
        )
        for judge in self._judges:
            verdict, is_known = self._verdict(frame, before, values, judge)
            is_open = (state["after"] == KEPT) & state["is_known"]
            rejects = is_open & is_known & verdict.is_not_null()
            state = state.with_columns(
                then=pl.when(rejects).then(verdict).otherwise("then"),
                after=pl.when(rejects).then(pl.lit(judge.position)).otherwise("after"),
                is_known=pl.col("is_known") & (is_known | ~is_open),
            )
        return self._with_columns(frame, state, before, values)

    def _values(
        self, frame: pl.DataFrame, before: pl.Series
    ) -> dict[str, tuple[pl.Series, pl.Series]]:
        """Return the values of the new columns that need no text, and for which rows they are."""
        always = pl.repeat(True, frame.height, eager=True)
        values = {
            name: (frame[stored], before >= self.old.columns[stored].seen_from)
            for name, stored in self.sources.items()
            if stored is not None
        }
        for stage in self.measuring:
            read = [field for field in _SCHEMA if field.name in _keys_of(stage)]
            names = [field.name for field in read]
            rows = frame.select(names).to_arrow().cast(pa.schema(read)).select(names)
            measured = pl.DataFrame(stage.measure(rows)).cast(pl.Float64)
            values |= {name: (measured[name], always) for name in stage.columns()}
        return values

    def _verdict(
        self,
        frame: pl.DataFrame,
        before: pl.Series,
        values: Mapping[str, tuple[pl.Series, pl.Series]],
        judge: StoredFilter,
    ) -> tuple[pl.Series, pl.Series]:
        """Return the reasons that a stage of the new recipe gives, and for which rows they are known."""
        always, never = (pl.repeat(known, frame.height, eager=True) for known in (True, False))
        if _decides_by_columns(judge):
            computed = {n: judge.columns.get(n, n) for n in judge.reads}
            held = {n: c for n, c in computed.items() if c in self.new.columns}
            is_made = all(self.new.columns[c].made_at <= judge.position for c in held.values())
            if not is_made or not all(column in values for column in held.values()):
                return frame["reason"], never
            given = frame.with_columns(values[c][0].alias(c) for c in held.values())
            is_known = always
            for column in held.values():
                is_known &= values[column][1]
            return rule_verdict(given, judge), is_known
        is_plain = isinstance(judge.stage, Filter) and not judge.rules
        if is_plain and type(judge.stage).reasons is Stage.reasons:
            return pl.repeat(None, frame.height, dtype=pl.String, eager=True), always
        identity = self.new.verdicts[judge.position]
        position = next((n for n, each in self.old.verdicts.items() if each == identity), None)
        if position is None:
            return frame["reason"], never
        reason = frame.select(verdict=pl.when(before == position).then("reason"))["verdict"]
        return reason, before >= position

    def _with_columns(
        self,
        frame: pl.DataFrame,
        state: pl.DataFrame,
        before: pl.Series,
        values: Mapping[str, tuple[pl.Series, pl.Series]],
    ) -> pl.DataFrame:
        """Return the outcome with the new columns; rows of which one is not stored are not known."""
        after, is_known = state["after"], state["is_known"]
        # A costly transform rewrites what was not rejected before it: what it made of a row is stored only if
        # it has rewritten the row then, and the text before it only if it has not.
        olds = [n for n, transform in self.old.transforms.items() if transform.costly]
        news = [n for n, transform in self.new.transforms.items() if transform.costly]
        for old, new in zip(olds, news, strict=True):
            is_known &= (before >= old) == (after >= new)
        columns: dict[str, pl.Series] = {}
        for name in self._names:
            kind = pl.String if name == "lang" else pl.Float64
            null = pl.repeat(None, frame.height, dtype=kind, eager=True)
            if name not in self.new.columns:
                columns[name] = null
                continue
            has_value = after >= self.new.columns[name].seen_from
            stored, is_stored = values.get(name, (null, pl.repeat(False, frame.height, eager=True)))
            is_known &= is_stored | ~has_value
            columns[name] = stored.zip_with(has_value & is_stored, null)
        outcome = {"then": state["then"], "is_known": is_known}
        return pl.DataFrame({**outcome, **columns})


def _keys_of(stage: Filter) -> set[str]:
    """Return what a filter reads besides its own columns."""
    return {*stage.signals()} - {*stage.columns()}


def _has_rules(judge: StoredFilter) -> bool:
    return bool(judge.rules) and not judge.is_opaque


def _decides_by_columns(judge: StoredFilter) -> bool:
    """Return whether a stage rejects by rules over columns alone, without details."""
    by_rules = _has_rules(judge) and type(judge.stage).reasons in _BY_COLUMNS
    return by_rules and isinstance(judge.stage, Filter)
