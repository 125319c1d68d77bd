"""A lake whose recipe was changed equals a lake that has run the new recipe on the same input."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from upath import UPath

from etl.audit.verify.verify import verify
from etl.delta import table as delta_table
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.job.run import run
from etl.lake.table_digest import table_digest
from etl.maintenance.optimize import optimize
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_corpus, write_jsonl
from tests.helpers.paths import NewPlace

Stages = Sequence[Any]
MakeRecipe = Callable[[UPath, Stages], Recipe]

TABLES = ("documents", "texts", "tokens")
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
CHAINS = st.lists(
    st.lists(st.sampled_from(STAGES), max_size=3, unique_by=lambda each: str(each)[:10]),
    min_size=2,
    max_size=4,
)


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


def digests(lake: UPath) -> dict[str, int]:
    return {name: table_digest(Table.open(f"{lake}/{name}")) for name in TABLES}


@pytest.fixture
def make(new_place: NewPlace, tiny_tokenizer: Path) -> tuple[UPath, MakeRecipe]:
    """Return a folder with a corpus, and a function that makes a recipe for a lake."""
    place = new_place("change")
    write_corpus(place / "corpus")
    columns = {"text": "body", "id": "doc_id", "url": "link"}
    source = {"path": str(place / "corpus"), "columns": columns, "split_bytes": 16384}

    def recipe(lake: UPath, stages: Stages) -> Recipe:
        all_stages = [*stages, {"tokenize": str(tiny_tokenizer)}]
        return Recipe(name="test", source=source, lake=str(lake), stages=all_stages)

    return place, recipe


@settings(
    max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    chain=CHAINS,
    kills=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    transforms=st.sampled_from([(), ("unicode",)]),
    is_optimized=st.booleans(),
)
def test_chains_of_changes_with_kills(  # noqa: PLR0913, PLR0917 - fixtures, and what is drawn
    client: Client,
    make: tuple[UPath, MakeRecipe],
    new_place: NewPlace,
    monkeypatch: pytest.MonkeyPatch,
    chain: list[Stages],
    kills: list[int],
    transforms: Stages,
    is_optimized: bool,
) -> None:
    _, recipe = make
    lake, fresh = new_place("chain") / "lake", new_place("chain") / "fresh"
    run(recipe(lake, [*transforms, *chain[0]]), cluster=client)
    for stages, kill in zip(chain[1:], kills, strict=False):
        if is_optimized:
            optimize(str(lake))
        changed = recipe(lake, [*transforms, *stages])
        with killed_at(kill, monkeypatch), suppress(KilledError):
            run(changed, cluster=client, apply_change=True)
        run(changed, cluster=client, apply_change=True)
        assert [*verify(str(lake))] == []
    run(recipe(fresh, [*transforms, *chain[-1]]), cluster=client)
    assert digests(lake) == digests(fresh)


def test_an_interrupted_change_is_followed_by_a_plain_run(
    client: Client, make: tuple[UPath, MakeRecipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, recipe = make
    run(recipe(place / "lake", [STAGES[0]]), cluster=client)
    changed = recipe(place / "lake", [STAGES[1]])
    for _ in ("before texts", "before tokens"):
        with killed_at(1, monkeypatch), pytest.raises(KilledError):
            run(changed, cluster=client, apply_change=True)
    run(changed, cluster=client)
    assert [*verify(str(changed.lake))] == []
    run(recipe(place / "fresh", [STAGES[1]]), cluster=client)
    assert digests(place / "lake") == digests(place / "fresh")


def test_new_files_are_read_by_the_changed_recipe(
    client: Client, make: tuple[UPath, MakeRecipe]
) -> None:
    place, recipe = make
    run(recipe(place / "lake", [STAGES[1]]), cluster=client)
    write_jsonl(place / "corpus" / "d.jsonl", records(300, 330))
    run(recipe(place / "lake", [STAGES[0]]), cluster=client, apply_change=True)
    run(recipe(place / "fresh", [STAGES[0]]), cluster=client)
    assert digests(place / "lake") == digests(place / "fresh")


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        (["dedup_exact"], "deduplication"),
        (["unicode"], "changes the text"),
    ],
)
def test_what_is_not_exact_is_refused(
    client: Client, make: tuple[UPath, MakeRecipe], stages: Stages, why: str
) -> None:
    place, recipe = make
    run(recipe(place / "lake", []), cluster=client)
    before = digests(place / "lake")
    with pytest.raises(MismatchError, match=why):
        run(recipe(place / "lake", [STAGES[0], *stages]), cluster=client, apply_change=True)
    assert digests(place / "lake") == before


def test_a_missing_file_is_refused_only_if_it_must_be_read(
    client: Client, make: tuple[UPath, MakeRecipe]
) -> None:
    place, recipe = make
    run(recipe(place / "lake", [STAGES[0]]), cluster=client)
    (place / "corpus" / "c.jsonl").unlink()
    with pytest.raises(MismatchError, match="1 input file"):
        run(recipe(place / "lake", [STAGES[1]]), cluster=client, apply_change=True)
    stricter = recipe(place / "lake", [{"gopher_quality": {"min_words": 90}}])
    run(stricter, cluster=client, apply_change=True)
    assert [*verify(str(stricter.lake))] == []


def test_a_changed_recipe_is_refused_with_what_it_would_change(
    client: Client, make: tuple[UPath, MakeRecipe]
) -> None:
    place, recipe = make
    run(recipe(place / "lake", [STAGES[0]]), cluster=client)
    with pytest.raises(MismatchError, match="different recipe") as error:
        run(recipe(place / "lake", [STAGES[1]]), cluster=client)
    assert "come" in str(error.value)
    assert "--apply-change" in str(error.value)
