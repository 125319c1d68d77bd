"""What each stage does, with its settings, their types, defaults and units, from the stages' classes."""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from etl.errors import RecipeError, nearest_names
from etl.html.card import Card, CardList, Shown
from etl.settings_files.settings import Settings
from etl.stages import STAGES, Filter, Stage, Transform
from etl.stages.signals import SIGNALS

GROUPS: Final = ("Filters", "Transforms", "Deduplication", "Tokenization")
"""The groups of stages, in the order of a recipe."""

_CONTAINERS: Final = {"array": "list of ", "object": "mapping of names to "}

_UNIT_WORDS: Final = {  # the last word of a setting's name -> its unit
    **{name: name for name in ("bytes", "lines", "seconds", "sentences", "words")},
    "chars": "code points",
}


@dataclass(frozen=True, kw_only=True)
class SettingReference:
    """A setting of a stage; ``default`` is JSON, None if the setting is required."""

    name: str
    type: str
    default: str | None
    unit: str
    about: str


@dataclass(frozen=True, kw_only=True, repr=False)
class StageReference(Shown):
    """A stage with an entry of a recipe; a bare value there sets the setting ``shorthand``."""

    kind: str
    group: str
    about: str
    example: str
    shorthand: str | None
    settings: tuple[SettingReference, ...]

    def _cards(self) -> list[Card]:
        """Return the stage as a card."""
        return [Card(title=self.kind, facts={"does": self.summary}, text=self.about)]

    @property
    def summary(self) -> str:
        """The first sentence of ``about``, on one line."""
        return " ".join(self.about.partition("\n\n")[0].split())


def list_stages() -> CardList[StageReference]:
    """Return all stages by group.

    >>> [stage.kind for stage in list_stages()][-3:]
    ['dedup_paragraphs', 'dedup_substrings', 'tokenize']
    """
    stages = [_describe(kind, model) for kind, model in STAGES.items()]
    return CardList(sorted(stages, key=lambda stage: GROUPS.index(stage.group)))


def find_stage(kind: str) -> StageReference:
    """Return the stage of a kind; raise RecipeError for an unknown one.

    >>> print(find_stage("sample").summary)
    Keep a fraction of the documents, chosen by a hash, independent of how the input is partitioned.
    """
    if kind not in STAGES:
        raise RecipeError(f"unknown stage {kind!r}", hint=nearest_names(kind, STAGES))
    return _describe(kind, STAGES[kind])


def _describe(kind: str, model: type[Stage]) -> StageReference:
    return StageReference(
        kind=kind,
        group=_group(model),
        about=inspect.cleandoc(model.__doc__ or "").partition("\n\n>>>")[0],
        example=model.example or kind,
        shorthand=model.shorthand,
        settings=tuple(list_settings(model)),
    )


def _group(model: type[Stage]) -> str:
    if issubclass(model, Filter):
        return "Filters"
    if issubclass(model, Transform):
        return "Transforms"
    return "Deduplication" if model.phase == "dedup" else "Tokenization"


def list_settings(model: type[Settings]) -> Iterator[SettingReference]:
    """Yield the settings of a stage, or of any other part of a recipe."""
    schema = model.model_json_schema()
    for name, setting in schema["properties"].items():
        if name == "kind":
            continue
        type_name = _type_name(setting, schema)
        yield SettingReference(
            name=name,
            type=type_name,
            default=json.dumps(setting["default"]) if "default" in setting else None,
            unit=_unit(name) if type_name.startswith(("integer", "number")) else "",
            about=setting.get("description", ""),
        )


def _type_name(setting: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return the type of a JSON Schema in words.

    >>> _type_name({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, {})
    'integer, at least 1, or null'
    >>> _type_name({"type": "array", "items": {"type": "string"}}, {})
    'list of strings'
    """
    if "$ref" in setting:
        definition = schema["$defs"][setting["$ref"].rpartition("/")[2]]
        return f"mapping of {_listed(definition['properties'], 'and')}"
    if "anyOf" in setting:
        names = dict.fromkeys(_type_name(form, schema) for form in setting["anyOf"])
        if "number" in names:
            names.pop("integer", None)
        return _listed(names, "or")
    if "enum" in setting or "const" in setting:
        return _listed(map(str, setting.get("enum", [setting.get("const")])), "or")
    if "discriminator" in setting:
        return "stage"
    if setting["type"] in _CONTAINERS:
        return _CONTAINERS[setting["type"]] + _plural(_type_name(_content(setting), schema))
    return ", ".join([setting["type"], *_limits(setting)])


def _content(setting: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the values of an array or object."""
    if "items" in setting:
        return dict(setting["items"])
    values = [setting.get("additionalProperties"), *setting.get("patternProperties", {}).values()]
    return next(value for value in values if value)


def _limits(setting: Mapping[str, Any]) -> Iterator[str]:
    if "minimum" in setting and "maximum" in setting:
        yield f"from {setting['minimum']} to {setting['maximum']}"
        return
    words = {"minimum": "at least", "exclusiveMinimum": "above"}
    words |= {"maximum": "at most", "exclusiveMaximum": "below"}
    yield from (f"{words[name]} {setting[name]}" for name in words if name in setting)


def _listed(names: Iterable[str], last: str) -> str:
    """Join names as a sentence does.

    >>> _listed(["a", "b", "c"], "or"), _listed(["integer, above 0", "null"], "or")
    ('a, b or c', 'integer, above 0, or null')
    """
    *first, final = names
    comma = "," if re.search(r",| or | and ", " ".join(first)) else ""
    return f"{', '.join(first)}{comma} {last} {final}" if first else final


def _plural(type_name: str) -> str:
    """Return what a list has several of.

    >>> _plural("string"), _plural("number, from 0 to 1, or null"), _plural("row or id")
    ('strings', 'numbers, from 0 to 1, or null', 'row or id')
    """
    return re.sub(r"\b(string|integer|number|list|mapping|stage)\b", r"\1s", type_name)


def _unit(name: str) -> str:
    """Return the unit of a number: the unit of the signal it limits, or the last word of its name.

    >>> _unit("min_mean_word_length"), _unit("max_word_chars"), _unit("min_words_per_line"), _unit("seed")
    ('code points per word', 'code points', 'words', '')
    """
    limited = name.removeprefix("min_").removeprefix("max_")
    if limited != name:
        for signal in (limited, f"num_{limited}"):
            if signal in SIGNALS:
                return SIGNALS[signal].unit
    return _UNIT_WORDS.get(name.partition("_per_")[0].rpartition("_")[2], "")
