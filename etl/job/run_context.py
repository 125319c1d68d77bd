"""What the steps of one run share: its job, plan, ledgers, commits and progress."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from etl.compute.listener import Progress
from etl.job.cluster_job import ClusterJob
from etl.job.failed_units import FailedUnits
from etl.job.plan import Plan
from etl.job.planner import OpenPlan
from etl.job.run_commits import RunCommits
from etl.job.run_tracker import RunTracker
from etl.job.shipped_files import ShippedFiles
from etl.lake.ledger import Ledger
from etl.lake.table_names import in_order
from etl.recipe.recipe import Recipe, Step


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The plan of a run, and everything that its steps need to carry it out."""

    job: ClusterJob
    planned: OpenPlan
    commits: RunCommits
    failed: FailedUnits
    tracker: RunTracker
    files: ShippedFiles

    @property
    def plan(self) -> Plan:
        """The plan that is carried out."""
        return self.planned.plan

    @property
    def ledgers(self) -> Mapping[Step, Ledger]:
        """The ledgers that the plan was made from."""
        return self.planned.ledgers

    @property
    def recipe(self) -> Recipe:
        """The recipe that the run carries out."""
        return self.plan.recipe

    @property
    def num_workers(self) -> int:
        """The workers when they were last counted, at least one."""
        return max(self.commits.meter.cores, 1)

    def with_plan(self, planned: OpenPlan) -> Self:
        """Return the context for another plan of the run."""
        commits = replace(self.commits, ledgers=planned.ledgers)
        return replace(self, planned=planned, commits=commits)

    def refresh(self, *steps: Step) -> None:
        """Read the newest versions of tables, later steps first: their rows are committed last."""
        for step in reversed(in_order(steps)):
            self.ledgers[step].refresh()

    def report(self, progress: Progress) -> None:
        """Report progress to the lease, and to the listener unless the step has nothing to do."""
        self.tracker.update(progress)
        if progress.total:
            self.job.progress(progress)
