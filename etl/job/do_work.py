"""Do the work of a run on a cluster: read, deduplicate, tokenize."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from distributed import Client

from etl import storage
from etl.compute.cluster import Cluster, connect
from etl.compute.compile_log import follow_compile_log
from etl.compute.connect import raise_if_scheduler_lost, steady_workers
from etl.compute.usage import UsageMeter
from etl.compute.worker_versions import WorkerVersions
from etl.job.compare_step import compare_files
from etl.job.cost_estimate import estimate_cost
from etl.job.dedup_step import deduplicate
from etl.job.progress import Progress
from etl.job.read_step import read_splits
from etl.job.run_context import RunContext
from etl.job.run_tracker import RunTracker
from etl.job.shipped_files import ship_files
from etl.job.start import Start
from etl.job.tokenize_step import tokenize_units
from etl.lake import leases
from etl.lake.known_files import Comparison
from etl.lake.table_specs import SPECS
from etl.sources import Split


def do_work(
    start: Start,
    cluster: Cluster | Client | None,
    *,
    time_limit: float,
    on_progress: Callable[[Progress], None] | None,
    on_client: Callable[[Client], None] | None,
    on_status: Callable[[str], None],
) -> None:
    """Do the work that was planned; raises as ``run`` does."""
    recipe = start.plan.recipe
    with connect(cluster, start.plan.planned_bytes) as client:
        if on_client is not None:
            on_client(client)
        storage.check_conditional_writes(str(recipe.lake))
        tracker = RunTracker()
        tracker.plan(start.plan, start.commits.report.run_id)
        # The lease protects the files of the run from a vacuum.
        with (
            leases.hold_lease(str(recipe.lake), "run", tracker.state) as lease,
            raise_if_scheduler_lost(client),
            follow_compile_log(client, on_status),
        ):
            versions = WorkerVersions(client)
            versions.check()
            files = ship_files(recipe, client, versions.expected)

            def check_run() -> None:
                lease.check()
                versions.check()

            def context() -> RunContext:
                return RunContext(
                    plan=start.plan,
                    ledgers=start.ledgers,
                    commits=start.commits,
                    client=client,
                    tracker=tracker,
                    files=files,
                    time_limit=time_limit,
                    on_progress=on_progress,
                )

            def compare(doubts: Sequence[Split]) -> set[Comparison]:
                on_status("input      comparing files that may be known by another name or time")
                return compare_files(context(), doubts)

            start.commits.check_run = check_run
            start.compare(compare)
            start.drop_rows()
            start.compare(compare)
            start.check_recipe()
            meter = start.commits.meter = UsageMeter(client)
            tables = [each.table for each in start.ledgers.values() if each.table is not None]
            estimate = estimate_cost(start.plan, workers=meter.cores, tables=tables)
            start.commits.estimate = estimate.usage
            tracker.plan(start.plan, start.commits.report.run_id)
            _run_steps(start, context())
            start.commits.report.checkpoint_errors = start.commits.checkpoint_errors()
            meter.update(now=True)
            start.commits.report.estimate = start.commits.estimate
            start.commits.report.used = start.commits.used()


def _run_steps(start: Start, context: RunContext) -> None:
    """Run all steps, in the order in which a document passes them."""
    plan = context.plan
    for step in reversed(plan.begin):
        spec = SPECS[step]
        schema = spec.schema(context.recipe)
        context.ledgers[step].create(schema, spec.layout, epoch=plan.epoch or 0)
    _read_files(start, context)
    if "duplicates" in context.ledgers:
        with steady_workers(context.client):
            deduplicate(context)
    if "tokens" in context.ledgers:
        tokenize_units(context)
    context.refresh(*plan.recipe.steps)  # raises if another program has changed data


def _read_files(start: Start, context: RunContext) -> None:
    """Read the planned files, then those that may be copies of them and are not."""
    read_splits(context)
    if context.plan.postponed:
        plan = start.plan_postponed(partial(compare_files, context))
        read_splits(replace(context, plan=plan))
