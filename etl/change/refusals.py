"""Why a lake cannot be changed to a new recipe: the reasons for which it must be made again."""

from collections.abc import Iterator, Mapping
from typing import Any

from etl import schemas
from etl.change.recipe_columns import RecipeColumns
from etl.lake.ledger import Ledger
from etl.recipe.recipe import Recipe
from etl.stages import Stage
from etl.stages.document_columns import describing_stages
from etl.stages.signals import signals_identity


def recorded_recipe(record: schemas.Lineage, where: str) -> Recipe:
    """Return the recipe of a lineage record."""
    return Recipe.recorded(record.canonical, where=where)


def find_refusals(record: schemas.Lineage, new: Recipe, ledgers: Mapping[str, Ledger]) -> list[str]:
    """Return why the documents of a record's recipe cannot be changed to what a new one makes."""
    old = recorded_recipe(record, ledgers["documents"].url)
    canonical = new.canonical()
    return [
        *_of_input(old, new),
        *_of_stages(old, record.canonical["stages"], new, canonical["stages"]),
        *_of_dedup(old, new, ledgers),
        *_of_tables(record, new, ledgers),
    ]


def changes_tokens(record: schemas.Lineage, new: Recipe) -> bool:
    """Return whether a recipe tokenizes in another way, or not at all."""
    old, stages = record.canonical["stages"], new.canonical()["stages"]
    return _of_kind(old, "tokenize") != _of_kind(stages, "tokenize")


def changes_dedup(record: schemas.Lineage, new: Recipe) -> bool:
    """Return whether a recipe deduplicates in another way, or not at all."""
    old, stages = record.canonical["stages"], new.canonical()["stages"]
    return _of_kind(old, "dedup_") != _of_kind(stages, "dedup_")


def _of_input(old: Recipe, new: Recipe) -> Iterator[str]:
    if old.source.identity() != new.source.identity():
        yield "`source` changes which records are read"
    if old.seed != new.seed:
        yield "`seed` changes random choices"
    if old.rejected != new.rejected:
        yield "`rejected` changes what is stored of rejected documents"
    elif not new.rejected.signals or new.rejected.text:
        yield "only lakes with `rejected: {signals: true, text: false}` can be changed yet"


def _of_stages(
    old: Recipe,
    old_settings: list[dict[str, Any]],
    new: Recipe,
    new_settings: list[dict[str, Any]],
) -> Iterator[str]:
    before, after = (
        RecipeColumns.of(recipe.stages, settings)
        for recipe, settings in ((old, old_settings), (new, new_settings))
    )
    if [before.verdicts[n] for n in before.transforms] != [
        after.verdicts[n] for n in after.transforms
    ]:
        yield "a transform, or the language that it reads, changes the text"
    described = [
        {stage.identity_key: stage.column_identity() for stage in describing_stages(each.stages)}
        for each in (old, new)
    ]
    if described[0] != described[1]:
        yield "the columns that documents are compared by change"
    if any(map(_has_other_models, old.stages, old_settings)):
        yield "the models behind stored signals are of another version"


def _has_other_models(stage: Stage, settings: Mapping[str, Any]) -> bool:
    """Return whether signals that a stage reads were computed by other models or word lists than today's."""
    today = signals_identity(stage.signals())
    return any(settings[name] != today[name] for name in today.keys() & settings.keys())


def _of_dedup(old: Recipe, new: Recipe, ledgers: Mapping[str, Ledger]) -> Iterator[str]:
    if {bool(old.dedup_stages), bool(new.dedup_stages)} != {"duplicates" in ledgers}:
        yield "deduplication would begin or end"
    if old.references or new.references:
        yield "`against` compares with lakes that may have changed"


def _of_tables(
    record: schemas.Lineage, new: Recipe, ledgers: Mapping[str, Ledger]
) -> Iterator[str]:
    if "tokens" in ledgers and changes_tokens(record, new):
        yield "`tokenize` changes all tokens"


def _of_kind(stages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [stage for stage in stages if stage["kind"].startswith(kind)]
