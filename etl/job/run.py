"""Run a recipe on Dask: read, deduplicate and tokenize, with regular commits.

Workers write files; only the driver commits. After a kill at any moment, ``run`` does the remaining work.
"""

import time
from collections.abc import Callable

from distributed import Client

from etl import storage
from etl.compute.cluster import Cluster, connect, raise_if_scheduler_lost, steady_workers
from etl.compute.usage import UsageMeter
from etl.compute.worker_versions import WorkerVersions
from etl.job.cost_estimate import estimate_cost
from etl.job.dedup_step import deduplicate
from etl.job.plan import check_stages
from etl.job.progress import Progress, RunReport
from etl.job.read_step import read_splits
from etl.job.run_commits import load_reference_tokenizer
from etl.job.run_context import RunContext
from etl.job.run_tracker import RunTracker
from etl.job.shipped_files import ship_files
from etl.job.start import Start
from etl.job.tokenize_step import tokenize_units
from etl.lake import leases
from etl.lake.table_specs import SPECS
from etl.recipe.recipe import Recipe


def run(
    recipe: Recipe,
    *,
    cluster: Cluster | Client | None = None,
    rebuild: bool = False,
    replace_changed: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_client: Callable[[Client], None] | None = None,
) -> RunReport:
    """Do the remaining work of a recipe and return a report.

    ``cluster`` is the cluster to use (default: all cores of this machine) or an existing client. No cluster
    is started if nothing remains to be done. Input that cannot be read is quarantined: the run continues,
    and the report is not ``ok``. Raises the errors of ``make_plan``, ClusterError if the scheduler is lost
    or a worker cannot run the recipe, and WriteError if the lake cannot be written, for example because the
    disk is full.
    """
    started = time.monotonic()
    check_stages(recipe)
    start = Start(recipe, rebuild=rebuild, replace_changed=replace_changed)
    if start.plan.has_work():
        if recipe.tokenize_stage is not None:  # fail early if it is not a tokenizer
            load_reference_tokenizer(recipe.tokenize_stage)
        with connect(cluster, start.plan.planned_bytes) as (client, time_limit):
            if on_client is not None:
                on_client(client)
            storage.check_conditional_writes(str(recipe.lake))
            tracker = RunTracker()
            tracker.plan(start.plan, start.commits.report.run_id)
            # The lease protects the files of the run from a vacuum.
            with (
                leases.hold_lease(str(recipe.lake), "run", tracker.state) as lease,
                raise_if_scheduler_lost(client),
            ):
                versions = WorkerVersions(client)
                versions.check()
                files = ship_files(recipe, client, versions.expected)

                def check_run() -> None:
                    lease.check()
                    versions.check()

                start.drop_rows(check_run)
                start.check_recipe()
                meter = start.commits.meter = UsageMeter(client)
                tables = [each.table for each in start.ledgers.values() if each.table is not None]
                estimate = estimate_cost(start.plan, workers=meter.cores, tables=tables)
                start.commits.estimate = estimate.usage
                tracker.plan(start.plan, start.commits.report.run_id)
                context = RunContext(
                    plan=start.plan,
                    ledgers=start.ledgers,
                    commits=start.commits,
                    client=client,
                    tracker=tracker,
                    files=files,
                    time_limit=time_limit,
                    on_progress=on_progress,
                )
                _run_steps(context)
                start.commits.report.checkpoint_errors = start.commits.checkpoint_errors()
                meter.update(now=True)
                start.commits.report.estimate = start.commits.estimate
                start.commits.report.used = start.commits.used()
    report = start.commits.report
    report.costs = start.commits.costs()
    report.seconds = time.monotonic() - started
    report.versions = {s: led.table.version for s, led in start.ledgers.items() if led.table}
    return report


def _run_steps(context: RunContext) -> None:
    """Run all steps, in the order in which a document passes them."""
    plan = context.plan
    for step in reversed(plan.begin):
        spec = SPECS[step]
        schema = spec.schema(context.recipe)
        context.ledgers[step].create(schema, spec.layout, epoch=plan.epoch or 0)
    read_splits(context)
    if "duplicates" in context.ledgers:
        with steady_workers(context.client):
            deduplicate(context)
    if "tokens" in context.ledgers:
        tokenize_units(context)
    context.refresh(*plan.recipe.steps)  # raises if another program has changed data
