"""Lakes whose recipe is changed, with kills, damage and work on their files in between."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl.delta import table as delta_table
from etl.errors import MismatchError
from etl.job.run import run
from etl.job.shuffle import shuffle
from etl.lake.recipe_ledgers import is_other_recipe, open_all_ledgers
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.maintenance.vacuum import MIN_RETAIN, vacuum
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import write_jsonl
from tests.helpers.damage import delete, live, paths
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
    kill: int  # the commits that the first attempt makes
    is_finished: bool


class KilledError(Exception):
    """What kills a run at a commit."""


@contextmanager
def killed_at(commit: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let commits fail from a number on, as if the process had been killed before them."""
    write, count = delta_table.write_commit, 0

    def write_some(*args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count > commit:
            raise KilledError
        return write(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(delta_table, "write_commit", write_some)
        yield


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
        self, place: UPath, client: Client, records: Callable[[int, int], Sequence[Record]]
    ) -> None:
        self._place, self._client, self._records = place, client, records
        self._num_files = 0

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
        lake = str(recipe.lake)
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
        elif step.care == "strike elsewhere":
            for first in live(recipe, step.table)[:1]:
                strike_by_other(recipe.table_url(step.table), {first: [0]})
            assert repair(lake, drop=True).left == []
        elif step.care == "vacuum":
            vacuum(lake, retain=MIN_RETAIN, delete=True)

    def change(
        self, old: Recipe, new: Recipe, step: Step, monkeypatch: pytest.MonkeyPatch
    ) -> Recipe:
        """Change the recipe, with a kill; return the recipe that the lake then has."""
        try:
            with killed_at(step.kill, monkeypatch), suppress(KilledError):
                self.run(new, apply_change=True)
            if step.is_finished:
                self.run(new, apply_change=True)
        except MismatchError as error:
            if "changes the text" not in str(error):  # what else is refused is a failure
                raise
            return old
        return old if is_other_recipe(new, open_all_ledgers(new)) else new
