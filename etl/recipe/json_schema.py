"""The JSON Schema of a recipe file, derived from the models; docstrings of fields are the descriptions."""

from typing import Any

from etl.recipe.recipe import Recipe
from etl.stages import STAGES


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a recipe file, for editors."""
    schema = Recipe.model_json_schema()
    for model in STAGES.values():  # replaced by schemas of the short forms, without `kind`
        del schema["$defs"][model.__name__]
    stages: dict[str, Any] = {}
    for kind, model in STAGES.items():
        settings = model.model_json_schema()
        settings.pop("$defs", None)  # references are resolved at the top of the file
        stages[kind] = _forms_of_settings(settings, model.shorthand)
    named = {
        "type": "object",
        "properties": stages,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    source = schema["properties"]["source"]
    path = schema["$defs"]["Source"]["properties"]["path"]
    schema["properties"]["source"] = {
        "description": source["description"],
        "anyOf": [{"$ref": source["$ref"]}, *path["anyOf"]],
    }
    schema["properties"]["stages"] = {
        "type": "array",
        "description": schema["properties"]["stages"]["description"],
        "items": {"anyOf": [{"enum": list(STAGES)}, named]},
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _forms_of_settings(settings: dict[str, Any], shorthand: str | None) -> dict[str, Any]:
    """Return the schema of what may follow a stage's name: its settings, one bare value, or nothing."""
    settings["properties"].pop("kind")
    about = settings.pop("description")
    forms = [settings]
    if shorthand is not None:
        forms.append({k: v for k, v in settings["properties"][shorthand].items() if k != "title"})
    if not settings.get("required"):
        forms.append({"type": "null"})
    return {"description": about, **({"anyOf": forms} if len(forms) > 1 else settings)}
