"""`Against`: the setting of deduplication stages that names other lakes to compare with."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from etl.settings_files.settings import Settings


class Reference(Settings):
    """Another lake and a version of its ``texts`` table; None is the newest version."""

    lake: str
    """The URL or path of the other lake."""
    version: Annotated[int, Field(ge=0)] | None = None
    """A version of its ``texts``; null is the newest."""


def _as_references(value: Any) -> Any:
    items = value if isinstance(value, list | tuple) else [value]
    return tuple({"lake": item} if isinstance(item, str) else item for item in items)


Against = Annotated[
    tuple[Reference, ...],
    BeforeValidator(_as_references, json_schema_input_type=str | Reference | list[str | Reference]),
]
"""One lake or several, each given by its URL or by URL and version."""
