"""Workers load the tokenizer while they deduplicate, and a task finds it loaded."""

import threading

from distributed import Client

from etl.job.load_tokenizer import load_tokenizer
from etl.job.shipped_files import ShippedFiles, ship_files
from etl.recipe.recipe import Recipe
from etl.stages.tokenize import Encoder, _encoder


def finds_loaded(recipe: Recipe, files: ShippedFiles) -> bool:
    """Wait for the loading threads of this process; return whether a task then finds the tokenizer."""
    for thread in threading.enumerate():
        if thread.name == "load-tokenizer":
            thread.join(60)
    before = _encoder.cache_info().hits
    with files.on_worker(recipe) as local:
        assert local.tokenize_stage is not None
        Encoder.of(local.tokenize_stage)
    return _encoder.cache_info().hits > before


def with_tokenize(recipe: Recipe, **settings: object) -> Recipe:
    """Return a recipe with other settings of its last stage, tokenize."""
    *stages, tokenize = recipe.stages
    return recipe.model_copy(update={"stages": (*stages, tokenize.model_copy(update=settings))})


def test_a_task_finds_the_tokenizer_loaded(recipe: Recipe, process_client: Client) -> None:
    ours = with_tokenize(recipe, append_eos=False)  # as in no other test
    files = ship_files(ours, process_client)
    load_tokenizer(process_client, ours, files)
    found = process_client.run(finds_loaded, ours, files)
    assert len(found) == 2
    assert all(found.values())
