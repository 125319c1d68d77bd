"""`Against`: the setting of deduplication stages that names other lakes to compare with."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Reference(BaseModel):
    """Another lake and a version of its ``documents`` table; None is the newest version."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    lake: str
    version: Annotated[int, Field(ge=0)] | None = None


def _as_references(value: Any) -> Any:
    items = value if isinstance(value, list | tuple) else [value]
    return tuple({"lake": item} if isinstance(item, str) else item for item in items)


Against = Annotated[
    tuple[Reference, ...],
    BeforeValidator(_as_references, json_schema_input_type=str | Reference | list[str | Reference]),
]
"""One lake or several, each given by its URL or by URL and version."""
