"""`Recipe`: a source, the stages to apply to it and the lake to write to, validated and fingerprinted."""

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import ValidationError, field_validator, model_validator

from etl import pipelines, schemas, storage
from etl.errors import RecipeError
from etl.html.card import Card, Shown
from etl.recipe.guard import Guard
from etl.recipe.overrides import SettingsLike, as_settings, override
from etl.recipe.recipe_errors import explain_errors, names_in
from etl.recipe.recipe_file import RecipeFile
from etl.recipe.relative_paths import resolve_paths
from etl.recipe.stage_list import StageList, parse_stage, settings_of_record
from etl.recipe.stage_order import check_stages
from etl.recipe.variables import expand_variables
from etl.settings_files.settings import Settings
from etl.settings_files.validation_errors import Location
from etl.sources import Source
from etl.stages import Stage, Tokenize
from etl.stages.against import Reference
from etl.stages.base import Phase, Rejected
from etl.stages.dedup_base import DedupStage, dedup_stages
from etl.stages.document_columns import describing_stages

Step = schemas.TableName
"""A table that a recipe fills: the first phase fills two, the last one of each tokenizer."""


class Recipe(Shown, Settings):
    """A source, the stages to apply to it, and the lake to write to.

    >>> recipe = Recipe(source="data/*.parquet", stages=["dedup_exact"])
    >>> [stage.kind for stage in recipe.stages]
    ['dedup_exact']
    """

    name: str = "recipe"
    """The name of the recipe, for reports."""
    source: Source
    """What to read; a URL, glob or folder, or a list of them, is its ``path``."""
    lake: str | None = None
    """The URL or path of the folder to write the tables to; ``--lake`` overrides it."""
    seed: int = 0
    """The seed of all random choices that have no seed of their own."""
    rejected: Rejected = Rejected()
    """What to store of rejected documents."""
    guard: Guard = Guard()
    """When a run stops before deduplication removes nearly all of an input file, a folder or a language."""
    stages: StageList = ()
    """The stages to apply to each document, in order."""

    @model_validator(mode="before")
    @classmethod
    def _resolve_paths(cls, data: Any) -> Any:
        """Resolve paths against the working folder, if ``load`` has not resolved them already."""
        return resolve_paths(data, Path.cwd()) if isinstance(data, Mapping) else data

    @field_validator("stages")
    @classmethod
    def _check_order(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        return check_stages(stages)

    @classmethod
    def names_in(cls, location: Location) -> list[str]:
        """Return the keys that the mapping at a location may have; none if any key is valid."""
        return names_in(cls, location)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        settings: SettingsLike = (),
        env: Collection[str] = (),
    ) -> "Recipe":
        """Read a recipe file, or the shipped recipe of that name, and override settings.

        Paths in the file are relative to its folder. ``settings`` are ``key=value`` pairs with dotted
        keys (``gopher_quality.min_words=80``), or with a stage and what the file would write after its name
        (``extract=trafilatura``), or a dict; paths in them are relative to the working folder.
        ``env`` names environment variables that paths may contain as ``${NAME}``; HOME and those whose names
        begin with ``TOKENLAKE_`` are always allowed. Raises RecipeError with file and line.
        """
        return cls._from_file(RecipeFile.find(path), as_settings(settings), env)

    @classmethod
    def of(
        cls,
        recipe: "RecipeLike",
        *,
        settings: SettingsLike = (),
        env: Collection[str] = (),
    ) -> "Recipe":
        """Return a recipe with settings overridden: one of a dict, or ``load`` that of a path or name.

        >>> Recipe.of({"source": "a.jsonl"}, settings={"name": "web"}).name
        'web'
        """
        if isinstance(recipe, str | os.PathLike):
            return cls.load(recipe, settings=settings, env=env)
        if isinstance(recipe, Mapping):
            file = RecipeFile.of({"stages": [], **recipe}, "Recipe")
            return cls._from_file(file, as_settings(settings), env)
        if not isinstance(recipe, Recipe):
            raise RecipeError(
                f"{type(recipe).__qualname__} is not a type of recipes",
                hint="give a Recipe, a dict, the path of a file, or the name of a shipped recipe",
            )
        if not settings:
            return recipe
        file = RecipeFile.of(recipe.written(), recipe.name)
        return cls._from_file(file, as_settings(settings), env)

    @classmethod
    def recorded(
        cls, canonical: Mapping[str, Any], *, where: str, settings: Sequence[str] = ()
    ) -> "Recipe":
        """Restore the recipe of a lineage record and override settings.

        ``where`` names the record in errors. A record keeps only hashes of the files that stages use, so
        the recipe can judge documents but cannot be run. Raises RecipeError like ``load``.
        """
        stages = [settings_of_record(stage) for stage in canonical["stages"]]
        return cls._from_file(RecipeFile.of({**canonical, "stages": stages}, where), settings)

    @classmethod
    def _from_file(
        cls, file: RecipeFile, settings: Sequence[str], env: Collection[str] = ()
    ) -> "Recipe":
        data = {**file.data, "stages": [parse_stage(stage) for stage in file.stages()]}
        data = resolve_paths(expand_variables(data, env), file.folder)
        for setting in settings:
            override(data, setting)
        data = expand_variables(data, env)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise explain_errors(error, file, cls, settings) from error

    @property
    def documents_stages(self) -> tuple[Stage, ...]:
        """The stages of the first pass: all filters and transforms, in order."""
        return self._stages_of("documents")

    @property
    def dedup_stages(self) -> tuple[DedupStage, ...]:
        """The deduplication stages, which compare all documents."""
        return dedup_stages(self.stages)

    @property
    def tokenizers(self) -> dict[Step, Tokenize]:
        """The tokenize stages, in order, by the tables that they fill."""
        return {stage.table: stage for stage in self.stages if isinstance(stage, Tokenize)}

    @property
    def uses_sample_tokenizer(self) -> bool:
        """Whether it tokenizes with the tokenizer of the shipped sample, but reads something else."""
        folder = f"{pipelines.FOLDER}/"
        if not any(stage.tokenizer.startswith(folder) for stage in self.tokenizers.values()):
            return False
        return not all(path.startswith(folder) for path in self.source.paths)

    @property
    def references(self) -> dict[str, tuple[Reference, ...]]:
        """The other lakes to compare documents with, by kind of duplicate."""
        stages = (stage for stage in self.dedup_stages if stage.references())
        return {kind: stage.references() for stage in stages for kind in stage.kinds}

    @property
    def code(self) -> tuple[str, ...]:
        """The user's own Python code that a run executes, as ``module:function of FILE``.

        Reading this property does not run the code. Raises RecipeError if a module does not exist.
        """
        codes = (stage.user_code() for stage in self.stages)
        return tuple(code for code in codes if code is not None)

    def without_python(self) -> Self:
        """Return the recipe; raise RecipeError if it names Python code.

        For programs that run recipes written by others.

        >>> Recipe(name="demo", source={"path": "a.jsonl"}, stages=["c4"]).without_python().name
        'demo'
        """
        if self.code:
            raise RecipeError(
                f"the recipe names Python code ({', '.join(self.code)}), which is forbidden",
                where=self.name,
                hint="remove its python stages or, if you trust the code, omit --no-python",
            )
        return self

    @property
    def steps(self) -> tuple[Step, ...]:
        """The tables that the recipe fills, in order."""
        decided = ["duplicates"] if self.dedup_stages else []
        return "documents", "texts", *decided, *self.tokenizers

    def table_url(self, step: str) -> str:
        """Return the URL of a table of the lake; raise RecipeError if the recipe names no lake."""
        if self.lake is None:
            raise RecipeError(
                "the recipe names no lake",
                where=self.name,
                hint="write `lake: URL` in the recipe, or pass --lake URL",
            )
        return storage.join(storage.normalize(self.lake), step)

    def fingerprint(self, step: Step | None = None) -> str:
        """Return the sha256 of everything that determines the rows of a table, by default of all tables.

        This covers the stages of the table and of the tables it is computed from. It leaves out names,
        locations and the list of input files, so a recipe can be run again with new files.
        """
        identity: dict[str, Any]
        if step is None:
            whole = schemas.fingerprint_of({each: self.fingerprint(each) for each in self.steps})
            assert whole is not None
            return whole
        if step == "documents":
            identity = {
                "source": self.source.identity(),
                "seed": self.seed,
                "rejected": self.rejected.model_dump(),
                "stages": [stage.identity() for stage in self.documents_stages],
            }
            for stage in describing_stages(self.stages):
                identity[stage.identity_key] = stage.column_identity()
        elif step == "texts":
            identity = {"documents": self.fingerprint("documents")}
        elif step == "duplicates":
            identity = {
                "documents": self.fingerprint("documents"),
                "stages": [stage.identity() for stage in self.dedup_stages],
            }
        else:
            return self.token_fingerprint(step, self.tokenizers[step].identity())
        return _hash(step, identity)

    def token_fingerprint(self, step: Step, tokenizer: Mapping[str, Any]) -> str:
        """Return the fingerprint of the tokens that a tokenizer makes of the recipe's documents.

        ``tokenizer`` is the identity of its stage, which the recipe need not have.
        """
        before: Step = "duplicates" if self.dedup_stages else "documents"
        return _hash(step, {before: self.fingerprint(before), "stage": dict(tokenizer)})

    def canonical(self) -> dict[str, Any]:
        """Return the recipe with all defaults written out, as lineage records store it."""
        fields = self.model_dump(mode="json", exclude={"stages"})
        return {**fields, "stages": [stage.identity() for stage in self.stages]}

    def to_yaml(self) -> str:
        """Return the recipe as YAML; ``Recipe.load`` reads it back as an equal recipe."""
        text = yaml.safe_dump(self.written(), sort_keys=False)
        return text.replace("${", "$${")  # a literal dollar sign

    def _cards(self) -> list[Card]:
        """Return the recipe as a card."""
        facts: dict[str, object] = {
            "source": ", ".join(self.source.paths),
            "lake": self.lake,
            "stages": " → ".join(stage.kind for stage in self.stages) or "none",
        }
        return [Card(title=f"Recipe {self.name}", facts=facts, text=self.to_yaml(), is_code=True)]

    def written(self) -> dict[str, Any]:
        """Return the recipe as the data of a file, without defaults."""
        fields = self.model_dump(mode="json", exclude_defaults=True, exclude={"stages"})
        stages = []
        for stage in self.stages:
            settings = stage.model_dump(mode="json", exclude_defaults=True, exclude={"kind"})
            stages.append({stage.kind: settings} if settings else stage.kind)
        return {**fields, "stages": stages}

    def _stages_of(self, phase: Phase) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.stages if stage.phase == phase)


def _hash(step: Step, identity: Mapping[str, Any]) -> str:
    text = json.dumps({"step": step, **identity}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


RecipeLike = Recipe | Mapping[str, Any] | str | os.PathLike[str]
"""A recipe, its data, the path of its file, or the name of a shipped one."""
