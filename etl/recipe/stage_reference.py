"""What each stage does, with its settings, their types, defaults and units, from the stages' classes."""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from etl.errors import RecipeError, nearest_names
from etl.html.card import Card, CardList, Shown
from etl.stages import STAGES, Filter, Stage, Transform
from etl.stages.signals import SIGNALS

GROUPS: Final = ("Filters", "Transforms", "Deduplication", "Tokenization")
"""The groups of stages, in the order of a recipe."""

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
    """A stage; a bare value in a recipe sets the setting ``shorthand``."""

    kind: str
    group: str
    about: str
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
    ['dedup_minhash', 'dedup_paragraphs', 'tokenize']
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
        shorthand=model.shorthand,
        settings=tuple(_settings(model)),
    )


def _group(model: type[Stage]) -> str:
    if issubclass(model, Filter):
        return "Filters"
    if issubclass(model, Transform):
        return "Transforms"
    return "Deduplication" if model.phase == "dedup" else "Tokenization"


def _settings(model: type[Stage]) -> Iterator[SettingReference]:
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
    'integer >= 1 or null'
    """
    if "$ref" in setting:
        definition = schema["$defs"][setting["$ref"].rpartition("/")[2]]
        return f"mapping of {', '.join(definition['properties'])}"
    if "anyOf" in setting:
        return " or ".join(dict.fromkeys(_type_name(form, schema) for form in setting["anyOf"]))
    if "enum" in setting or "const" in setting:
        return " or ".join(str(value) for value in setting.get("enum", [setting.get("const")]))
    if setting["type"] == "array":
        return f"list of {_in_brackets(_type_name(setting['items'], schema))}"
    if setting["type"] == "object":
        values = [
            setting.get("additionalProperties"),
            *setting.get("patternProperties", {}).values(),
        ]
        names = [_type_name(value, schema) for value in values if value]
        return f"mapping to {_in_brackets(names[0])}"
    signs = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    limits = [f"{sign} {setting[name]}" for name, sign in signs.items() if name in setting]
    return " ".join([setting["type"], ", ".join(limits)]).strip()


def _in_brackets(type_name: str) -> str:
    return f"({type_name})" if " " in type_name else type_name


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
