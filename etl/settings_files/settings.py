"""`Settings`: the base of models for settings that users write; docstrings of fields describe them."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema

from etl.settings_files.validation_errors import (
    Location,
    explain_errors,
    keys_of,
    locate_in_python,
    names_of_model,
)


class Settings(BaseModel):
    """A frozen model that rejects unknown keys and does not coerce types.

    The docstring below a field is its description in the JSON Schema. Descriptions are read from the source
    code when a schema is made, not on import. A model that is made in Python raises RecipeError, with the
    hints that a file gets.

    >>> class Limits(Settings):
    ...     max_words: int = 5
    >>> Limits(max_word=80)
    Traceback (most recent call last):
    etl.errors.RecipeError: Limits: unknown key 'max_word'
      hint: did you mean 'max_words'? known names: max_words
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            locate = partial(locate_in_python, type(self).__name__)
            raise explain_errors(error, locate, self.names_in) from error

    # So marked, it is not called for a model inside another one, which reports the errors of both.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        check_limits(dict(self))
        return self

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the fields that differ from their defaults, which ``repr`` shows."""
        fields = type(self).model_fields
        for name, value in super().__repr_args__():
            if name not in fields or value != fields[name].get_default(call_default_factory=True):
                yield name, value

    @classmethod
    def names_in(cls, location: Location) -> list[str]:
        """Return the keys that the mapping at a location may have; none if any key is valid."""
        return names_of_model(keys_of(location), cls)

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


def check_limits(settings: Mapping[str, Any]) -> None:
    """Raise ValueError if no value of some measure X is within its limits ``min_X`` and ``max_X``.

    A ratio is at most 1, and only a score can be negative.

    >>> check_limits({"min_words": 5, "max_words": 5, "min_chars": 9, "max_chars": None})
    >>> check_limits({"min_words": 9, "max_words": 5})
    Traceback (most recent call last):
    ValueError: min_words (9) is more than max_words (5), so that nothing is within the limits
    """
    for measure in {name[4:]: None for name in settings if name.startswith(("min_", "max_"))}:
        low, high = (_number(settings.get(f"{side}_{measure}")) for side in ("min", "max"))
        if high is not None and high < 0 and measure != "score":
            raise ValueError(f"max_{measure} ({high}) is negative; write null for no limit")
        if low is not None and low > 1 and measure.endswith("_ratio"):
            raise ValueError(f"min_{measure} ({low}) is more than 1, the highest ratio")
        if low is not None and high is not None and low > high:
            raise ValueError(
                f"min_{measure} ({low}) is more than max_{measure} ({high}), so that nothing is within the "
                "limits"
            )


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) else None


def describe_fields(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a model's fields, each as one line, including fields of its bases."""
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
