"""`Settings`: the base of models for settings that users write; docstrings of fields describe them."""

import ast
import inspect
import textwrap
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class Settings(BaseModel):
    """A frozen model that rejects unknown keys and does not coerce types.

    The docstring below a field is its description in the JSON Schema. Descriptions are read from the source
    code when a schema is made, not on import.

    >>> class Limits(Settings):
    ...     max_words: int = 5
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        """Return the JSON Schema of the model with the descriptions of its fields."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in describe_fields(cls).items():
            properties.get(name, {}).setdefault("description", text)
        return schema


def describe_fields(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a model's fields, each as one line; those of its bases included."""
    descriptions: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is not BaseModel and issubclass(base, BaseModel):
            descriptions |= _describe_own_fields(base)
    return {name: text for name, text in descriptions.items() if name in model.model_fields}


def _describe_own_fields(model: type[BaseModel]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(model))
    except OSError:  # typed at a prompt
        return {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    descriptions = {}
    for field, after in zip(definition.body, definition.body[1:], strict=False):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                descriptions[name] = " ".join(text.split())
    return descriptions
