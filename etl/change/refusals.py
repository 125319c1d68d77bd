"""Why a lake cannot be changed to a new recipe: the reasons for which it must be made again."""

from collections.abc import Iterator, Mapping
from typing import Any

from etl import schemas
from etl.change.recipe_columns import RecipeColumns
from etl.lake.ledger import Ledger
from etl.lake.recipe_ledgers import tokenizer_of
from etl.lake.table_names import token_tables
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
        *_of_tables(new, ledgers),
    ]


def changes_tokens(ledger: Ledger, new: Recipe) -> bool:
    """Return whether a recipe fills a table of tokens by another tokenizer.

    A recipe that does not name the table adds no rows, and changes nothing in this way.
    """
    name = ledger.url.rpartition("/")[2]
    if ledger.table is None or name not in new.tokenizers:
        return False
    old = tokenizer_of(ledger.table)  # None: it never had rows
    return old is not None and old != new.tokenizers[name].identity()


def changes_dedup(record: schemas.Lineage, new: Recipe) -> bool:
    """Return whether a recipe deduplicates in another way, or not at all."""
    old, stages = (
        [stage for stage in stages if stage["kind"].startswith("dedup_")]
        for stages in (record.canonical["stages"], new.canonical()["stages"])
    )
    return old != stages


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


def _of_tables(new: Recipe, ledgers: Mapping[str, Ledger]) -> Iterator[str]:
    for name in token_tables(ledgers):
        if changes_tokens(ledgers[name], new):
            yield f"`tokenize` changes all rows of {name}"


def unnamed_tables(new: Recipe, ledgers: Mapping[str, Ledger]) -> Iterator[str]:
    """Yield a reason for each table of tokens that may need rows, and that a recipe does not name."""
    for name in token_tables(ledgers):
        if name not in new.tokenizers:
            drop = f"`etl drop {new.lake} {name} --yes`"
            yield f"{name} may need new rows: name its tokenizer in the recipe, or {drop}"
