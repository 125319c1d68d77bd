"""A lake whose recipe was changed equals a lake that has run the new recipe on the same input."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from upath import UPath

from etl.audit.trace import trace
from etl.audit.verify.verify import verify
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.job.change_plan import plan_change
from etl.job.run import run
from etl.lake.table_digest import table_digest
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_corpus, write_jsonl
from tests.helpers.damage import live
from tests.helpers.lake_rows import rows
from tests.helpers.overlapping_runs import KilledError, killed_at, overlaps
from tests.helpers.paths import NewPlace
from tests.helpers.recipe_changes import (
    STAGES,
    Chain,
    MakeRecipe,
    Stages,
    Step,
    maker,
)
from tests.helpers.strikes import strike_by_other

TABLES = ("documents", "texts", "tokens")
TRANSFORMS: tuple[Stages, ...] = ((), (), ("unicode",), ({"c4": {"min_sentences": 1}},))
CARE = ("", "", "optimize", "shuffle", "add a file", "lose a file", "strike elsewhere", "vacuum")


STEPS = st.builds(
    Step,
    stages=st.lists(st.sampled_from(STAGES), max_size=3, unique_by=lambda each: str(each)[:10]),
    position=st.integers(0, 3),
    care=st.sampled_from(CARE),
    table=st.sampled_from([*TABLES, "tokens_named"]),
    kill=st.integers(0, 4),
    is_finished=st.booleans(),
    overlap=st.none() | overlaps(commits=3),
)


def digests(lake: UPath, tables: Sequence[str] = TABLES) -> dict[str, int]:
    return {name: table_digest(Table.open(f"{lake}/{name}")) for name in tables}


@pytest.fixture
def make(new_place: NewPlace, tiny_tokenizer: Path) -> tuple[UPath, MakeRecipe]:
    """Return a folder with a corpus, and a function that makes a recipe for a lake."""
    place = new_place("change")
    write_corpus(place / "corpus")
    return place, maker(place, tiny_tokenizer)


@pytest.mark.slow
@settings(
    max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    steps=st.lists(STEPS, min_size=2, max_size=4),
    transforms=st.sampled_from(TRANSFORMS),
    file_records=st.sampled_from([10, 100]),
)
def test_chains_of_changes(  # noqa: PLR0913, PLR0917 - fixtures, and what is drawn
    client: Client,
    new_place: NewPlace,
    tiny_tokenizer: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[Step],
    transforms: Stages,
    file_records: int,
) -> None:
    """Files of ten records are read in packs, whose rows share data files."""
    place = new_place("chain")
    for start in range(0, 200, file_records):
        few = records(start, start + file_records)
        write_jsonl(place / "corpus" / f"{start:03}.jsonl", few)
    make = maker(place, tiny_tokenizer)

    def recipe(lake: str, step: Step) -> Recipe:
        stages = step.stages
        stages = [*stages[: step.position], *transforms, *stages[step.position :]]
        return make(place / lake, stages, named="named")

    chain = Chain(place, client, records)
    last = recipe("lake", steps[0])
    chain.run(last)
    for step in steps[1:]:
        chain.take_care(last, step)
        last = chain.change(last, recipe("lake", step), step, monkeypatch)
        chain.check()
    chain.end(last)
    fresh = last.model_copy(update={"lake": str(place / "fresh")})
    chain.run(fresh)
    tables = [*TABLES, "tokens_named"]
    assert digests(place / "lake", tables) == digests(place / "fresh", tables)


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


def test_an_interrupted_change_is_not_followed_with_another_tokenizer(
    client: Client, make: tuple[UPath, MakeRecipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, recipe = make
    run(recipe(place / "lake", [STAGES[0]]), cluster=client)
    changed = recipe(place / "lake", [STAGES[1]])
    with killed_at(2, monkeypatch), pytest.raises(KilledError):
        run(changed, cluster=client, apply_change=True)
    other = recipe(place / "lake", [STAGES[1]], tokenize={"append_eos": False})
    untokenized = changed.model_copy(update={"stages": changed.stages[:-1]})
    for each, message in ((other, "another tokenizer made it"), (untokenized, "does not name")):
        with pytest.raises(MismatchError, match=message):
            run(each, cluster=client, apply_change=True)
    run(changed, cluster=client)
    assert [*verify(str(changed.lake))] == []


@pytest.mark.parametrize("table", TABLES)
def test_changes_by_another_program_are_repaired_before_a_change(
    client: Client, make: tuple[UPath, MakeRecipe], table: str
) -> None:
    place, recipe = make
    old, changed = (recipe(place / "lake", [stage]) for stage in STAGES[1:3])
    run(old, cluster=client)
    strike_by_other(old.table_url(table), {live(old, table)[0]: [0]})
    with pytest.raises(MismatchError, match="another program"):
        run(changed, cluster=client, apply_change=True)
    assert repair(str(old.lake), drop=True).left == []
    run(changed, cluster=client, apply_change=True)
    assert [*verify(str(old.lake))] == []


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
    ("changed", "why"),
    [
        ({"stages": ["dedup_exact"]}, "deduplication"),
        ({"stages": ["unicode"]}, "a transform, or the language that it reads, changes the text"),
        ({"seed": 7}, "`seed` changes random choices"),
        ({"columns": {"text": "body", "id": "doc_id"}}, "`source` changes which records are read"),
        ({"rejected": {"text": True}}, "`rejected` changes what is stored"),
        ({"rejected": {"signals": False}}, "`rejected` changes what is stored"),
        ({"tokenize": {"append_eos": False}}, "`tokenize` changes all rows of tokens"),
    ],
    ids=str,
)
def test_what_is_not_exact_is_refused(
    client: Client, make: tuple[UPath, MakeRecipe], changed: dict[str, Any], why: str
) -> None:
    """A refusal has the reason, and what to do instead; a plain run prints the same."""
    place, recipe = make
    run(recipe(place / "lake", []), cluster=client)
    before = digests(place / "lake")
    if "columns" in changed:
        changed = {"source": {"path": str(place / "corpus"), **changed}}
    stages = [STAGES[0], *changed.get("stages", [])]
    changed = {name: value for name, value in changed.items() if name != "stages"}
    other = recipe(place / "lake", stages, **changed)
    for apply_change in (True, False):
        with pytest.raises(MismatchError, match=why) as error:
            run(other, cluster=client, apply_change=apply_change)
        assert re.search(r"pass --rebuild \(about [\d.,]+ core-seconds", str(error.value))
        assert "--apply-change" not in str(error.value)
    assert digests(place / "lake") == before


def test_an_edited_file_is_refused_if_it_must_be_read(
    client: Client, make: tuple[UPath, MakeRecipe]
) -> None:
    place, recipe = make
    run(recipe(place / "lake", [STAGES[0]]), cluster=client)
    write_jsonl(place / "corpus" / "c.jsonl", records(180, 299))
    with pytest.raises(MismatchError, match=r"1 input file .* changed .* first \S+/c\.jsonl"):
        run(recipe(place / "lake", [STAGES[1]]), cluster=client, apply_change=True)


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
    """The numbers are those of the change that then follows."""
    place, recipe = make
    lake = place / "lake"
    run(recipe(lake, [STAGES[0]]), cluster=client)
    looser = recipe(lake, [{"gopher_quality": {"min_words": 60}}])
    with pytest.raises(MismatchError, match="different recipe") as error:
        run(looser, cluster=client)
    shown = str(error.value)
    assert "min_words: 87 -> 60" in shown
    assert "pass --apply-change (documents" in shown
    plan = plan_change(looser)
    assert plan is not None
    assert (plan.refusals, plan.others, plan.stored_texts) == ((), 0, 0)
    assert (plan.records, plan.input_bytes > 0) == (plan.come, True)
    assert 0 < plan.core_seconds < plan.rebuild_core_seconds
    assert all(" ".join(line.split()) in shown for line in [*plan.lines()][:-1])
    assert "was created by a different recipe" in shown
    before = {row["id"] for row in rows(str(lake), "texts")}
    run(looser, cluster=client, apply_change=True)
    after = {row["id"] for row in rows(str(lake), "texts")}
    assert (plan.leave, plan.come) == (len(before - after), len(after - before))
    assert plan_change(looser) is None
    assert len(after - before) > 10


def test_a_filter_by_url_reads_no_text_of_documents_that_leave(
    client: Client, make: tuple[UPath, MakeRecipe]
) -> None:
    place, recipe = make
    urls = place / "urls.txt"
    urls.write_text("https://x/12\nhttps://x/14\n")
    stages = [STAGES[1], {"url": {"urls": str(urls)}}]
    run(recipe(place / "lake", stages[:1]), cluster=client)
    changed = recipe(place / "lake", stages)
    plan = plan_change(changed)
    assert plan is not None
    assert (plan.stored_texts, plan.records, plan.leave > 0) == (0, 0, True)
    run(changed, cluster=client, apply_change=True)
    run(recipe(place / "fresh", stages), cluster=client)
    assert digests(place / "lake") == digests(place / "fresh")


def test_a_trace_names_the_change_that_struck_a_document(
    client: Client, make: tuple[UPath, MakeRecipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, recipe = make
    lake = place / "lake"
    run(recipe(lake, [STAGES[1]]), cluster=client)
    stricter = {"where": {"keep": "url NOT LIKE '%1'"}}
    for stages in ([STAGES[1], "gopher_repetition"], [STAGES[1], "gopher_repetition", stricter]):
        run(recipe(lake, stages), cluster=client, apply_change=True)
    [struck], [short] = (trace(str(lake), id=f"doc-000{number}") for number in (11, 10))
    assert struck.outcome == "rejected by where.condition; struck by change 2 of the recipe"
    assert short.outcome == "rejected by gopher_quality.short"
    assert struck.document.commit is not None
    with killed_at(2, monkeypatch), pytest.raises(KilledError):
        run(recipe(lake, [STAGES[1]]), cluster=client, apply_change=True)
    [back] = trace(str(lake), id="doc-00011")
    assert back.outcome == "kept by change 3 of the recipe, not tokenized yet: run it again"
    run(recipe(lake, [STAGES[1]]), cluster=client)
    [back] = trace(str(lake), id="doc-00011")
    assert re.fullmatch(r"kept; \d+ tokens", back.outcome)
