"""What the steps of one run share: plan, ledgers, Dask client, commits and progress."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from distributed import Client

from etl.job.plan import Plan
from etl.job.progress import Progress
from etl.job.run_commits import RunCommits
from etl.job.run_tracker import RunTracker
from etl.job.shipped_files import NO_FILES, ShippedFiles
from etl.lake.ledger import Ledger
from etl.recipe.recipe import STEPS, Recipe, Step


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The plan of a run, and everything that its steps need to carry it out."""

    plan: Plan
    ledgers: Mapping[Step, Ledger]
    commits: RunCommits
    client: Client
    time_limit: float  # seconds per unit of work
    tracker: RunTracker = field(default_factory=RunTracker)
    files: ShippedFiles = NO_FILES
    on_progress: Callable[[Progress], None] | None = None

    @property
    def recipe(self) -> Recipe:
        """The recipe that the run carries out."""
        return self.plan.recipe

    @property
    def num_workers(self) -> int:
        """The workers when they were last counted, at least one."""
        return 1 if self.commits.meter is None else max(self.commits.meter.cores, 1)

    def refresh(self, *steps: Step) -> None:
        """Read the newest versions of tables, later steps first: their rows are committed last."""
        for step in reversed(STEPS):
            if step in steps:
                self.ledgers[step].refresh()

    def report(self, progress: Progress) -> None:
        """Report progress to the lease, and to the caller of the run unless the step has nothing to do."""
        self.tracker.update(progress)
        if self.on_progress is not None and progress.total:
            self.on_progress(progress)
