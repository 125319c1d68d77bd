"""The estimate of a run is near what it uses, comes from the lake's own runs, and is priced by a file."""

import json
from pathlib import Path

import pytest
from distributed import Client
from upath import UPath

from etl.audit.lake_report import report
from etl.delta.table import Table
from etl.errors import RecipeError
from etl.job.cost_estimate import MEGABYTES_PER_SECOND, estimate_cost
from etl.job.egress import egress_of
from etl.job.plan import make_plan
from etl.job.plan_report import plan
from etl.job.prices import SHIPPED, Prices, cost_of
from etl.job.run import run
from etl.lake.stage_costs import READ, TOKENIZE, WRITE
from etl.recipe.recipe import Recipe
from etl.schemas import Usage
from etl.stages import STAGES
from tests.helpers.cli import etl
from tests.helpers.cluster import cluster
from tests.helpers.corpus import prose, records, write_jsonl
from tests.helpers.recipes import small_recipe


def near(estimated: float, used: float) -> bool:
    """Whether the estimate is within a factor of 2."""
    return used / 2 <= estimated <= used * 2


@pytest.mark.slow
def test_the_estimate_for_s3_is_within_a_factor_of_two(s3: str, tiny_tokenizer: Path) -> None:
    crawl = UPath(s3) / "crawl"
    for name, first in (("a", 0), ("b", 500)):
        write_jsonl(crawl / f"{name}.jsonl", records(first, first + 500))
    recipe = small_recipe(crawl, f"{s3}/lake", tiny_tokenizer, split_bytes=100_000)
    expected = estimate_cost(make_plan(recipe))
    estimate = expected.usage
    assert expected.reads == {s3: estimate.read_bytes}
    with cluster() as client:  # in this process, which the server is configured for
        done = run(recipe, cluster=client)
    assert done.used is not None
    # Every request for a part of these small files returns most of the file: so not read_bytes.
    for name in ("written_bytes", "stored_bytes", "read_requests", "write_requests"):
        assert near(getattr(estimate, name), getattr(done.used, name)), (name, estimate, done.used)
    (recorded,) = report(f"{s3}/lake").runs
    assert recorded.estimate is not None
    assert recorded.estimate.read_requests == estimate.read_requests
    assert recorded.used.stored_bytes == done.used.stored_bytes
    assert 0 < recorded.used.write_requests <= done.used.write_requests


def test_an_estimate_comes_from_the_runs_of_the_lake(
    client: Client, place: UPath, tiny_tokenizer: Path
) -> None:
    recipe = small_recipe(place / "crawl", place / "lake", tiny_tokenizer)
    write_jsonl(place / "crawl" / "a.jsonl", records(0, 200))
    first = estimate_cost(make_plan(recipe))
    assert first.basis.startswith("benchmarks")
    done = run(recipe, cluster=client)
    assert done.used is not None
    # On S3, every request for a part of these small files returns most of the file.
    read_bytes = () if recipe.lake.startswith("s3:") else ("read_bytes",)
    for name in (*read_bytes, "written_bytes", "stored_bytes"):
        assert near(getattr(first.usage, name), getattr(done.used, name)), (name, done.used)
    write_jsonl(place / "crawl" / "b.jsonl", records(200, 400))
    plan = make_plan(recipe)
    second = estimate_cost(plan)
    assert done.run_id in second.basis
    share = sum(split.bytes for split in plan.splits) / (place / "crawl" / "a.jsonl").stat().st_size
    assert second.text_bytes == pytest.approx(done.text_bytes * share, rel=0.01)
    assert second.usage.stored_bytes == pytest.approx(done.used.stored_bytes * share, rel=0.01)


def test_the_estimate_has_the_data_files_of_packs(
    client: Client, place: UPath, tiny_tokenizer: Path
) -> None:
    for number in range(100):
        write_jsonl(place / "crawl" / f"{number:03}.jsonl", records(number, number + 1))
    crawl, lake = place / "crawl", place / "lake"
    recipe = small_recipe(crawl, lake, tiny_tokenizer, split_bytes=1 << 20)
    estimate = estimate_cost(make_plan(recipe)).usage
    used = run(recipe, cluster=client).used
    assert used is not None
    assert near(estimate.stored_bytes, used.stored_bytes), (estimate, used)


def test_the_estimate_has_the_workers_that_a_run_starts(recipe: Recipe) -> None:
    """Little input has one worker: more would not pay for their start."""
    plan = make_plan(recipe)
    assert len(plan.splits) > 1
    assert estimate_cost(plan) == estimate_cost(plan, workers=1)


def test_units_that_were_read_before_are_part_of_the_estimate(
    client: Client, recipe: Recipe
) -> None:
    first = recipe.model_copy(update={"stages": recipe.stages[:1]})
    run(first, cluster=client)
    plan = make_plan(recipe)
    assert not len(plan.splits)
    assert plan.units.num_bytes > 0
    usage = estimate_cost(plan).usage
    assert 0 < usage.stored_bytes < plan.units.num_bytes * 10


def test_nothing_to_do_costs_nothing(client: Client, recipe: Recipe) -> None:
    run(recipe, cluster=client)
    assert "cost" not in etl("plan", str(recipe.lake)).stdout
    usage = estimate_cost(make_plan(recipe)).usage
    assert (usage.read_bytes, usage.stored_bytes, usage.read_requests) == (0, 0, 0)


def test_the_parts_of_the_formula_exist() -> None:
    parts = {READ, WRITE, "content hash", TOKENIZE, f"{TOKENIZE}.read", f"{TOKENIZE}.write"}
    assert set(MEGABYTES_PER_SECOND) - parts <= set(STAGES)


def test_usage_is_priced() -> None:
    prices = Prices(
        name="ours",
        date="2026-01-02",
        currency="EUR",
        core_hour_on_demand=0.5,
        core_hour_spot=0.25,
        thousand_read_requests=1,
        thousand_write_requests=2,
        gigabyte_month=3,
        gigabyte_to_region=0.5,
        gigabyte_to_internet=2,
    )
    usage = Usage(
        core_seconds=7200, read_requests=500, write_requests=250, stored_bytes=2_000_000_000
    )
    cost = cost_of(usage, prices)
    assert (cost.on_demand, cost.spot, cost.storage_per_month) == (2.0, 1.5, 6.0)
    assert (cost.currency, cost.prices) == ("EUR", "ours, 2026-01-02")
    first, second = egress_of({"s3://lake": 10**9, "https://crawl.example": 4 * 10**9}, prices)
    assert (first.store, first.to_region, first.to_internet) == ("https://crawl.example", 2.0, 8.0)
    assert (second.store, second.to_region, second.to_internet) == ("s3://lake", 0.5, 2.0)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("core_hour_spot", "core_hour_spott", 10, "did you mean 'core_hour_spot'?"),
        ("0.0225", "-1", 10, "greater than or equal to 0"),
        ("0.0225", ".nan", 10, "finite"),
        ("2026-11-23", "soon", 7, "date"),
    ],
)
def test_a_price_file_is_checked(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(SHIPPED.read_text().replace(old, new))
    with pytest.raises(RecipeError, match=message) as caught:
        Prices.load(file)
    assert f"prices.yaml:{line}" in str(caught.value)


def test_plan_prints_the_estimate_at_the_prices_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(SHIPPED.read_text().replace("USD", "EUR").replace("0.0425", "42.5"))
    text = etl("plan", "demo", "--lake", tmp_path / "lake", "--prices", file).stdout
    assert "EUR on demand" in text
    assert "memory per worker" in text
    assert "based on    benchmarks" in text
    result = etl("plan", "demo", "--lake", tmp_path / "lake", "--prices", file, "--json")
    estimate = json.loads(result.stdout)["estimate"]
    hours = estimate["usage"]["core_seconds"] / 3600
    assert estimate["cost"]["on_demand"] == pytest.approx(hours * 42.5)


def test_a_plan_says_what_storing_rejected_texts_takes(
    client: Client, place: UPath, tmp_path: Path
) -> None:
    """Every third document is rejected; the plan knows it from a sample."""
    for first in (0, 600):
        numbers = range(first, first + 600)
        texts = [prose(number, 100 if number % 3 else 150) for number in numbers]
        write_jsonl(place / "in" / f"{first}.jsonl", [{"body": text} for text in texts])
    recipe = Recipe(
        name="r",
        source={"path": str(place / "in"), "columns": {"text": "body"}},
        lake=str(place / "lake"),
        stages=[{"length": {"max_words": 130}}],
        rejected={"text": True},
    )
    planned = plan(recipe).rejected_bytes
    assert planned is not None
    run(recipe, cluster=client)
    files = Table.open(recipe.table_url("texts")).files("size", "partition.verdict")
    assert near(planned, sum(f["size"] for f in files if f["partition.verdict"] == "rejected"))
    recipe = recipe.model_copy(update={"lake": str(place / "new")})
    file = tmp_path / "recipe.yaml"
    for is_stored in (True, False):
        rejected = recipe.rejected.model_copy(update={"text": is_stored})
        file.write_text(recipe.model_copy(update={"rejected": rejected}).to_yaml())
        lines = etl("plan", file).stdout.splitlines()
        [line] = [line for line in lines if line.startswith("rejected ")]
        assert f"stores their texts in {planned / 1e6:.1f} MB" in line
    assert plan(recipe.model_copy(update={"stages": ()})).rejected_bytes == 0
