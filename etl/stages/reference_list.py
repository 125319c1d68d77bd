"""Other lakes that a stage of deduplication compares with."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Reference(BaseModel):
    """Another lake, and the version of its ``documents``; the newest one if that is left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lake: str
    version: Annotated[int, Field(ge=0)] | None = None


def _list(value: Any) -> Any:
    items = value if isinstance(value, list | tuple) else [value]
    return tuple({"lake": item} if isinstance(item, str) else item for item in items)


Against = Annotated[
    tuple[Reference, ...],
    BeforeValidator(_list, json_schema_input_type=str | Reference | list[str | Reference]),
]
"""One lake or several, each a URL, or a URL and a version."""
