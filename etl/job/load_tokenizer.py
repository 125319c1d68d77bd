"""Load the tokenizer on the workers while they deduplicate, and often wait for each other and the driver."""

from contextlib import suppress
from threading import Thread

from distributed import Client

from etl.job.shipped_files import ShippedFiles
from etl.recipe.recipe import Recipe
from etl.stages.tokenize import Encoder


def load_tokenizer(client: Client, recipe: Recipe, files: ShippedFiles) -> None:
    """Begin to load the tokenizer of a recipe on all workers; return at once."""
    client.run(_begin, recipe, files, on_error="ignore")


def _begin(recipe: Recipe, files: ShippedFiles) -> None:
    Thread(target=_load, args=(recipe, files), name="load-tokenizer", daemon=True).start()


def _load(recipe: Recipe, files: ShippedFiles) -> None:
    with suppress(Exception), files.on_worker(recipe) as local:  # a task will raise the error
        assert local.tokenize_stage is not None
        Encoder.of(local.tokenize_stage)
