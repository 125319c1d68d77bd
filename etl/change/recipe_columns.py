"""What the columns of ``documents`` hold under a recipe: which values, and of which rows.

Two recipes compute equal values in columns with equal identities, for all rows that both compute them for.
Which rows these are follows from ``etl.stages.apply``: a costly stage skips the rows that were rejected
before it, and a costly transform also hides them from all later stages.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from etl.stages import Filter, Stage, Transform
from etl.stages.document_columns import PlacedStage, split_at_transforms
from etl.stages.filters.language import labels_of
from etl.stages.signals import SIGNALS, with_needs

Identity = str
"""JSON of all that decides a value besides the text of the record."""

LANGUAGE: Final = ("lang", "lang_score")
"""Columns that every table has; they are null if no stage reads the language."""


@dataclass(frozen=True)
class ColumnIdentity:
    """A column of ``documents``: rows that were rejected before ``seen_from`` have no value."""

    identity: Identity
    seen_from: int  # a position among the filters and transforms, from 1
    made_at: int = 0  # by the stage at this position; 0: before a filter that reads it


@dataclass(frozen=True)
class RecipeColumns:
    """The columns of a recipe whose rejected documents have signals, and the identities of its verdicts."""

    columns: Mapping[str, ColumnIdentity]
    verdicts: Mapping[int, Identity]  # by position: equal if two stages reject the same rows
    transforms: Mapping[int, Transform]  # by position

    @classmethod
    def of(cls, stages: Sequence[Stage], recorded: Sequence[Mapping[str, Any]]) -> Self:
        """Return the columns of stages; ``recorded`` has the identity of each of them, as a record has it."""
        judging = [
            (stage, settings)
            for stage, settings in zip(stages, recorded, strict=True)
            if isinstance(stage, Filter | Transform)
        ]
        settings = {number: each for number, (_, each) in enumerate(judging, 1)}
        builder = _Builder(settings, labels_of(stages), split_at_transforms(stages))
        for run in builder.runs:
            builder.add(run)
        return cls(builder.columns, builder.verdicts, builder.transforms)


class _Builder:
    """Collects the columns run by run."""

    def __init__(
        self,
        settings: Mapping[int, Mapping[str, Any]],
        labels: str,
        runs: Sequence[Sequence[PlacedStage]],
    ) -> None:
        self.runs = runs
        self.columns: dict[str, ColumnIdentity] = {}
        self.verdicts: dict[int, Identity] = {}
        self.transforms: dict[int, Transform] = {}
        self._settings, self._labels = settings, labels
        self._seen_from, self._has_language = 1, False

    def add(self, run: Sequence[PlacedStage]) -> None:
        """Add the columns of a run: what its filters share, and what each stage adds."""
        filters = [step for step in run if isinstance(step.stage, Filter)]
        for step in run:
            if isinstance(step.stage, Transform):
                self._add_own(step, step.position if step.stage.costly else self._seen_from)
                self.transforms[step.position] = step.stage
                if step.stage.costly:
                    self._seen_from = step.position + 1
        names = with_needs(name for step in filters for name in step.reads)
        self._has_language |= any(SIGNALS[name].group == "language" for name in names)
        for step in filters:
            for name in with_needs(step.reads):
                shared = ColumnIdentity(self._shared(name), self._seen_from)
                self.columns.setdefault(step.columns.get(name, name), shared)
        for step in filters:
            self._add_own(step, step.position if step.stage.costly else self._seen_from)

    def _add_own(self, step: PlacedStage, seen_from: int) -> None:
        """Add what a stage computes and decides itself."""
        settings, stage = self._settings[step.position], step.stage
        measured = _without(settings, stage.thresholds)
        read = self._read(step)
        for name in stage.columns():
            self.columns[name] = ColumnIdentity(
                self._identity(name, measured, read), seen_from, step.position
            )
        self.verdicts[step.position] = self._identity(settings, read)

    def _shared(self, name: str) -> Identity:
        """Return the identity of a signal that filters share.

        The language decides how words are split, if it is known.
        """
        is_split = self._has_language or SIGNALS[name].group == "language"
        return self._identity(name, self._labels if is_split else None)

    def _read(self, step: PlacedStage) -> object:
        """Return the identities of what a stage reads besides the text.

        A stage that names nothing gets all columns, so that all stages of the recipe matter.
        """
        if isinstance(step.stage, Transform) or step.reads:
            held = (step.columns.get(name, name) for name in step.reads)
            return {name: self.columns[name].identity for name in held if name in self.columns}
        return [
            (each.reads, _without(self._settings[each.position], each.stage.thresholds))
            for run in self.runs
            for each in run
            if each.position != step.position
        ]

    def _identity(self, *parts: object) -> Identity:
        state = [len(self.transforms), self._has_language, *parts]
        return json.dumps(state, sort_keys=True, ensure_ascii=False)


def _without(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in {*names}}
