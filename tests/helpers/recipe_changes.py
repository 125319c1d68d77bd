"""Lakes whose recipe is changed, with kills, other runs, damage and work on their files in between."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.job.run import run
from etl.job.shuffle import shuffle
from etl.lake.ledger import Ledger
from etl.lake.recipe_ledgers import is_followed, is_other_recipe, open_all_ledgers
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.maintenance.vacuum import MIN_RETAIN, vacuum
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import write_jsonl
from tests.helpers.damage import delete, live, paths
from tests.helpers.lake_rows import Row, rows
from tests.helpers.overlapping_runs import LOST, KilledError, Overlap, killed_at, run_overlapping
from tests.helpers.pinned_batches import PinnedBatches
from tests.helpers.strikes import strike_by_other

Record = dict[str, str | None]
Stages = Sequence[Any]
MakeRecipe = Callable[..., Recipe]

STAGES: tuple[Any, ...] = (
    {"gopher_quality": {"min_words": 87}},
    {"gopher_quality": {"min_words": 60}},
    "gopher_repetition",
    {"language": ["en"]},
    {"where": {"keep": "url NOT LIKE '%7'"}},
    {"where": {"keep": "num_words > 86 OR lang = 'de'"}},
    {"where": {"keep": "text LIKE '%river%'"}},
    {"sample": {"fraction": 0.7}},
    {"sample": {"fraction": 0.5}},
)


@dataclass(frozen=True)
class Step:
    """A change of the recipe, and what comes before it."""

    stages: Stages
    position: int  # of the transforms among the stages
    care: str
    table: str  # that the care concerns
    kill: int  # the commits that the first attempt makes, since the other run if there is one
    is_finished: bool
    overlap: Overlap | None = None


def maker(place: UPath, tokenizer: Path) -> MakeRecipe:
    """Return a function that makes a recipe over the corpus in a folder, for a lake.

    With ``named``, it has another tokenizer of that name.
    """
    columns = {"text": "body", "id": "doc_id", "url": "link"}
    source = {"path": str(place / "corpus"), "columns": columns, "split_bytes": 16384}

    def recipe(
        lake: UPath, stages: Stages, *, tokenize: Any = None, named: str = "", **others: Any
    ) -> Recipe:
        all_stages = [*stages, {"tokenize": {"tokenizer": str(tokenizer), **(tokenize or {})}}]
        if named:
            other = {"name": named, "tokenizer": str(tokenizer), "append_eos": False}
            all_stages.append({"tokenize": other})
        given = {"name": "test", "source": source, "lake": str(lake), "stages": all_stages}
        return Recipe(**{**given, **others})

    return recipe


class Chain:
    """A lake that goes through changes of its recipe, damage, and work on its files."""

    def __init__(
        self,
        place: UPath,
        client: Client,
        records: Callable[[int, int], Sequence[Record]],
        lake: str = "lake",
    ) -> None:
        self._place, self._client, self._records = place, client, records
        self._lake = str(place / lake)
        self._num_files = 0
        self._pinned = PinnedBatches(self._lake)

    def add_file(self) -> None:
        """Add an input file of a few records."""
        start, self._num_files = 1000 + 20 * self._num_files, self._num_files + 1
        write_jsonl(
            self._place / "corpus" / f"new{start}.jsonl", [*self._records(start, start + 20)]
        )

    def run(self, recipe: Recipe, **options: bool) -> None:
        assert run(recipe, cluster=self._client, **options).ok

    def take_care(self, recipe: Recipe, step: Step) -> None:
        """Do what comes before a change; the lake was made by the recipe."""
        lake = self._lake
        if step.care == "optimize":
            optimize(lake)
        elif step.care == "shuffle":
            self.run(recipe)
            shuffle(lake, cluster=self._client)
        elif step.care == "add a file":
            self.add_file()
        elif step.care == "lose a file":
            for path in paths(recipe, step.table)[:1]:
                delete(path)
            assert repair(lake, drop=True).left == []
            self._pinned.forget()
        elif step.care == "strike elsewhere":
            for first in live(recipe, step.table)[:1]:
                strike_by_other(recipe.table_url(step.table), {first: [0]})
            assert repair(lake, drop=True).left == []
        elif step.care == "vacuum":
            vacuum(lake, retain=MIN_RETAIN, delete=True)
        self._pinned.pin()

    def change(
        self, old: Recipe, new: Recipe, step: Step, monkeypatch: pytest.MonkeyPatch
    ) -> Recipe:
        """Change the recipe, with a kill or beside another run; return the recipe that the lake then has."""
        try:
            if step.overlap is not None:
                self._overlap(old, new, step, step.overlap, monkeypatch)
            else:
                with killed_at(step.kill, monkeypatch), suppress(KilledError):
                    self.run(new, apply_change=True)
            if step.is_finished:
                self.run(new, apply_change=True)
        except MismatchError as error:
            if "changes the text" not in str(error):  # what else is refused is a failure
                raise
            return old
        return old if is_other_recipe(new, open_all_ledgers(new)) else new

    def _overlap(
        self,
        old: Recipe,
        new: Recipe,
        step: Step,
        overlap: Overlap,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        recipe = old if overlap.job in {"old recipe", "change back"} else new
        applies = overlap.job in {"change back", "same change"}
        change = partial(self.run, new, apply_change=True)

        def other() -> None:
            if overlap.adds_file:
                self.add_file()
            self.run(recipe, apply_change=applies)

        outer, inner = (other, change) if overlap.is_outer else (change, other)
        for error in run_overlapping(outer, inner, overlap, step.kill, monkeypatch):
            assert any(text in error for text in (*LOST, "changes the text")), error

    def check(self) -> None:
        """Check that all tables are consistent, and pinned batches the same."""
        assert [*verify(self._lake)] == []
        self._pinned.check()
        self._check_shuffled()

    def _check_shuffled(self) -> None:
        """Check that ``tokens_shuffled`` has rows of ``tokens``, once each, if it follows all changes."""
        names = ("documents", "tokens", "tokens_shuffled")
        urls = {name: f"{self._lake}/{name}" for name in names}
        if all(map(Table.exists, urls.values())) and is_followed(
            Ledger(url, fingerprint="") for url in urls.values()
        ):
            tokens = {addressed(row): row for row in rows(self._lake, "tokens")}
            shuffled = rows(self._lake, "tokens_shuffled")
            assert shuffled == [tokens[key] for key in sorted({*map(addressed, shuffled)})]

    def end(self, recipe: Recipe) -> None:
        """Run a recipe, and check that all tables are consistent, and rows are shuffled exactly once."""
        self.run(recipe)
        self.check()
        if Table.exists(f"{self._lake}/tokens_shuffled"):
            shuffle(self._lake, cluster=self._client)
            assert rows(self._lake, "tokens_shuffled") == rows(self._lake, "tokens")
            self.check()


def addressed(row: Row) -> tuple[str, int]:
    """Return the address of a row."""
    return str(row["source"]), int(str(row["row"]))
