"""A source folder of JSON Lines files, and the lake of a recipe that reads it."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.errors import TableError
from etl.job.run import run
from etl.job.run_report import RunReport
from etl.recipe.recipe import Recipe
from tests.helpers.lake_rows import rows


class SourceFolder:
    """A folder of files with texts, and the lake of a recipe that reads it."""

    def __init__(self, place: UPath, tokenizer: Path, client: Client) -> None:
        self.folder = place / "in"
        self.lake = place / "lake"
        self._tokenizer, self._client = tokenizer, client
        self.source: dict[str, object] = {"path": str(self.folder)}

    def write(self, name: str, texts: Sequence[str]) -> UPath:
        """Write a file with a record for each text."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return file

    @property
    def recipe(self) -> Recipe:
        """The recipe, without deduplication: a file that is read twice shows."""
        stages = [{"tokenize": str(self._tokenizer)}]
        return Recipe(name="r", source=self.source, lake=str(self.lake), stages=stages)

    def run(self, **options: bool) -> RunReport:
        """Run the recipe, with as many splits as the source says."""
        return run(self.recipe, cluster=self._client, **options)

    def check(self, *texts: Sequence[str]) -> None:
        """Check that the lake holds these texts, each as often as it is given."""
        held, wanted = self.texts(), Counter(text for each in texts for text in each)
        extra, lost = sorted(held - wanted), sorted(wanted - held)
        if extra or lost:
            pytest.fail(f"{len(extra)} too many: {extra[:3]}; {len(lost)} lost: {lost[:3]}")

    def texts(self) -> Counter[str]:
        """Return the texts in the lake; each must have tokens once."""
        try:
            documents = rows(str(self.lake), "documents")
        except TableError:
            return Counter()
        tokens = rows(str(self.lake), "tokens")
        addresses = [(row["source"], row["row"]) for row in documents]
        assert [(row["source"], row["row"]) for row in tokens] == addresses
        assert len({*addresses}) == len(addresses), "two documents have one address"
        texts = rows(str(self.lake), "texts")
        assert [(row["source"], row["row"]) for row in texts] == addresses
        return Counter(str(row["text"]) for row in texts)
