"""A stage as a recipe writes it: its name, or its name with settings."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from etl.stages import STAGES, AnyStage, Stage
from etl.stages.filters.language import labels_of


def parse_stage(value: Any) -> Any:
    """Return the fields of a stage written as its name, or as its name with settings.

    A value that is not a mapping sets the field ``shorthand`` of the stage. A function is a ``python`` stage.
    Anything else is returned as it is, for validation to report.

    >>> parse_stage({"language": ["de", "en"]})
    {'kind': 'language', 'keep': ['de', 'en']}
    """
    if isinstance(value, str):
        return {"kind": value}
    if callable(value) and not isinstance(value, type):
        return {"kind": "python", "call": value}
    if not isinstance(value, Mapping) or "kind" in value or len(value) != 1:
        return value
    ((kind, settings),) = value.items()
    if settings is None:
        return {"kind": kind}
    if isinstance(settings, Mapping):
        return {"kind": kind, **settings}
    field = STAGES[kind].shorthand if kind in STAGES else None
    return {"kind": kind, field or "settings": settings}


def settings_of_record(stage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a stage in a lineage record, without what else determines its result."""
    model = STAGES.get(str(stage["kind"]))
    return {name: v for name, v in stage.items() if model is None or name in model.model_fields}


def _check_labels(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the stages; raise ValueError if they label languages differently."""
    labels_of(stages)
    return stages


StageList = Annotated[
    tuple[Annotated[AnyStage, BeforeValidator(parse_stage)], ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list | tuple) else value),
    AfterValidator(_check_labels),
]
"""A list of stages, each an object or written as in a recipe, that agree on how languages are labelled."""
