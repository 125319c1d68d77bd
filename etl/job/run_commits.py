"""The commits of one run: entries with lineage, the counts of the run, and quarantined work."""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from distributed import KilledWorker

from etl import schemas
from etl.errors import TokenlakeError
from etl.job.plan import Plan
from etl.job.progress import RunReport
from etl.lake.ledger import Describe, LedgerEntry
from etl.lake.lineage_record import count_results, input_files, run_record
from etl.lake.quarantine import Quarantine
from etl.lake.stage_costs import StageCost, stage_costs
from etl.lake.tables import SPECS
from etl.lake.work_units import WorkResult
from etl.recipe.recipe import STEPS, Step
from etl.sources import Split
from etl.stages.tokenize import Encoder, Tokenize

UnitLocation = tuple[str, str]
"""A unit of work as shown to a user: the input file, and the part of it."""


class RunCommits:
    """The commits of one run and the report about them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._recipe = plan.recipe
        self._ledgers = plan.ledgers
        self.report = RunReport(self._recipe.name, str(self._recipe.lake), uuid.uuid4().hex[:12])
        self._quarantine = Quarantine(str(self._recipe.lake))
        self._started = _now()
        self._counts: dict[Step, list[schemas.Counts]] = {step: [] for step in STEPS}

    def commit(
        self,
        step: Step,
        entries: list[LedgerEntry],
        results: Sequence[WorkResult],
        *,
        splits: Mapping[str, Split] | None = None,
    ) -> None:
        """Commit entries, and count the results that another run has not committed before."""
        committed = self._ledgers[step].commit(entries, self.lineage(step, results, splits=splits))
        keys = {entry.key for entry in committed}
        total = count_results(result for result in results if result.key in keys)
        self._counts[step].append(total)
        report = self.report
        if step == "documents":
            report.rows += total.rows
            report.kept += total.kept
            report.text_bytes += total.text_bytes
            report.rejected = dict(Counter(report.rejected) + Counter(total.rejected))
        else:
            report.tokens += total.tokens

    def clear(self, step: Step, location: UnitLocation) -> None:
        """Remove the quarantine note of a unit, which an earlier run may have left."""
        self._quarantine.clear(step, *location)

    def put_aside(self, step: Step, location: UnitLocation, error: BaseException) -> None:
        """Quarantine a unit, with the error that its task raised."""
        text = _explained(error, location[0])
        self.report.quarantined.append(self._quarantine.put(step, *location, text))

    def costs(self) -> list[StageCost]:
        """Return the costs of each part of the work."""
        stages = [stage.model_dump(mode="json") for stage in self._recipe.stages]
        return stage_costs(stages, self._counts["documents"], self._counts["tokens"])

    def lineage(
        self,
        step: Step | Literal["keys"],
        results: Sequence[WorkResult] = (),
        *,
        splits: Mapping[str, Split] | None = None,
        action: str = "append",
        fingerprint: str | None = None,
    ) -> Describe:
        """Return a function that describes a commit, called once its entries are known."""
        others = self._plan.others if step == "duplicates" else ()
        if step != "keys":
            fingerprint = self._recipe.fingerprint(step)
        encoder = self._recipe.tokenize_stage if step == "tokens" else None

        def describe(entries: Sequence[LedgerEntry], generation: int) -> dict[str, Any]:
            keys = {entry.key for entry in entries}
            committed = [r for r in results if r.key in keys or not r.key]
            removes = any(entry.remove for entry in entries)
            tables = [self._ledgers[n].table for n in SPECS[step].made_from if n in self._ledgers]
            return run_record(
                self._recipe,
                step,
                run_id=self.report.run_id,
                fingerprint=fingerprint,
                action="replace" if removes else action,
                generation=generation,
                input_files=input_files(committed, splits) if splits is not None else [],
                input_tables=[
                    schemas.InputTable(name=t.url.rsplit("/", 1)[-1], url=t.url, version=t.version)
                    for t in tables
                    if t is not None
                ]
                + [table for other in others for table in other.tables()],
                num_data_files=sum(len(entry.data_files) for entry in entries),
                counts=count_results(committed),
                tokenizer=load_reference_tokenizer(encoder).record()
                if encoder is not None
                else None,
                started=self._started,
                committed=_now(),
            )

        return describe


def load_reference_tokenizer(stage: Tokenize) -> Encoder:
    """Return the tokenizer for the driver, which does not encode: without the fast path, in 0.4 s."""
    return Encoder.of(stage.model_copy(update={"fast": False}))


def _explained(error: BaseException, source: str) -> str:
    """Return an error in one line, to be shown next to the name of the input file."""
    if isinstance(error, KilledWorker):
        return (
            f"{error.allowed_failures + 1} workers died on it: they ran out of memory, their code ended "
            "the process, or native code hung beyond the time limit (see the worker logs); try a "
            "larger --memory-limit or fewer --workers"
        )
    if not isinstance(error, TokenlakeError):
        return repr(error)
    elsewhere = f"{error.where}: " if error.where not in (None, source) else ""
    return f"{elsewhere}{error.what}" + (f" ({error.hint})" if error.hint else "")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
