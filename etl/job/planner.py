"""Plan a run, and drop the rows of rebuilt tables and changed input files first.

Rows are dropped in the commits that start an epoch of the lake (``etl.lake.lake_epochs``). These commits
succeed only on the versions that were planned from. If another run commits at the same moment, all is planned
again.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

from etl import storage
from etl.audit.verify.log_checks import check_logs
from etl.compact_collections import SpilledList
from etl.errors import ConflictError, DamagedLogError
from etl.job.plan import Drops, Plan, check_drops, plan_work
from etl.job.run_identity import RunIdentity
from etl.lake.drop_units import drop_sources, drop_texts, drop_units
from etl.lake.jobs import JobIdentity, hold_job
from etl.lake.known_files import Comparison
from etl.lake.lake_epochs import DescribeDrop, all_ledgers, drop_all, start_lake_epoch
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import Drop
from etl.lake.recipe_ledgers import open_ledgers
from etl.lake.table_names import token_tables
from etl.lake.table_specs import spec_of
from etl.lake.vacuums import refuse_during_vacuum
from etl.maintenance.restore_logs import restore_logs
from etl.recipe.recipe import Step

_MAX_ATTEMPTS = 20  # each failure means that another run's commit succeeded
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class OpenPlan:
    """A plan, and the ledgers that it was made from."""

    plan: Plan
    ledgers: Mapping[Step, Ledger]


CompareFiles = Callable[[OpenPlan], Collection[Comparison]]
"""A function that compares the files in doubt, and returns the comparisons that have found other rows."""


class Planner:
    """Plans a run, and again after each change of the lake: it knows what was compared and dropped."""

    def __init__(self, run: RunIdentity, drops: Drops) -> None:
        self.run = run
        self._drops = drops
        self._different: set[Comparison] = set()

    def first_plan(self) -> OpenPlan:
        """Return the plan of a run that starts; restore damaged logs if their tables are to be rebuilt.

        Raises the errors of ``plan_work``.
        """
        try:
            return self._plan()
        except DamagedLogError:
            if not self._drops.rebuild:
                raise
        lake = storage.normalize(str(self.run.recipe.lake))
        with hold_job(JobIdentity(lake=lake, kind="repair")) as job:
            refuse_during_vacuum(lake, job.lease, "files of the versions that the logs still have")
            restore_logs(lake, check_logs(lake), job)
        return self._plan()

    def _plan(self) -> OpenPlan:
        ledgers = open_ledgers(self.run.recipe)
        plan = plan_work(self.run.recipe, ledgers, self._drops, different=self._different)
        check_drops(plan, self._drops)
        return OpenPlan(plan, ledgers)

    def compare(self, planned: OpenPlan, compare: CompareFiles) -> OpenPlan:
        """Compare the files in doubt and plan again, until none is left that can be read.

        Raises the errors of ``plan_work``.
        """
        while doubts := planned.plan.doubts:
            self._different.update(compare(planned))
            planned = self._plan()
            if planned.plan.doubts == doubts:
                break
        return planned

    def plan_postponed(self, planned: OpenPlan, compare: CompareFiles) -> OpenPlan:
        """Return a plan of the files that may be copies of others, which have been read or cannot be.

        ``compare`` compares those that may be with the rows read. Files that were compared and differ, or had
        nothing to be compared with, are read together: each commit compares them again.
        """
        plan_rest = partial(plan_work, self.run.recipe, planned.ledgers, postpones=False)
        plan = plan_rest(different=self._different)
        if plan.doubts:
            self._different.update(compare(replace(planned, plan=plan)))
            plan = plan_rest(different=self._different)
        postponed = {*planned.plan.postponed}
        splits = SpilledList(split for split in plan.splits if split.real_uri in postponed)
        uncounted = SpilledList(split for split in plan.uncounted if split.real_uri in postponed)
        return replace(planned, plan=replace(plan, splits=splits, uncounted=uncounted))

    def drop_rows(
        self, planned: OpenPlan, describe: Callable[[OpenPlan], DescribeDrop]
    ) -> OpenPlan:
        """Drop the rows that the plan drops, and plan the rest of the work; without such rows do nothing.

        Raises the errors of ``plan_work``, and ConflictError if other runs keep committing.
        """
        for attempt in range(_MAX_ATTEMPTS):
            plan = planned.plan
            if not plan.starts_lake_epoch:
                return planned
            if plan.lake_epoch is None and not attempt:  # another process may be starting an epoch
                time.sleep(_PAUSE_SECONDS)
                planned = self._plan()
                continue
            existing = all_ledgers(str(self.run.recipe.lake), planned.ledgers.values())
            try:
                start_lake_epoch(existing, find_drops(plan, existing), describe(planned))
            except ConflictError:  # what to drop may have changed
                time.sleep(_PAUSE_SECONDS * random.random())  # noqa: S311 - so that one of two comes first
            else:
                self._drops = replace(self._drops, rebuild=False)
            planned = self._plan()
        raise ConflictError(
            f"{_MAX_ATTEMPTS} attempts to drop rows conflicted with commits of other runs",
            where=str(self.run.recipe.lake),
            hint="run again when the other runs have ended",
        )


def find_drops(plan: Plan, ledgers: Mapping[str, Ledger]) -> dict[str, Drop]:
    """Return what each table of a lake drops before a run; tables that do not occur drop nothing.

    ``ledgers`` has the ledgers that the plan was made from, and the ledgers of the other tables.
    """
    drops: dict[str, Drop] = {}
    for step in plan.rebuilt:
        spec = spec_of(step)
        # All texts that are there count as one arrival, so that they are decided together.
        first = ledgers["texts"].open_arrival if step == "duplicates" else None
        schema = spec.schema(plan.recipe)
        drops[step] = Drop(rebuild=(schema, spec.layout), first_arrival=first)
    if plan.changed and "documents" not in drops:
        documents = drop_sources(ledgers["documents"], plan.changed)
        drops["documents"] = documents
        if "texts" not in plan.begin:
            drops["texts"] = drop_texts(ledgers["texts"], documents.keys)
        for name in token_tables(ledgers):
            if name not in plan.begin:
                tokens = ledgers[name]
                drops[name] = drop_units(tokens, [tokens.key(key) for key in documents.keys])
    for name, ledger in ledgers.items():
        if spec_of(name).is_index and drops:
            drops[name] = drop_all(ledger)
    return drops
