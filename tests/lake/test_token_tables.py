"""A lake with the tables of several tokenizers: each is made, changed and removed without the others."""

from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from upath import UPath

from etl.audit.lake_report import report
from etl.audit.lake_status import lake_status
from etl.audit.page.render import lake_page
from etl.audit.trace import trace
from etl.audit.verify.verify import verify
from etl.cli.commands.plan import lines as plan_lines
from etl.cli.commands.status import lines as status_lines
from etl.delta.table import Table
from etl.errors import ConflictError, LoaderError, MismatchError, RecipeError, TableError
from etl.job.change_plan import plan_change
from etl.job.cost_estimate import estimate_cost
from etl.job.plan import make_plan
from etl.job.run import run
from etl.lake import leases, releases
from etl.lake.missing_tables import tables_of
from etl.lake.table_digest import table_digest
from etl.lake.table_names import table_names
from etl.loader import TokenDataset
from etl.maintenance.drop_tokens import drop_tokens
from etl.maintenance.optimize import optimize
from etl.maintenance.repair import repair
from etl.recipe.recipe import Recipe
from tests.helpers.corpus import records, write_corpus, write_jsonl
from tests.helpers.lake_rows import rows
from tests.helpers.overlapping_runs import KilledError, killed_at
from tests.helpers.paths import at

SAMPLE = str(resources.files("etl.pipelines") / "sample/tokenizer.json")
NAMED = {"tokenize": {"name": "sample", "tokenizer": SAMPLE}}
DEDUP = (("gopher_quality", "dedup_exact"), ("gopher_quality",))


class Site:
    """A corpus, and recipes over it."""

    def __init__(self, place: UPath, tokenizer: Path) -> None:
        self.place = place
        self.unnamed = {"tokenize": str(tokenizer)}
        write_corpus(place / "corpus")

    def recipe(self, stages: Sequence[Any], *tokenizers: Any, lake: str = "lake") -> Recipe:
        source = {
            "path": str(self.place / "corpus"),
            "columns": {"text": "body", "id": "doc_id", "url": "link"},
            "split_bytes": 16384,
        }
        return Recipe(
            name="test",
            source=source,
            lake=str(self.place / lake),
            stages=[*stages, *tokenizers],
        )


@pytest.fixture
def site(place: UPath, tiny_tokenizer: Path) -> Site:
    return Site(place, tiny_tokenizer)


def state(recipe: Recipe, *names: str) -> dict[str, tuple[int, list[str]]]:
    """Return the versions and data files of tables."""
    tables = {name: Table.open(recipe.table_url(name)) for name in names}
    return {
        name: (table.version, sorted(table.data_files()["path"].to_pylist()))
        for name, table in tables.items()
    }


def digests(recipe: Recipe) -> dict[str, int]:
    """Return the digest of each table that the recipe fills."""
    return {name: table_digest(Table.open(recipe.table_url(name))) for name in recipe.steps}


@pytest.mark.parametrize("stages", DEDUP, ids=["dedup", "fused"])
def test_two_tokenizers_make_the_tables_of_two_lakes(
    client: Client, site: Site, stages: Sequence[Any]
) -> None:
    both = site.recipe(stages, site.unnamed, NAMED)
    report = run(both, cluster=client)
    assert both.steps[-2:] == ("tokens", "tokens_sample")
    assert [*verify(str(both.lake))] == []
    alone = [
        site.recipe(stages, tokenizer, lake=lake)
        for lake, tokenizer in (("one", site.unnamed), ("two", NAMED))
    ]
    for recipe in alone:
        run(recipe, cluster=client)
    assert digests(both) == digests(alone[0]) | digests(alone[1])
    assert report.tokens == sum(report.tokens_by_table.values())
    assert list(report.tokens_by_table) == ["tokens", "tokens_sample"]
    assert not make_plan(both).has_work()


@pytest.mark.parametrize("stages", DEDUP, ids=["dedup", "fused"])
def test_a_tokenizer_that_is_added_touches_no_other_table(
    client: Client, site: Site, stages: Sequence[Any]
) -> None:
    old = site.recipe(stages, site.unnamed)
    run(old, cluster=client)
    before = state(old, *old.steps)
    both = site.recipe(stages, site.unnamed, NAMED)
    plan = make_plan(both)
    assert (plan.begin, len(plan.splits)) == (("tokens_sample",), 0)
    report = run(both, cluster=client)
    assert report.rows == 0
    assert list(report.tokens_by_table) == ["tokens_sample"]
    assert state(old, *old.steps) == before
    fresh = site.recipe(stages, NAMED, lake="fresh")
    run(fresh, cluster=client)
    assert digests(both)["tokens_sample"] == digests(fresh)["tokens_sample"]
    assert [*verify(str(both.lake))] == []


def test_a_table_that_the_recipe_no_longer_names_stays_as_it_is(client: Client, site: Site) -> None:
    both = site.recipe(DEDUP[0], site.unnamed, NAMED)
    run(both, cluster=client)
    write_jsonl(site.place / "corpus" / "d.jsonl", records(300, 330))
    before = state(both, "tokens", "tokens_sample")
    one = site.recipe(DEDUP[0], site.unnamed)
    assert make_plan(one).unfilled == ("tokens_sample",)
    run(one, cluster=client)
    after = state(both, "tokens", "tokens_sample")
    assert after["tokens"] != before["tokens"]
    assert after["tokens_sample"] == before["tokens_sample"]
    assert [*verify(str(one.lake))] == []
    run(both, cluster=client)
    fresh = site.recipe(DEDUP[0], NAMED, lake="fresh")
    run(fresh, cluster=client)
    rows = [
        len(TokenDataset(recipe.table_url("tokens_sample"), seq_len=64)) for recipe in (both, fresh)
    ]
    assert rows[0] == rows[1]
    assert [*verify(str(both.lake))] == []


def test_another_tokenizer_under_a_name_rebuilds_only_its_table(client: Client, site: Site) -> None:
    both = site.recipe(DEDUP[0], site.unnamed, NAMED)
    run(both, cluster=client)
    before = state(both, *both.steps)
    framed = {"tokenize": {"name": "sample", "tokenizer": SAMPLE, "append_eos": False}}
    other = site.recipe(DEDUP[0], site.unnamed, framed)
    with pytest.raises(MismatchError, match="the table 'tokens_sample' was created") as caught:
        run(other, cluster=client)
    assert "another `name`" in str(caught.value)
    run(other, cluster=client, rebuild=True)
    after = state(both, *both.steps)
    assert {name for name in after if after[name][1] != before[name][1]} == {"tokens_sample"}
    assert [*verify(str(both.lake))] == []


def test_a_run_killed_between_two_tokenizers_is_continued(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = site.recipe(DEDUP[0], site.unnamed, NAMED)
    run(both, cluster=client)
    total = sum(Table.open(both.table_url(name)).version for name in both.steps)
    killed = site.recipe(DEDUP[0], site.unnamed, NAMED, lake="killed")
    with killed_at(total, monkeypatch), pytest.raises(KilledError):
        run(killed, cluster=client)
    assert Table.open(killed.table_url("tokens_sample")).data_files().num_rows == 0
    run(killed, cluster=client)
    assert digests(killed) == digests(both)
    assert [*verify(str(killed.lake))] == []


def test_a_release_and_a_loader_name_a_table(client: Client, site: Site) -> None:
    both = site.recipe(DEDUP[0], NAMED)
    run(both, cluster=client)
    first = releases.create_release(str(both.lake), "first")
    assert {*first.versions} == {*both.steps}
    both = site.recipe(DEDUP[0], site.unnamed, NAMED)
    write_jsonl(site.place / "corpus" / "d.jsonl", records(300, 330))
    run(both, cluster=client)
    second = releases.create_release(str(both.lake), "second")
    assert {*second.versions} == {*both.steps}
    assert second.versions["tokens_sample"] > first.versions["tokens_sample"]
    url = both.table_url("tokens_sample")
    sizes = [TokenDataset(url, version=version, seq_len=64) for version in ("first", "second")]
    assert len(sizes[0]) < len(sizes[1])
    record = sizes[0].tokenizer()
    assert record is not None
    assert record.name == "sample"


def test_a_lake_of_named_tokenizers_has_no_default(client: Client, site: Site) -> None:
    recipe = site.recipe(DEDUP[1], NAMED)
    run(recipe, cluster=client)
    with pytest.raises(LoaderError, match="no token table found") as caught:
        TokenDataset(str(recipe.lake), seq_len=64)
    assert recipe.table_url("tokens_sample") in str(caught.value)
    assert "tokens_sample" in table_names(str(recipe.lake))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([None, None], "2 tokenize stages fill the table 'tokens'; give each"),
        (["a", "a"], "2 tokenize stages fill the table 'tokens_a'"),
        (["Qwen"], "`tokens_Qwen`, which is not a valid name: use the letters a to z and digits"),
        (["a_b"], "not a valid name"),
        ([""], "not a valid name"),
        (["shuffled"], "`tokens_shuffled`, which has the rows of `tokens` in random order"),
    ],
)
def test_names_that_are_refused(names: list[str | None], message: str) -> None:
    stages = [{"tokenize": {"name": name, "tokenizer": SAMPLE}} for name in names]
    with pytest.raises(RecipeError, match="tokenize") as caught:
        Recipe(source="a.jsonl", stages=stages)
    assert message in str(caught.value)


def test_settings_choose_a_tokenizer_by_name() -> None:
    stages = [{"tokenize": "a.json"}, {"tokenize": {"name": "b", "tokenizer": "b.json"}}]
    settings = ["tokenize.tokenizer=/x.json", "tokenize.b.tokenizer=/y.json"]
    recipe = Recipe.of({"source": "a.jsonl", "stages": stages}, settings=settings)
    assert [stage.tokenizer for stage in recipe.tokenizers.values()] == ["/x.json", "/y.json"]


def test_the_table_of_a_tokenizer_is_removed(client: Client, site: Site) -> None:
    both = site.recipe(DEDUP[0], site.unnamed, NAMED)
    run(both, cluster=client)
    before = digests(both)
    lake = str(both.lake)
    (planned,) = drop_tokens(lake, "tokens_sample")
    assert (planned.done, planned.rows > 0) == (False, True)
    releases.create_release(lake, "first")
    with pytest.raises(TableError, match="release 'first' names tokens_sample"):
        drop_tokens(lake, "tokens_sample", delete=True)
    releases.remove_release(lake, "first")
    with leases.hold_lease(lake, "run"), pytest.raises(ConflictError, match="a run of this lake"):
        drop_tokens(lake, "tokens_sample", delete=True)
    assert digests(both) == before
    (dropped,) = drop_tokens(lake, "tokens_sample", delete=True)
    assert (dropped.rows, dropped.size) == (planned.rows, planned.size)
    assert not (site.place / "lake" / "tokens_sample").exists()
    one = site.recipe(DEDUP[0], site.unnamed)
    assert digests(one) == {name: before[name] for name in one.steps}
    assert [*verify(lake)] == []
    assert not make_plan(one).has_work()
    run(both, cluster=client)
    assert digests(both) == before
    assert [*verify(lake)] == []


def test_an_interrupted_removal_is_finished(
    client: Client, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = site.recipe(DEDUP[1], site.unnamed, NAMED)
    run(both, cluster=client)
    lake, before = str(both.lake), digests(both)
    for commits in (0, 1, 3):
        with killed_at(commits, monkeypatch), pytest.raises(KilledError):
            drop_tokens(lake, "tokens", delete=True)
    (at(both.table_url("tokens")) / "_delta_log" / f"{1:020}.json").unlink()
    drop_tokens(lake, "tokens", delete=True)
    assert "tokens" not in tables_of(lake)
    run(both, cluster=client)
    assert digests(both) == before
    assert [*verify(lake)] == []


def test_other_tables_are_not_removed(client: Client, site: Site) -> None:
    recipe = site.recipe(DEDUP[1], NAMED)
    run(recipe, cluster=client)
    for name in ("documents", "tokens", "tokens_other", "tokens_shuffled"):
        with pytest.raises(TableError, match="not a table of tokens") as caught:
            drop_tokens(str(recipe.lake), name, delete=True)
        assert "tables of tokens: tokens_sample" in str(caught.value)


LOW, HIGH = ({"gopher_quality": {"min_words": number}} for number in (60, 87))


@pytest.mark.parametrize(
    "dedup", [pytest.param([], marks=pytest.mark.slow), ["dedup_exact"]], ids=["alone", "dedup"]
)
@pytest.mark.parametrize("kill", [None, 2, 3, 4])
def test_a_change_is_followed_in_all_tables(
    client: Client,
    site: Site,
    monkeypatch: pytest.MonkeyPatch,
    dedup: list[str],
    kill: int | None,
) -> None:
    """Killed at 2, one of the tables of tokens does not follow yet; with deduplication both wait."""
    run(site.recipe([LOW, *dedup], site.unnamed, NAMED), cluster=client)
    changed = site.recipe([HIGH, *dedup], site.unnamed, NAMED)
    if kill is not None:
        with killed_at(kill, monkeypatch), suppress(KilledError):
            run(changed, cluster=client, apply_change=True)
        assert [*verify(str(changed.lake))] == []
    run(changed, cluster=client, apply_change=True)
    assert [*verify(str(changed.lake))] == []
    fresh = site.recipe([HIGH, *dedup], site.unnamed, NAMED, lake="fresh")
    run(fresh, cluster=client)
    assert digests(changed) == digests(fresh)


def test_strikes_follow_in_a_table_that_the_recipe_does_not_name(
    client: Client, site: Site
) -> None:
    run(site.recipe([LOW], site.unnamed, NAMED), cluster=client)
    changed = site.recipe([HIGH], site.unnamed)
    run(changed, cluster=client, apply_change=True)
    assert [*verify(str(changed.lake))] == []
    both = site.recipe([HIGH], site.unnamed, NAMED)
    assert not make_plan(both).has_work()
    fresh = site.recipe([HIGH], site.unnamed, NAMED, lake="fresh")
    run(fresh, cluster=client)
    assert digests(both) == digests(fresh)


@pytest.mark.parametrize(
    ("before", "after"), [([HIGH], [LOW]), ([LOW, "dedup_exact"], [HIGH, "dedup_exact"])]
)
def test_a_table_that_the_recipe_does_not_name_blocks_changes_that_may_add_rows(
    client: Client, site: Site, before: list[Any], after: list[Any]
) -> None:
    run(site.recipe(before, site.unnamed, NAMED), cluster=client)
    changed = site.recipe(after, site.unnamed)
    with pytest.raises(MismatchError, match="tokens_sample may need new rows") as caught:
        run(changed, cluster=client, apply_change=True)
    assert f"etl drop {changed.lake} tokens_sample --yes" in str(caught.value)
    drop_tokens(str(changed.lake), "tokens_sample", delete=True)
    run(changed, cluster=client, apply_change=True)
    assert [*verify(str(changed.lake))] == []


def test_input_that_changes_is_replaced_in_all_tables(client: Client, site: Site) -> None:
    both = site.recipe(["gopher_quality"], site.unnamed, NAMED)
    run(both, cluster=client)
    write_jsonl(site.place / "corpus" / "c.jsonl", records(185, 290))
    one = site.recipe(["gopher_quality"], site.unnamed)
    with pytest.raises(MismatchError, match="'tokens_sample', which this recipe does not fill"):
        run(one, cluster=client, replace_changed=True)
    run(both, cluster=client, replace_changed=True)
    assert [*verify(str(both.lake))] == []
    fresh = site.recipe(["gopher_quality"], site.unnamed, NAMED, lake="fresh")
    run(fresh, cluster=client)
    assert digests(both) == digests(fresh)


def test_plans_name_the_tables(client: Client, site: Site) -> None:
    run(site.recipe([LOW], site.unnamed, NAMED), cluster=client)
    changed = site.recipe([HIGH], site.unnamed, NAMED)
    plan = plan_change(changed)
    assert plan is not None
    assert any(line.endswith("added, in each of tokens and tokens_sample") for line in plan.lines())
    one = site.recipe([LOW], site.unnamed)
    lines = [line for line in plan_lines(make_plan(one)) if line.startswith("tokens_sample")]
    drop = "`etl drop LAKE tokens_sample --yes` removes it"
    assert lines == [
        f"tokens_sample not extended, since the recipe does not name its tokenizer; {drop}"
    ]


def test_another_tokenizer_costs_tokenizing_only(client: Client, site: Site) -> None:
    run(site.recipe(DEDUP[0], site.unnamed), cluster=client)
    plan = make_plan(site.recipe(DEDUP[0], site.unnamed, NAMED))
    assert (plan.units.undecided, plan.units.undecided_bytes) == (0, 0)
    assert plan.units.untokenized > 0
    estimate = estimate_cost(plan, workers=1)
    assert estimate.text_bytes == 0
    assert estimate.usage.read_bytes == plan.units.untokenized_bytes


def test_a_document_is_traced_in_each_table(client: Client, site: Site) -> None:
    both = site.recipe(["gopher_quality"], site.unnamed, NAMED)
    run(both, cluster=client)
    address = rows(str(both.lake), "tokens_sample")[0]
    (found,) = trace(str(both.lake), source=str(address["source"]), row=int(str(address["row"])))
    assert list(found.tokens) == ["tokens", "tokens_sample"]
    assert found.tokens["tokens_sample"].num_tokens == address["num_tokens"]
    first, second = (each.num_tokens for each in found.tokens.values())
    assert found.outcome == f"kept; {first} tokens in tokens, {second} tokens in tokens_sample"
    counts = {table.name: table.tokens for table in report(str(both.lake)).tables}
    for name in ("tokens", "tokens_sample"):
        assert counts[name] == sum(int(str(r["num_tokens"])) for r in rows(str(both.lake), name))


@pytest.mark.parametrize("is_named", [True, False])
def test_tokens_are_reported_by_table(client: Client, site: Site, *, is_named: bool) -> None:
    """By a run, by the status that it leaves, and by the report of the lake, as text and as cards."""
    recipe = site.recipe(["gopher_quality"], site.unnamed, *([NAMED] if is_named else []))
    done = run(recipe, cluster=client)
    assert done.tokens_line().count(" in ") == (2 if is_named else 0)
    status = lake_status(str(recipe.lake))
    assert status.last_run is not None
    counted = {name: counts.tokens for name, counts in status.last_run.run.tokens.items()}
    assert counted == done.tokens_by_table
    assert f"  tokens    {done.tokens_line()}" in [*status_lines(status)]
    lake = report(str(recipe.lake))
    for shown, line in (
        (lake, f"{done.tokens_line()} of {lake.tokenized} documents"),
        (done, done.tokens_line()),
        (status, done.tokens_line()),
    ):
        assert line in shown._repr_html_()
    page = lake_page(str(recipe.lake))
    for name, count in done.tokens_by_table.items():
        label = f"Tokens in {name}" if is_named else "Tokens"
        assert f"<dt>{label}</dt><dd>{count:,} " in page


def test_damage_to_one_table_is_repaired_alone(client: Client, site: Site) -> None:
    both = site.recipe(DEDUP[0], site.unnamed, NAMED)
    run(both, cluster=client)
    before, whole = state(both, "tokens"), digests(both)
    path = state(both, "tokens_sample")["tokens_sample"][1][0]
    (at(both.table_url("tokens_sample")) / path).unlink()
    assert [problem.table for problem in verify(str(both.lake))] == ["tokens_sample"]
    assert repair(str(both.lake), drop=True).left == []
    run(both, cluster=client)
    assert state(both, "tokens")["tokens"][1] == before["tokens"][1]
    assert digests(both) == whole
    optimize(str(both.lake))
    assert digests(both) == whole
    assert [*verify(str(both.lake))] == []


def test_tables_without_rows_take_part(client: Client, site: Site) -> None:
    """Without kept documents, no commit names the tokenizer of a table that later passes fill."""
    nothing = {"gopher_quality": {"min_words": 10_000}}
    run(site.recipe([nothing], site.unnamed, NAMED), cluster=client)
    optimize(str(site.place / "lake"))
    run(
        site.recipe([{"gopher_quality": {"min_words": 20_000}}], site.unnamed),
        cluster=client,
        apply_change=True,
    )
    changed = site.recipe([LOW], site.unnamed, NAMED)
    run(changed, cluster=client, apply_change=True)
    assert [*verify(str(changed.lake))] == []
    fresh = site.recipe([LOW], site.unnamed, NAMED, lake="fresh")
    run(fresh, cluster=client)
    assert digests(changed) == digests(fresh)
