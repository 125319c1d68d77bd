"""The order of a recipe's stages, and what they need of each other."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa

from etl.schemas import CONTENT_HASH, CUT
from etl.stages import STAGES, SpecialTokens, Stage, Tokenize, Transform
from etl.stages.base import PHASES
from etl.stages.dedup_base import dedup_stages
from etl.stages.document_columns import documents_schema
from etl.stages.filters.annotate import PREFIX

_AFTER_DOCUMENTS: Final = tuple(
    kind for phase in PHASES[1:] for kind, model in STAGES.items() if model.phase == phase
)
"""The kinds of the stages of later phases, in the order of a recipe: at most one of each kind."""


def check_stages(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the stages of a recipe, with the filter that ``special_tokens: reject`` means.

    Raises ValueError for stages in the wrong order or repeated, and for columns that two stages compute or
    that no stage computes.
    """
    for before, after in pairwise(stages):
        if _rank(before) > _rank(after):
            raise ValueError(
                f"{after.kind} must come before {before.kind}; "
                f"the order is filters and transforms, then {', '.join(_AFTER_DOCUMENTS)}"
            )
        if before.kind == after.kind and _rank(after) > 0 and not isinstance(after, Tokenize):
            raise ValueError(f"{after.kind} occurs twice")
    _check_tokenizers(stages)
    cutting = [stage.kind for stage in dedup_stages(stages) if CUT in stage.kinds]
    if len(cutting) > 1:
        raise ValueError(
            f"a recipe cannot have both {' and '.join(cutting)}, which both cut passages from "
            "documents; run one of them, and read its texts with a second recipe"
        )
    columns: set[str] = set()
    for stage in stages:
        for name in {*stage.signals()} - {*columns, *stage.columns()}:
            if name == "loss" or name.startswith(PREFIX):
                raise ValueError(f"{stage.kind} reads {name!r}, which no stage before it provides")
        for column in stage.columns():
            if column in columns:
                raise ValueError(
                    f"two stages compute the column {column!r}; give one of them a name"
                )
            columns.add(column)
    _check_content_hash(stages)
    _check_keep(stages)
    return _with_special_tokens(stages)


def _rank(stage: Stage) -> int:
    """Return the position of a stage's kind in a recipe; 0 for filters and transforms."""
    kind = stage.kind
    return _AFTER_DOCUMENTS.index(kind) + 1 if kind in _AFTER_DOCUMENTS else 0


def _check_tokenizers(stages: Sequence[Stage]) -> None:
    """Raise ValueError if two tokenizers would fill one table."""
    tables = Counter(stage.table for stage in stages if isinstance(stage, Tokenize))
    for table, count in tables.items():
        if count > 1:
            raise ValueError(
                f"{count} tokenize stages fill the table {table!r}; give each of them another name, "
                "as in `tokenize: {name: qwen, tokenizer: qwen.json}`; one may have none"
            )


def _with_special_tokens(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Add the filter that ``special_tokens: reject`` of the tokenize stage means, unless it is there."""
    for stage in stages:
        if isinstance(stage, Tokenize) and stage.special_tokens == "reject":
            added = SpecialTokens(tokenizer=stage.tokenizer)
            if added not in stages:
                first = sum(_rank(other) == 0 for other in stages)
                stages = (*stages[:first], added, *stages[first:])
    return stages


def _check_content_hash(stages: Sequence[Stage]) -> None:
    """Raise ValueError if a stage reads the content hash, that of the final text, before a transform."""
    reading: Stage | None = None
    for stage in stages:
        if reading is not None and isinstance(stage, Transform):
            raise ValueError(
                f"{reading.kind} reads the content hash, which is that of the text after all transforms; "
                f"put it after {stage.kind}"
            )
        if CONTENT_HASH.name in stage.signals():
            reading = stage


def _check_keep(stages: Sequence[Stage]) -> None:
    """Raise ValueError if a deduplication stage keeps by a column that no stage computes."""
    for stage in dedup_stages(stages):
        column = stage.keep_column
        numbers = [field.name for field in documents_schema(stages) if field.type == pa.float64()]
        if column is not None and column not in numbers:
            raise ValueError(
                f"{stage.kind} keeps by {column!r}, which no stage computes; "
                f"computed columns: {', '.join(numbers)}"
            )
