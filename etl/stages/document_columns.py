"""The columns that a recipe's stages add to `documents`, and its schema."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from etl import schemas
from etl.stages.base import Filter, Stage, Transform
from etl.stages.dedup_minhash import DedupMinhash
from etl.stages.dedup_paragraphs import DedupParagraphs
from etl.stages.signals import SIGNALS

_FIXED: Final = frozenset(schemas.documents([]).names)  # of every table; lang and its score too


class PlacedStage(NamedTuple):
    """A filter or transform in its place."""

    place: int  # from 1, among the filters and transforms
    stage: Filter | Transform
    columns: Mapping[str, str]  # signal that it reads or makes -> the column that holds it


def split_at_transforms(stages: Iterable[Stage]) -> list[list[PlacedStage]]:
    """The filters and transforms, cut so that a transform begins a run: a run judges one and the same text.

    A signal has the column of its name. If filters before a transform have taken that one already, the
    signal of the rewritten text has a column named after the transform: ``c4_num_words``.

    >>> from etl.stages.filters.where import Where
    >>> [[step]] = split_at_transforms([Where(keep="num_words > 50 AND url IS NOT NULL")])
    >>> step.columns
    {'num_words': 'num_words'}
    """
    cut: list[list[Filter | Transform]] = [[]]
    for stage in stages:
        if isinstance(stage, Transform):
            cut.append([])
        if isinstance(stage, Filter | Transform):
            cut[-1].append(stage)
    found: list[list[PlacedStage]] = []
    taken: set[str] = set()
    place = 0
    for run in cut:
        asked = {name for stage in run for name in stage.signals()} - _FIXED
        shared = {name: _free_name(name, run[0].kind, taken) for name in SIGNALS if name in asked}
        taken |= {*shared.values()}
        steps = []
        for stage in run:
            place += 1
            reads = {name: shared[name] for name in stage.signals() if name in shared}
            steps.append(
                PlacedStage(place, stage, reads | {name: name for name in stage.columns()})
            )
        found.append(steps)
    return found


def _free_name(name: str, kind: str, taken: set[str]) -> str:
    names = (name, f"{kind}_{name}", *(f"{kind}{n}_{name}" for n in range(2, len(taken) + 2)))
    return next(free for free in names if free not in taken)


def signal_names(stages: Iterable[Stage]) -> list[str]:
    """The float columns of these stages: for each run those of ``SIGNALS`` in that order, then the own ones.

    >>> from etl.stages.filters.where import Where
    >>> signal_names([Where(keep="num_words > 50 AND num_chars < 1e6")])
    ['num_chars', 'num_words']
    """
    names: dict[str, None] = {}
    for run in split_at_transforms(stages):
        shared = {name: column for step in run for name, column in step.columns.items()}
        names |= dict.fromkeys(shared[name] for name in SIGNALS if name in shared)
        names |= dict.fromkeys(column for step in run for column in step.stage.columns())
    return [*names]


def documents_schema(stages: Iterable[Stage]) -> pa.Schema:
    """The schema of ``documents`` that these stages give."""
    stages = tuple(stages)
    return schemas.documents(
        signal_names(stages),
        has_signature=any(isinstance(stage, DedupMinhash) for stage in stages),
        has_units=any(isinstance(stage, DedupParagraphs) for stage in stages),
    )
