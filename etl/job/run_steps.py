"""Do the work of a run on a cluster: read, deduplicate, tokenize."""

from dataclasses import replace

from distributed import Client

from etl.compute.cluster import Cluster
from etl.compute.compile_log import follow_compile_log
from etl.compute.connect import steady_workers
from etl.compute.listener import Listener
from etl.compute.worker_usage import UsageMeter
from etl.job.change_step import follow_decisions
from etl.job.cluster_job import hold_cluster_job
from etl.job.compare_step import compare_files
from etl.job.cost_estimate import estimate_cost
from etl.job.dedup_step import deduplicate
from etl.job.failed_units import FailedUnits
from etl.job.listing_notes import keep_findings, keep_last_findings
from etl.job.planner import OpenPlan, Planner
from etl.job.read_step import read_splits
from etl.job.run_commits import RunCommits
from etl.job.run_context import RunContext
from etl.job.run_report import RunReport
from etl.job.run_tracker import RunTracker
from etl.job.shipped_files import ship_files
from etl.job.tally import Tally
from etl.job.tokenize_step import tokenize_units
from etl.lake.annotated_documents import check_annotations
from etl.lake.known_files import Comparison
from etl.lake.lake_epochs import DescribeDrop
from etl.lake.quarantine import Quarantine
from etl.lake.table_specs import spec_of


def do_work(
    planner: Planner,
    planned: OpenPlan,
    cluster: Cluster | Client | None,
    *,
    time_limit: float,
    listener: Listener,
) -> RunReport:
    """Do the work that was planned, and return the report; raises as ``run`` does."""
    run, plan = planner.run, planned.plan
    skipped = {k: n for stage in run.recipe.stages for k, n in stage.skipped_items().items()}
    tally, tracker = Tally(skipped), RunTracker(plan, run.job.id)
    held = hold_cluster_job(
        run.job,
        cluster,
        num_bytes=plan.planned_bytes,
        time_limit=time_limit,
        listener=listener,
        state=tracker.state,
    )
    with held as job, follow_compile_log(job.client, listener.status):
        notes, meter = Quarantine(run.job.lake), UsageMeter(job.client)
        keep_findings(plan, notes, tally)
        commits = RunCommits(run=run, job=job, tally=tally, ledgers=planned.ledgers, meter=meter)
        context = RunContext(
            job=job,
            planned=planned,
            commits=commits,
            failed=FailedUnits(notes, tally, job.check),
            tracker=tracker,
            files=ship_files(run.recipe, job.client, job.versions),
        )
        return _carry_out(planner, _prepare(planner, context), context)


def _carry_out(planner: Planner, planned: OpenPlan, context: RunContext) -> RunReport:
    """Estimate the cost of a plan, do all its steps, and return the report."""
    meter = context.commits.meter
    context.tracker.plan(planned.plan)
    meter.update(now=True)
    tables = [each.table for each in planned.ledgers.values() if each.table is not None]
    estimate = estimate_cost(planned.plan, workers=meter.cores, tables=tables).usage
    commits = replace(context.commits, ledgers=planned.ledgers, estimate=estimate)
    _run_steps(planner, replace(context, planned=planned, commits=commits))
    keep_last_findings(planned.plan)
    context.job.committed(commits.tally.run_totals())  # with what was quarantined since
    errors = commits.checkpoint_errors()
    meter.update(now=True)
    return commits.tally.report(planner.run, planned, estimate, commits.used(), errors)


def _prepare(planner: Planner, context: RunContext) -> OpenPlan:
    """Compare files in doubt and drop rows; return the plan of the rest."""

    def compare(planned: OpenPlan) -> set[Comparison]:
        text = "input      comparing files that may be known by another name or time"
        context.job.listener.status(text)
        return compare_files(context.with_plan(planned))

    def describe(planned: OpenPlan) -> DescribeDrop:
        return context.with_plan(planned).commits.describe_drop

    planned = planner.drop_rows(planner.compare(context.planned, compare), describe)
    planned = planner.compare(planned, compare)
    planner.run.check_recipe()
    return planned


def _run_steps(planner: Planner, context: RunContext) -> None:
    """Run all steps, in the order in which a document passes them."""
    plan = context.plan
    change = context.ledgers["documents"].change
    for step in reversed(plan.begin):
        spec, ledger = spec_of(step), context.ledgers[step]
        schema, lake_epoch = spec.schema(context.recipe), plan.lake_epoch or 0
        ledger.create(schema, spec.layout, lake_epoch=lake_epoch, change=change)
    _read_files(planner, context)
    if "documents" in plan.begin:
        documents = context.ledgers["documents"].table
        assert documents is not None
        check_annotations(context.recipe, documents)
    if "duplicates" in context.ledgers:
        with steady_workers(context.job.client):
            deduplicate(context)
        follow_decisions(context)
    for table in context.recipe.tokenizers:
        tokenize_units(context, table)
    context.refresh(*plan.recipe.steps)  # raises if another program has changed data


def _read_files(planner: Planner, context: RunContext) -> None:
    """Read the planned files, then those that may be copies of them and are not."""
    read_splits(context)
    if context.plan.postponed:
        context.refresh(*context.recipe.steps)
        planned = planner.plan_postponed(
            context.planned, lambda planned: compare_files(context.with_plan(planned))
        )
        read_splits(context.with_plan(planned))
