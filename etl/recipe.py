"""A recipe: what to compute. YAML or Python -> a validated, fingerprinted ``Recipe``.

It holds nothing of how it is run (workers, memory, credentials), so that its fingerprint names a result.
"""

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import pyarrow as pa
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, field_validator

from etl import storage
from etl.errors import RecipeError
from etl.recipe_file import RecipeFile, override
from etl.sources import Columns, Source
from etl.stages import (
    STAGES,
    AnyStage,
    DedupExact,
    DedupMinhash,
    DedupParagraphs,
    Filter,
    Python,
    Stage,
    Tokenize,
    Transform,
)
from etl.stages.against import Reference
from etl.stages.apply import Rejected, schema_of
from etl.stages.by_language import ByLanguage

_DEDUPLICATING: Final = (DedupExact, DedupMinhash, DedupParagraphs)  # in this order

Step = Literal["documents", "duplicates", "tokens"]
STEPS: tuple[Step, ...] = ("documents", "duplicates", "tokens")


def _stage(value: Any) -> Any:
    """A stage as a recipe writes it (its name, or its name with settings) -> the model's fields."""
    if isinstance(value, str):
        return {"kind": value}
    if isinstance(value, Mapping) and "kind" not in value and len(value) == 1:
        ((kind, settings),) = value.items()
        if isinstance(settings, Mapping):
            return {"kind": kind, **settings}
        if settings is None:
            return {"kind": kind}
        if kind in STAGES and (field := STAGES[kind].shorthand):
            return {"kind": kind, field: settings}
        return {"kind": kind, "settings": settings}
    return value


StageList = Annotated[
    tuple[Annotated[AnyStage, BeforeValidator(_stage)], ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list | tuple) else value),
]
"""A list of stages, each as a recipe writes it or as an object."""


class Recipe(BaseModel):
    """What to read, what to do with it, and the lake that it goes to.

    >>> recipe = Recipe(name="demo", source={"path": "data/*.parquet"}, stages=["dedup_exact"])
    >>> [stage.kind for stage in recipe.stages]
    ['dedup_exact']
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    source: Source
    lake: str | None = None
    seed: int = 0
    rejected: Rejected = Rejected()
    stages: StageList

    @field_validator("stages")
    @classmethod
    def _check_order(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """Filters and transforms, then deduplication, then tokenize: the way a document goes."""
        for before, after in pairwise(stages):
            if _place(before) > _place(after):
                raise ValueError(
                    f"{after.kind} stands after {before.kind}; "
                    "the order is filters, exact deduplication, near deduplication, "
                    "deduplication of paragraphs, tokenize"
                )
            if type(before) is type(after) and _place(after) > 0:
                raise ValueError(f"{after.kind} stands twice")
        makers: dict[str, str] = {}
        for stage in stages:
            for column in stage.columns():
                if column in makers:
                    raise ValueError(f"two stages make the column {column!r}; name one of them")
                makers[column] = stage.kind
        _check_keep(stages)
        return stages

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, settings: Sequence[str] = ()) -> "Recipe":
        """Read a recipe file, or the shipped recipe of that name, and override settings.

        Relative paths in the file are relative to its folder; ``settings`` are ``key=value`` with
        dotted keys (``gopher_quality.min_words=80``), and paths in them relative to the working folder.
        Raises RecipeError with file and line.
        """
        return cls._of(RecipeFile.read(path), settings)

    @classmethod
    def recorded(
        cls, canonical: Mapping[str, Any], *, where: str, settings: Sequence[str] = ()
    ) -> "Recipe":
        """The recipe of a lineage record, with settings overridden; ``where`` names the record for errors.

        Files that it names by their content alone are not there: it judges, and cannot be run. Raises
        RecipeError as ``load`` does.
        """
        stages = [
            {name: value for name, value in stage.items() if name in _known(stage)}
            for stage in canonical["stages"]
        ]
        return cls._of(RecipeFile.of({**canonical, "stages": stages}, where), settings)

    @classmethod
    def _of(cls, file: RecipeFile, settings: Sequence[str]) -> "Recipe":
        data = _locate({**file.data, "stages": file.stages(_stage)}, file.folder)
        for setting in settings:
            override(data, setting)
        try:
            return cls.model_validate(data).located()
        except ValidationError as error:
            raise file.explain(error, _fields, settings) from error

    @property
    def documents_stages(self) -> tuple[Stage, ...]:
        """The stages of the first pass: all filters and transforms, in order."""
        return tuple(s for s in self.stages if isinstance(s, Filter | Transform))

    @property
    def dedup_stages(self) -> tuple[Stage, ...]:
        """The stages that need all documents together."""
        return tuple(s for s in self.stages if isinstance(s, _DEDUPLICATING))

    @property
    def tokenize_stage(self) -> Tokenize | None:
        """The stage that ends the recipe, if it makes tokens."""
        return next((s for s in self.stages if isinstance(s, Tokenize)), None)

    @property
    def has_exact(self) -> bool:
        """Whether equal texts are told from those that are alike."""
        return any(isinstance(s, DedupExact) for s in self.stages)

    @property
    def references(self) -> dict[str, tuple[Reference, ...]]:
        """The other lakes that documents are compared with, by the kind of duplicates: exact, near."""
        kinds: dict[str, tuple[Reference, ...]] = {}
        for stage in self.stages:
            if isinstance(stage, DedupExact | DedupMinhash) and stage.against:
                kinds["exact" if isinstance(stage, DedupExact) else "near"] = stage.against
        return kinds

    @property
    def minhash_stage(self) -> DedupMinhash | None:
        """The stage that looks for near-duplicates, if there is one."""
        return next((s for s in self.stages if isinstance(s, DedupMinhash)), None)

    @property
    def paragraphs_stage(self) -> DedupParagraphs | None:
        """The stage that cuts what stands in other documents, if there is one."""
        return next((s for s in self.stages if isinstance(s, DedupParagraphs)), None)

    @property
    def code(self) -> tuple[str, ...]:
        """The user's own Python code that a run executes, as ``module:function of FILE``.

        To ask runs nothing of it; raises RecipeError if there is no such module.
        """
        return tuple(f"{s.call} of {s.file()}" for s in self.stages if isinstance(s, Python))

    def without_python(self) -> Self:
        """The recipe itself, for who runs recipes of others; raises RecipeError if it names Python code.

        >>> Recipe(name="demo", source={"path": "a.jsonl"}, stages=["c4"]).without_python().name
        'demo'
        """
        named = [stage.call for stage in self.stages if isinstance(stage, Python)]
        if named:
            raise RecipeError(
                f"the recipe names Python code ({', '.join(named)}), which is forbidden",
                where=self.name,
                hint="take out its python stages, or, if you trust the code, allow it (no --no-python)",
            )
        return self

    @property
    def hash_normalization(self) -> str:
        """How text is normalised before its content hash."""
        exact = [s.normalize for s in self.stages if isinstance(s, DedupExact)]
        return exact[0] if exact else "whitespace"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The tables that this recipe fills, in order."""
        wanted = {
            "documents": True,
            "duplicates": bool(self.dedup_stages),
            "tokens": self.tokenize_stage is not None,
        }
        return tuple(step for step in STEPS if wanted[step])

    def table_url(self, step: str) -> str:
        """The URL of one of the lake's tables; raises RecipeError if the recipe names no lake."""
        if self.lake is None:
            raise RecipeError(
                "the recipe names no lake",
                where=self.name,
                hint="write `lake: URL` in the recipe, or pass --lake URL",
            )
        return storage.join(storage.normalize(self.lake), step)

    def fingerprint(self, step: Step = "tokens") -> str:
        """The sha256 of all that decides the rows of a table: its own stages and its input's.

        Names, places and the list of input files are not part of it: a recipe goes on with new files.
        """
        identity: dict[str, Any]
        if step == "documents":
            identity = {
                "source": self.source.identity(),
                "seed": self.seed,
                "rejected": self.rejected.model_dump(),
                "stages": [stage.identity() for stage in self.documents_stages],
                "hash": self.hash_normalization,
            }
            if self.minhash_stage is not None:
                identity["signature"] = self.minhash_stage.signature_identity()
            if self.paragraphs_stage is not None:
                identity["units"] = self.paragraphs_stage.units_identity()
        elif step == "duplicates":
            identity = {
                "documents": self.fingerprint("documents"),
                "stages": [stage.identity() for stage in self.dedup_stages],
            }
        else:
            before: Step = "duplicates" if self.dedup_stages else "documents"
            last = self.tokenize_stage
            identity = {
                before: self.fingerprint(before),
                "stage": last.identity() if last else None,
            }
        text = json.dumps({"step": step, **identity}, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def canonical(self) -> dict[str, Any]:
        """The recipe with every default written out, as lineage keeps it."""
        fields = self.model_dump(mode="json", exclude={"stages"})
        return {**fields, "stages": [stage.identity() for stage in self.stages]}

    def to_yaml(self) -> str:
        """The recipe as YAML that ``Recipe.load`` reads back to an equal recipe."""
        fields = self.model_dump(mode="json", exclude_defaults=True, exclude={"stages"})
        stages = []
        for stage in self.stages:
            settings = stage.model_dump(mode="json", exclude_defaults=True, exclude={"kind"})
            stages.append({stage.kind: settings} if settings else stage.kind)
        text = yaml.safe_dump({**fields, "stages": stages}, sort_keys=False)
        return text.replace("${", "$${")  # a dollar that is meant as such

    def located(self, folder: str | os.PathLike[str] = ".") -> "Recipe":
        """The same recipe with every relative path made absolute, seen from a folder."""
        return Recipe.model_validate(_locate(self.model_dump(), Path(folder).absolute()))


def _known(stage: Mapping[str, Any]) -> Collection[str]:
    """The keys of a recorded stage that are its settings; others say what it was made with."""
    model = STAGES.get(str(stage["kind"]))
    return stage.keys() if model is None else model.model_fields.keys()


def _place(stage: Stage) -> int:
    late = (*_DEDUPLICATING, Tokenize)
    return late.index(type(stage)) + 1 if isinstance(stage, late) else 0


def _check_keep(stages: Sequence[Stage]) -> None:
    """Raise ValueError if the choice of a keeper asks for a column that the stages do not make."""
    for stage in stages:
        column = stage.keep_column if isinstance(stage, DedupMinhash) else None
        numbers = [field.name for field in schema_of(stages) if field.type == pa.float64()]
        if column is not None and column not in numbers:
            raise ValueError(
                f"dedup_minhash keeps by {column!r}, which no stage computes; "
                f"these do: {', '.join(numbers)}"
            )


def _locate(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A recipe's data with its relative paths seen from a folder."""
    data = dict(data)
    if isinstance(source := data.get("source"), Mapping) and "path" in source:
        data["source"] = {**source, "path": _below(folder, source["path"])}
    if data.get("lake") is not None:
        data["lake"] = _below(folder, data["lake"])
    stages = [_locate_stage(stage, folder) for stage in data["stages"]]
    return {**data, "stages": stages}


def _locate_stage(stage: Any, folder: Path) -> Any:
    if not isinstance(stage, Mapping) or stage.get("kind") not in STAGES:
        return stage
    if stage["kind"] == "python" and stage.get("folder") is None:
        # Its modules lie beside the recipe.
        stage = {**stage, "folder": "."}
    paths = [name for name in STAGES[stage["kind"]].paths if stage.get(name) is not None]
    return {**stage, **{name: _below(folder, stage[name]) for name in paths}}


def _below(folder: Path, path: Any) -> Any:
    if isinstance(path, list | tuple):
        return tuple(_below(folder, p) for p in path)
    if isinstance(path, Mapping):
        return {name: _below(folder, p) for name, p in path.items()}
    if not isinstance(path, str) or path.startswith(("/", "~")):
        return path
    if "://" in path:
        storage.refuse_credentials(path)
        return path
    return os.path.normpath(folder / path)


def _fields(location: Sequence[str | int]) -> list[str]:
    """The names that are known at a place of a recipe, for a hint."""
    match [part for part in location if isinstance(part, str)]:
        case [_]:
            return list(Recipe.model_fields)
        case ["stages", kind, _] if kind in STAGES:
            return [name for name in STAGES[kind].model_fields if name != "kind"]
        case ["stages", kind, "languages", _, _] if kind in STAGES:
            stage = STAGES[kind]
            return stage.limit_fields() if issubclass(stage, ByLanguage) else []
        case ["stages", *_]:
            return list(STAGES)
        case [*place, _] if (model := _SECTIONS.get(".".join(place))) is not None:
            return list(model.model_fields)
    return []


_SECTIONS: Final[dict[str, type[BaseModel]]] = {
    "source": Source,
    "source.columns": Columns,
    "rejected": Rejected,
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a recipe file, for editors."""
    schema = Recipe.model_json_schema()
    definitions = schema.pop("$defs")
    stages: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    for kind, model in STAGES.items():
        settings = model.model_json_schema()
        parts |= settings.pop("$defs", {})  # a reference is looked up at the top of the file
        stages[kind] = _settings_schema(settings, model.shorthand)
    named = {
        "type": "object",
        "properties": stages,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    schema["properties"]["stages"] = {
        "type": "array",
        "description": "What happens to a document, in order.",
        "items": {"anyOf": [{"enum": list(STAGES)}, named]},
    }
    shared = {name: definitions[name] for name in ("Source", "Columns", "Rejected")}
    schema["$defs"] = {**parts, **shared}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _settings_schema(settings: dict[str, Any], shorthand: str | None) -> dict[str, Any]:
    settings["properties"].pop("kind")
    forms = [settings]
    if shorthand is not None:
        forms.append({k: v for k, v in settings["properties"][shorthand].items() if k != "title"})
    if not settings.get("required"):
        forms.append({"type": "null"})
    return {"anyOf": forms} if len(forms) > 1 else settings
