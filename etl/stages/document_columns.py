"""The columns that a recipe's stages add to `documents` and `texts`, and the schemas of these."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from etl import schemas
from etl.stages.base import Filter, Stage, Transform
from etl.stages.dedup_base import DedupStage, dedup_stages
from etl.stages.dedup_exact import DedupExact
from etl.stages.signals import SIGNALS, with_needs

_FIXED: Final = frozenset(schemas.judged([]).names)  # in every table; lang and its score too


class PlacedStage(NamedTuple):
    """A filter or transform and its position in the recipe."""

    position: int  # from 1, counting filters and transforms only
    stage: Filter | Transform
    reads: tuple[str, ...]  # ``stage.signals()``, which builds all expressions of the stage's rules
    columns: Mapping[str, str]  # signal read or computed by the stage -> the column that holds it


def split_at_transforms(stages: Iterable[Stage]) -> list[list[PlacedStage]]:
    """Group the filters and transforms into runs: the filters of a run judge the same text.

    A transform changes the text, so it begins a new run. Each signal is stored in the column of its name.
    If an earlier run already uses that column, the column's name begins with the kind of the transform:
    ``c4_num_words``.

    >>> from etl.stages.filters.where import Where
    >>> [[step]] = split_at_transforms([Where(keep="num_words > 50 AND url IS NOT NULL")])
    >>> step.columns
    {'num_words': 'num_words'}
    """
    result: list[list[PlacedStage]] = []
    used: set[str] = set()  # columns that hold signals of earlier runs
    num_steps = 0
    for run in _split_stages(stages):
        reads = [tuple(stage.signals()) for stage in run]
        shared = _signal_columns(reads, run[0].kind if run else "", used)
        used.update(shared.values())
        result.append(
            [
                PlacedStage(position, stage, names, _columns_of(stage, names, shared))
                for position, (stage, names) in enumerate(
                    zip(run, reads, strict=True), num_steps + 1
                )
            ]
        )
        num_steps += len(run)
    return result


def _split_stages(stages: Iterable[Stage]) -> list[list[Filter | Transform]]:
    """Return the filters and transforms in lists, of which all but the first begin with a transform."""
    split: list[list[Filter | Transform]] = [[]]
    for stage in stages:
        if isinstance(stage, Transform):
            split.append([stage])
        elif isinstance(stage, Filter):
            split[-1].append(stage)
    return split


def _signal_columns(reads: Iterable[Iterable[str]], kind: str, used: set[str]) -> dict[str, str]:
    """Return the columns of the signals in ``SIGNALS`` that a run of stages reads, given its first kind."""
    names = {name for of_stage in reads for name in of_stage} - _FIXED
    return {name: _free_name(name, kind, used) for name in SIGNALS if name in names}


def _columns_of(stage: Stage, reads: Iterable[str], shared: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of the signals that a stage reads or computes itself."""
    columns = {name: shared[name] for name in reads if name in shared}
    return columns | {name: name for name in stage.columns()}


def _free_name(name: str, kind: str, used: set[str]) -> str:
    names = (name, f"{kind}_{name}", *(f"{kind}{n}_{name}" for n in range(2, len(used) + 2)))
    return next(free for free in names if free not in used)


def signal_names(stages: Iterable[Stage]) -> list[str]:
    """Return the float columns of these stages: per run the shared signals, then the stages' own.

    Shared signals are in the order of ``SIGNALS``.

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


def identifies_languages(stages: Iterable[Stage]) -> bool:
    """Return whether documents may have a language: a stage reads it, or code of the user may set it.

    >>> from etl.stages.filters.length import Length
    >>> identifies_languages([Length(min_words=5)])
    False
    """
    steps = [step for run in split_at_transforms(stages) for step in run]
    reads = with_needs(name for step in steps for name in step.reads)
    is_read = any(SIGNALS[name].group == "language" for name in reads)
    return is_read or any(
        isinstance(step.stage, Transform) and step.stage.user_code() is not None for step in steps
    )


def documents_schema(stages: Iterable[Stage]) -> pa.Schema:
    """Return the schema of the ``documents`` table that these stages produce."""
    return schemas.documents(signal_names(stages))


def texts_schema(stages: Iterable[Stage]) -> pa.Schema:
    """Return the schema of the ``texts`` table that these stages produce."""
    return schemas.texts(_dedup_columns(stages))


def judged_schema(stages: Iterable[Stage]) -> pa.Schema:
    """Return the schema of the documents that these stages have judged: the columns of both tables."""
    stages = tuple(stages)
    return schemas.judged(signal_names(stages), _dedup_columns(stages))


def _dedup_columns(stages: Iterable[Stage]) -> list[pa.Field]:
    return [field for stage in describing_stages(stages) for field in stage.document_columns()]


def describing_stages(stages: Iterable[Stage]) -> tuple[DedupStage, ...]:
    """Return the deduplication stages that add columns to ``texts``.

    Every lake has ``content_hash``: without a stage that adds it, it is the hash of a default
    ``DedupExact``.

    >>> [stage.identity_key for stage in describing_stages([])]
    ['hash']
    """
    describing = tuple(stage for stage in dedup_stages(stages) if stage.document_columns())
    has_hash = any(schemas.CONTENT_HASH in stage.document_columns() for stage in describing)
    return describing if has_hash else (DedupExact(), *describing)
