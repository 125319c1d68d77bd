"""The cost of each stage is measured in the workers, stored in the lineage, and reported."""

import pytest
from distributed import Client
from upath import UPath

from etl import schemas
from etl.audit.lake_report import report
from etl.audit.lineage_graph import history
from etl.cli.commands import report as report_command
from etl.cli.commands import run as run_command
from etl.job.run import run
from etl.lake.stage_costs import StageCost, stage_costs
from etl.recipe.recipe import Recipe
from etl.stages.stage_clock import StageClock

STAGES = [
    {"kind": "where", "name": "url"},
    {"kind": "where", "name": "url_long"},
    {"kind": "gopher_quality"},
    {"kind": "python", "call": "own:toxic", "name": None},
    {"kind": "dedup_exact"},
    {"kind": "tokenize"},
]


def test_each_stage_counts_the_documents_that_reach_it() -> None:
    counts = [
        schemas.Counts(
            rows=50,
            kept=30,
            text_bytes=4_000_000,
            rejected={
                "source.null_text": 1,
                "where.url": 2,
                "where.url_long": 3,
                "gopher_quality.short": 4,
                "python.toxic_high": 5,
                "python.other": 5,
            },
            costs={"1 where": 1.0, "read": 0.5, "signals.words": 2.0, "write": 0.25},
        ),
        schemas.Counts(rows=50, kept=50, text_bytes=4_000_000, costs={"4 python": 8.0}),
    ]
    tokens = [schemas.Counts(rows=80, kept=70, text_bytes=6_000_000, costs={"tokenize.read": 2.0})]
    stages = stage_costs(STAGES, counts, tokens)
    assert stages == [
        StageCost("read", 100, 1, 0.5, 8_000_000),
        StageCost("signals.words", 100, 0, 2.0, 8_000_000),
        StageCost("1 where", 99, 2, 1.0, 8_000_000),
        StageCost("2 where", 97, 3, 0, 8_000_000),
        StageCost("3 gopher_quality", 94, 4, 0, 8_000_000),
        StageCost("4 python", 90, 10, 8.0, 8_000_000),
        StageCost("write", 100, 0, 0.25, 8_000_000),
        StageCost("tokenize.read", 70, 0, 2.0, 6_000_000),
    ]
    assert stages[1].megabytes_per_second == 4.0
    assert stages[3].megabytes_per_second is None


def test_tokenizing_in_the_first_pass_counts_kept_documents() -> None:
    costs = {"read": 1.0, "tokenize": 2.0}
    counts = schemas.Counts(rows=9, kept=7, text_bytes=10, rejected={"where.url": 2}, costs=costs)
    assert stage_costs(STAGES, [counts])[-1] == StageCost("tokenize", 7, 0, 2.0, 10)


def test_records_without_costs_report_none() -> None:
    assert stage_costs(STAGES, [schemas.Counts(rows=3, kept=3)]) == []


def test_a_clock_adds_time_even_when_the_work_fails() -> None:
    clock = StageClock()
    clock.add({"a": 1.0})
    with pytest.raises(ZeroDivisionError), clock.measure("a"):
        _ = 1 / 0
    assert list(clock.measure_each("b", [1, None, 2])) == [1, None, 2]
    seconds = clock.seconds()
    assert seconds["a"] > 1.0
    assert seconds["b"] > 0


@pytest.mark.parametrize("is_fused", [False, True])
def test_a_run_and_the_report_of_its_lake_have_the_same_costs(
    made: Recipe, client: Client, place: UPath, is_fused: bool
) -> None:
    stages = [s for s in made.stages if not (is_fused and s.kind == "dedup_exact")]
    recipe = made.model_copy(update={"lake": f"{place}/lake", "stages": tuple(stages)})
    first = run(recipe, cluster=client)
    names = ["read", "signals.hash", "signals.words", "1 gopher_quality", "write"]
    names += [] if is_fused else ["tokenize.read"]
    assert [cost.name for cost in first.costs] == [*names, "tokenize", "tokenize.write"]
    assert sum(cost.seconds for cost in first.costs) > 0
    by_name = {cost.name: cost for cost in first.costs}
    assert by_name["1 gopher_quality"].documents == first.rows - by_name["read"].rejected
    assert by_name["tokenize"].documents == first.kept - first.duplicates
    assert sum(cost.rejected for cost in first.costs) == first.rows - first.kept
    summary = report(str(recipe.lake))
    assert summary.costs == first.costs
    seconds = {
        name: value
        for table in ("documents", "tokens")
        for version in history(recipe.table_url(table))
        if version.lineage is not None
        for name, value in version.lineage.counts.costs.items()
    }
    assert seconds == {cost.name: cost.seconds for cost in first.costs}
    lines = list(run_command.lines(first))
    assert lines[-len(first.costs) - 1].split() == [
        "stage",
        "documents",
        "rejected",
        "seconds",
        "MB/s",
    ]
    assert lines[-1].startswith("tokenize.write")
    assert lines[-1] in list(report_command.lines(summary))
    assert run(recipe, cluster=client).costs == []
