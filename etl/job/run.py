"""Run a recipe on Dask: read, deduplicate and tokenize, with regular commits.

Workers write files; only the driver commits. After a kill at any moment, ``run`` does the remaining work.
"""

import time
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from etl.compute.cluster import Cluster
from etl.compute.listener import Listener
from etl.compute.print_listener import listener_of
from etl.compute.unit_time_limit import TIME_LIMIT, check_time_limit
from etl.job.change_step import follow_change
from etl.job.check_columns import check_columns
from etl.job.listing_notes import are_kept, keep_findings, keep_last_findings
from etl.job.plan import Drops, check_stages
from etl.job.planner import OpenPlan, Planner
from etl.job.run_identity import RunIdentity, load_reference_tokenizer
from etl.job.run_report import RunReport
from etl.job.small_work import fits_driver
from etl.job.tally import Tally
from etl.job.trial import make_trial
from etl.lake.leases import hold_lease
from etl.lake.quarantine import Quarantine
from etl.recipe.overrides import SettingsLike
from etl.recipe.recipe import Recipe, RecipeLike
from etl.storage.store_time_limit import reporting_waits

if TYPE_CHECKING:
    from distributed import Client


def run(  # noqa: PLR0913 - one parameter for each option and event
    recipe: RecipeLike,
    *,
    cluster: "Cluster | Client | str | None" = None,
    settings: SettingsLike = (),
    env: Collection[str] = (),
    limit: int | None = None,
    share: float | None = None,
    rebuild: bool = False,
    replace_changed: bool = False,
    drop_missing: bool = False,
    apply_change: bool = False,
    time_limit: float = TIME_LIMIT,
    listener: Listener | None = None,
) -> RunReport:
    """Do the remaining work of a recipe and return a report.

    ``recipe`` is a recipe, a dict, its file, or the name of a shipped one, with the ``settings`` and ``env``
    of ``Recipe.load``. ``cluster`` is the cluster to use, its address (``tcp://...``, ``k8s:FILE``) or an
    existing client; by default this machine, see ``Cluster``. No cluster is started, and Dask is not
    imported, if nothing remains to be done. With ``limit`` or ``share``, the run is a new trial on a part of
    the input, see ``make_trial``. Input that cannot be read, and splits that take longer than ``time_limit``
    seconds, are quarantined: the run continues, and the report is not ``ok``.

    With ``apply_change``, the documents of a lake that another recipe made are judged by this one, and the
    other tables follow: see ``etl.change.apply_change``.

    ``listener`` follows the run: what it does, what happens to its cluster, and its progress; see
    ``PrintListener``, which a notebook uses by default.

    Raises the errors of ``make_plan``, SourceError if a column is missing in the files of a format before any
    was read, ClusterError if the scheduler is lost or a worker cannot run the recipe, WriteError if the lake
    cannot be written, for example because the disk is full, and QuarantineError if the first ten units of a
    table without rows all fail with the same error.
    """
    started = time.monotonic()
    listener = listener_of(listener)
    check_time_limit(time_limit)
    with reporting_waits(listener.waiting):
        recipe = Recipe.of(recipe, settings=settings, env=env)
        if limit is not None or share is not None:
            recipe, rebuild = make_trial(recipe, limit=limit, share=share), True
            listener.status(f"trial      {recipe.lake}")
        check_stages(recipe)
        listener.status("input      listing the files")
        drops = Drops(rebuild=rebuild, replace_changed=replace_changed, drop_missing=drop_missing)
        planner = Planner(RunIdentity.of(recipe), drops)
        if not rebuild:
            follow_change(planner.run, listener, apply=apply_change)
        planned = planner.first_plan()
        if planned.plan.has_work():
            if not planned.plan.done:
                check_columns(recipe.source, planned.plan.splits)
            listener.status("workers    starting")
            if cluster is None or isinstance(cluster, str):
                cluster = Cluster(cluster)
            if cluster == Cluster() and fits_driver(planned.plan):
                cluster = Cluster(workers=0)
            if isinstance(cluster, Cluster):
                cluster.prepare()
            for table, stage in recipe.tokenizers.items():
                if table in planned.plan.begin:  # fail early if it is not a tokenizer
                    load_reference_tokenizer(stage)
            from etl.job.run_steps import do_work

            report = do_work(planner, planned, cluster, time_limit=time_limit, listener=listener)
        else:
            report = _report_no_work(planner.run, planned)
    return replace(report, seconds=time.monotonic() - started)


def _report_no_work(run: RunIdentity, planned: OpenPlan) -> RunReport:
    """Return the report of a run that has nothing to do but to keep what its listing has found."""
    lake, tally = run.job.lake, Tally({})
    notes = Quarantine(lake)
    if not are_kept(planned.plan, notes):
        with hold_lease(lake, run.job.kind):
            keep_findings(planned.plan, notes, tally)
            keep_last_findings(planned.plan)
    return tally.report(run, planned)
