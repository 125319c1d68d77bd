"""The site of a chaos case: the folder or bucket of its input and its lake, and its recipe."""

import os
from dataclasses import dataclass
from pathlib import Path

from etl import storage
from etl.recipe.recipe import Recipe
from tests.chaos import corpus


@dataclass(frozen=True)
class Site:
    """A folder for files of the test, and the URL under which the input and the lake are."""

    folder: Path
    url: str
    tokenizer: Path

    @property
    def recipe(self) -> Recipe:
        """A recipe with filters, both kinds of deduplication and tokens, in splits of a few rows."""
        return Recipe(
            name="chaos",
            source={
                "path": storage.join(self.url, "raw"),
                "columns": {"text": "body", "id": "doc_id", "url": "link"},
                "split_bytes": 4096,
            },
            lake=storage.join(self.url, "lake"),
            stages=[
                "gopher_quality",
                "dedup_exact",
                "dedup_minhash",
                {"tokenize": str(self.tokenizer)},
            ],
        )

    @property
    def file(self) -> Path:
        """The recipe as a file for a driver."""
        file = self.folder / "recipe.yaml"
        file.write_text(self.recipe.to_yaml())
        return file

    def add_input(self, name: str) -> None:
        """Add one input file."""
        file = corpus.write(self.folder, name)
        raw = storage.join(self.url, "raw")
        if storage.is_local(raw):
            storage.local_path(raw).mkdir(exist_ok=True)
        storage.filesystem(raw).put(str(file), storage.join(raw, name))

    def num_files(self) -> int:
        """Return the number of files in a local lake."""
        lake = storage.local_path(storage.join(self.url, "lake"))
        return sum(len(files) for _, _, files in os.walk(lake))
