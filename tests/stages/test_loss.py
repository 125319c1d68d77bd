"""The Loss stage in a recipe: a version of a table `losses`, joined by address."""

from pathlib import Path
from typing import Any

import pytest
import torch
from distributed import Client
from upath import UPath

from etl.audit.tune.tune import tune
from etl.errors import RecipeError
from etl.job.run import run
from etl.loader import Format, LossLog, TokenDataset
from etl.maintenance.commit_losses import commit_losses
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_jsonl
from tests.helpers.lake_rows import rows
from tests.helpers.paths import copy
from tests.helpers.recipes import small_recipe

FORMAT = Format(sample_numbers=True, document_ids=True)
GOLDEN = str(Path(__file__).parent / "golden" / "files" / "scored")


def loss_stage(lake: object, **settings: Any) -> dict[str, Any]:
    return {"kind": "loss", "lake": str(lake), "version": 1, "run": "proxy", **settings}


def with_loss(recipe: Recipe, lake: object, *stages: Any) -> Recipe:
    fields = recipe.model_dump(exclude={"stages"})
    return Recipe.model_validate({**fields, "lake": str(lake), "stages": [*stages, *recipe.stages]})


@pytest.fixture(scope="module")
def scored(new_place: Any, client: Client, tiny_tokenizer: Path) -> Recipe:
    """A lake in which documents with an even row have the loss 1, and a third of the others 4."""
    place = new_place("scored")
    write_jsonl(place / "crawl" / "a.jsonl", records(0, 60))
    recipe = small_recipe(place / "crawl", place / "lake", tiny_tokenizer)
    assert run(recipe, cluster=client).ok
    dataset = TokenDataset(str(recipe.lake), seq_len=32, format=FORMAT)
    with LossLog(dataset, run="proxy") as log:
        for step, batch in enumerate(dataset.batches(4)):
            losses = torch.ones(batch["labels"].shape)
            for row in range(len(losses)):
                for span in dataset.locate(int(batch["sample"][row])):
                    loss = 1.0 if span.row % 2 == 0 else 4.0 if span.row % 3 == 0 else torch.nan
                    losses[row, max(span.start - 1, 0) : span.start + span.count - 1] = loss
            log.write(step, batch, losses)
    commit_losses(str(recipe.lake))
    return recipe


def test_a_run_joins_the_losses_by_address(scored: Recipe, place: UPath, client: Client) -> None:
    recipe = with_loss(scored, place / "lake", loss_stage(scored.lake, max=2.0))
    assert run(recipe, cluster=client).ok
    documents = rows(recipe.lake, "documents")
    tokenized = {row["row"] for row in rows(scored.lake, "tokens")}
    for document in documents:
        number = int(str(document["row"]))
        known = {0: 1.0, 3: 4.0}.get(number % 2 and number % 6) if number in tokenized else None
        assert document["loss"] == known
        assert (document["reason"] == "loss.high") == (known == 4.0)
    assert {document["reason"] for document in documents} >= {None, "loss.high"}
    kept = [tune(str(recipe.lake), settings=[f"loss.max={limit}"]) for limit in (2.0, 5.0)]
    assert kept[0] != kept[1]


def test_the_fingerprint_depends_on_the_losses_alone(scored: Recipe, place: UPath) -> None:
    moved = copy(scored.lake, place / "moved")

    def fingerprint(lake: object, **settings: Any) -> str:
        return with_loss(scored, place / "lake", loss_stage(lake, **settings)).fingerprint()

    same = fingerprint(scored.lake)
    assert fingerprint(moved) == same
    others = [
        fingerprint(scored.lake, version=0),
        fingerprint(scored.lake, run="other"),
        fingerprint(scored.lake, epochs="all"),
        fingerprint(scored.lake, max=1.0),
        fingerprint(GOLDEN),
        scored.fingerprint(),
    ]
    assert len({same, *others}) == 7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"version": 9}, "version 9"),
        ({"run": "none"}, "its runs are proxy"),
        ({"lake": "file:///nowhere"}, "etl losses"),
    ],
)
def test_missing_losses_are_reported(scored: Recipe, settings: Any, message: str) -> None:
    recipe = with_loss(scored, scored.lake, loss_stage(scored.lake) | settings)
    with pytest.raises(RecipeError) as error:
        recipe.stages[0].check()
    assert message in str(error.value)


def test_where_reads_the_loss_only_after_its_stage(scored: Recipe) -> None:
    stages = [{"where": "loss < 2"}, loss_stage(scored.lake)]
    with pytest.raises(ValueError, match="where reads 'loss', which no stage before it provides"):
        with_loss(scored, scored.lake, *stages)
    assert with_loss(scored, scored.lake, *reversed(stages)).stages[1].signals() == ["loss"]
