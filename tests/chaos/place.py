"""Where a case happens: the folder or bucket of its input and its lake, and the recipe between them."""

import os
from dataclasses import dataclass
from pathlib import Path

from etl import storage
from etl.recipe import Recipe
from tests.chaos import corpus


@dataclass(frozen=True)
class Place:
    """A folder for files of the test, and the URL below which input and lake are."""

    folder: Path
    url: str
    tokenizer: Path

    @property
    def recipe(self) -> Recipe:
        """Filters, both ways to deduplicate, and tokens, in splits of a few rows."""
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
        """The recipe as a file, for a driver."""
        file = self.folder / "recipe.yaml"
        file.write_text(self.recipe.to_yaml())
        return file

    def bring(self, name: str) -> None:
        """One more input file comes in."""
        file = corpus.write(self.folder, name)
        raw = storage.join(self.url, "raw")
        if storage.is_local(raw):
            storage.local_path(raw).mkdir(exist_ok=True)
        storage.filesystem(raw).put(str(file), storage.join(raw, name))

    def written(self) -> int:
        """How many files stand in the lake, if it is on this machine."""
        lake = storage.local_path(storage.join(self.url, "lake"))
        return sum(len(files) for _, _, files in os.walk(lake))
