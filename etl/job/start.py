"""The start of a run: plan it, and drop the rows of rebuilt tables and changed input files first.

Rows are dropped in the commits that start an epoch of the lake (``etl.lake.epochs``). They succeed only on
the versions that were planned from. If another run commits at the same moment, all is planned again.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from etl import storage
from etl.audit.verify.log_checks import check_logs
from etl.compact_collections import SpilledList
from etl.errors import ConflictError, DamagedLogError, RecipeError
from etl.job.plan import Drops, Plan, open_ledgers, plan_work
from etl.job.run_commits import RunCommits
from etl.lake import leases
from etl.lake.epochs import drop_all, open_lake, start_epoch
from etl.lake.known_files import Comparison
from etl.lake.ledger import Drop, Ledger
from etl.lake.source_moves import write_moves
from etl.lake.table_specs import SPECS
from etl.lake.vacuums import refuse_during_vacuum
from etl.lake.work_units import drop_sources, drop_units
from etl.maintenance.restore_logs import restore_logs
from etl.recipe.recipe import Recipe, Step
from etl.sources import Split

_MAX_ATTEMPTS = 20  # each failure means that another run's commit succeeded
_PAUSE_SECONDS = 1.0

CompareFiles = Callable[[Sequence[Split]], Collection[Comparison]]
"""A function that compares files in doubt, and returns the comparisons that have found other rows."""


class Start:
    """The plan of a run, with the ledgers that it was made from and the commits that will follow."""

    def __init__(self, recipe: Recipe, drops: Drops) -> None:
        """Plan the run; raises the errors of ``plan_work``."""
        self._recipe = recipe
        self._canonical = recipe.canonical()
        self._drops = drops
        self._different: set[Comparison] = set()
        self.ledgers: dict[Step, Ledger] = {}
        try:
            self._plan()
        except DamagedLogError:
            if not drops.rebuild:
                raise
            self._restore_logs()
            self._plan()
        self.commits = RunCommits(recipe, self.ledgers)
        self.commits.quarantine_unlisted(self.plan.problems)

    def count_skipped_items(self) -> None:
        """Count the items that stages leave out of the files that they read."""
        stages = self._recipe.stages
        counts = {k: n for stage in stages for k, n in stage.skipped_items().items()}
        self.commits.report.skipped_items = counts

    def _restore_logs(self) -> None:
        """Restore the damaged logs of the lake, so that its tables can be rebuilt."""
        lake = storage.normalize(str(self._recipe.lake))
        with leases.hold_lease(lake, "repair") as lease:
            refuse_during_vacuum(lake, lease, "files of the versions that the logs still have")
            restore_logs(lake, check_logs(lake), lease.check)

    def _plan(self) -> None:
        self.ledgers.update(open_ledgers(self._recipe))
        self.plan = plan_work(self._recipe, self.ledgers, self._drops, different=self._different)
        write_moves(str(self._recipe.lake), self.plan.moves)

    def compare(self, compare: CompareFiles) -> None:
        """Compare the files in doubt and plan again, until none is left that can be read.

        Raises the errors of ``plan_work``.
        """
        while doubts := self.plan.doubts:
            self._different.update(compare(doubts))
            self._plan()
            if self.plan.doubts == doubts:
                return

    def plan_postponed(self, compare: CompareFiles) -> Plan:
        """Return a plan of the files that may be copies of others, which have been read or cannot be.

        ``compare`` compares those that may be with the rows read. Files that were compared and differ, or had
        nothing to be compared with, are read together: each commit compares them again.
        """
        plan_rest = partial(plan_work, self._recipe, self.ledgers, postpones=False)
        plan = plan_rest(different=self._different)
        if plan.doubts:
            self._different.update(compare(plan.doubts))
            plan = plan_rest(different=self._different)
        postponed = {*self.plan.postponed}
        splits = SpilledList(split for split in plan.splits if split.real_uri in postponed)
        uncounted = SpilledList(split for split in plan.uncounted if split.real_uri in postponed)
        return replace(plan, splits=splits, uncounted=uncounted)

    def check_recipe(self) -> None:
        """Raise RecipeError if a file that the recipe names has changed since the run started."""
        if not self._canonical == self.commits.canonical == self._recipe.canonical():
            raise RecipeError(
                "a file that the recipe names has changed since the run started",
                where=self._recipe.name,
                hint="run again",
            )

    def drop_rows(self) -> None:
        """Drop the rows that the plan drops, and plan the rest of the work; without such rows do nothing.

        Raises the errors of ``plan_work``, and ConflictError if other runs keep committing.
        """
        for attempt in range(_MAX_ATTEMPTS):
            if not self.plan.starts_epoch:
                return
            if self.plan.epoch is None and not attempt:  # another process may be starting an epoch
                time.sleep(_PAUSE_SECONDS)
                self._plan()
                continue
            lake = open_lake(str(self._recipe.lake), self.ledgers.values())
            try:
                start_epoch(lake, find_drops(self.plan, lake), self.commits.describe_drop)
            except ConflictError:  # what to drop may have changed
                time.sleep(_PAUSE_SECONDS * random.random())  # noqa: S311 - so that one of two comes first
            else:
                self._drops = replace(self._drops, rebuild=False)
            self._plan()
        raise ConflictError(
            f"{_MAX_ATTEMPTS} attempts to drop rows conflicted with commits of other runs",
            where=str(self._recipe.lake),
            hint="run again when the other runs have ended",
        )


def find_drops(plan: Plan, lake: Mapping[str, Ledger]) -> dict[str, Drop]:
    """Return what each table of a lake drops before a run; tables that do not occur drop nothing.

    ``lake`` has the ledgers that the plan was made from, and those of the other tables.
    """
    drops: dict[str, Drop] = {}
    for step in plan.rebuilt:
        spec = SPECS[step]
        # All documents that are there count as one arrival, so that they are decided together.
        first = lake["documents"].open_arrival if step == "duplicates" else None
        schema = spec.schema(plan.recipe)
        drops[step] = Drop(rebuild=(schema, spec.layout), first_arrival=first)
    if plan.changed and "documents" not in drops:
        documents = drop_sources(lake["documents"], plan.changed)
        drops["documents"] = documents
        if "tokens" in lake and "tokens" not in plan.begin:
            tokens = lake["tokens"]
            drops["tokens"] = drop_units(tokens, [tokens.key(key) for key in documents.keys])
    for name, ledger in lake.items():
        if SPECS[name].is_index and drops:
            drops[name] = drop_all(ledger)
    return drops
