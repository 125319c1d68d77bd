"""Plan a change of the recipe: what it does to the documents of the lake, and what it costs beside a rebuild.

Core-seconds of a change = seconds per document x documents + seconds of reading input again + the share of
documents that are judged from their text x the core-seconds of making the tables again. The last figure
comes from the formula of ``etl.job.cost_estimate``, and so does the uncertainty: a factor of 2. With
deduplication, the cost of finding the affected documents is added; or of comparing all kept documents again,
and of the start of the workers, or of the thread of the command that compares a few documents
(``etl.job.small_work``). New input, which the same run reads, is not part of the cost, nor are other workers
than those that a run starts by default.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from etl.change.lake_change import LakeChange, find_lake_change
from etl.compute.worker_count import local_workers
from etl.html.card import Card, Shown
from etl.job.cost_estimate import (
    MEGABYTES_PER_SECOND,
    STARTUP_SECONDS,
    estimate_cost,
    find_basis,
)
from etl.job.plan import Drops, check_stages, plan_work
from etl.job.small_work import compares_in_driver
from etl.lake.recipe_ledgers import open_ledgers
from etl.lake.stage_costs import READ, TOKENIZE
from etl.lake.table_names import token_tables
from etl.lake.work_units import kept_units
from etl.plural import many
from etl.recipe.overrides import SettingsLike
from etl.recipe.recipe import Recipe, RecipeLike
from etl.stages.dedup_base import DedupStage, find_cutting_stage

_SECONDS_PER_ROW: Final = 1.0e-5
"""Of a document in all tables, whether it changes or not: ``benchmarks/RESULTS.md``, Changes of a recipe."""

_SECONDS_PER_COMPARED: Final = 3.0e-5
"""Of a document that is compared by its stored hash and signature: as above."""

_SECONDS_PER_SEARCHED: Final = 8.0e-6
"""Of a document among which the affected ones are found: as above."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ChangePlan(Shown):
    """What a change of the recipe does to a lake, or why it cannot be applied, and what it costs.

    Costs do not include the start of the program. With ``refusals``, the cost of the change means nothing.
    """

    lake: str
    refusals: tuple[str, ...]
    leave: int  # documents that are kept, and will be rejected
    come: int  # the reverse
    others: int  # documents that will have another reason, or other values
    stored_texts: int  # to judge again: documents that are not counted above, but may change
    records: int  # of the input to read and judge again
    input_bytes: int  # that are read for these
    decides_few: bool  # whether only documents connected with these are compared again
    compared: int  # documents to compare again otherwise, all that are kept
    arrivals: int  # that these came in, each of which is decided in turn
    retokenizes: bool  # whether all of these are tokenized again
    core_seconds: float
    rebuild_core_seconds: float
    unfilled: tuple[
        str, ...
    ] = ()  # tables that the recipe does not fill, so that it cannot rebuild others
    tokens: tuple[str, ...] = ()  # the tables of tokens, which all follow

    def _cards(self) -> list[Card]:
        """Return the plan as a card."""
        facts: dict[str, object] = {}
        for line in self.lines():
            label, _, fact = line.partition(" ")
            facts[label] = f"{facts[label]}; {fact.strip()}" if label in facts else fact.strip()
        return [Card(title=f"Change of {self.lake}", facts=facts)]

    def lines(self) -> Iterator[str]:
        """Yield the plan as lines with labels."""
        yield from (f"refused     {reason}" for reason in self.refusals)
        if not self.refusals:
            counts = f"{self.leave:,} leave, {self.come:,} come, {self.others:,} change otherwise"
            yield f"documents   {counts}"
            if self.stored_texts:
                yield f"texts       {many(self.stored_texts, 'stored text')} to judge again"
            read = (
                f"{many(self.records, 'record')} to read again, in {self.input_bytes / 1e6:,.1f} MB"
            )
            yield f"input       {read if self.records else 'none is read'}"
            yield from self._of_decisions()
            yield f"cost        about {self.core_seconds:,.2f} core-seconds"
        yield f"--rebuild   {self._rebuild()}"

    def _of_decisions(self) -> Iterator[str]:
        """Yield what follows of the documents that come and leave."""
        each = f", in each of {' and '.join(self.tokens)}" if len(self.tokens) > 1 else ""
        if not (self.arrivals or self.decides_few):
            yield f"tokens      of {many(self.leave, 'document')} struck, of {self.come:,} added{each}"
            return
        if self.decides_few:
            yield "dedup       documents with equal or similar texts are decided again, the others stay"
        else:
            documents, arrivals = many(self.compared, "document"), many(self.arrivals, "arrival")
            yield f"dedup       {documents} in {arrivals} compared again by stored hashes and signatures"
        if self.retokenizes:
            yield f"tokens      all are made again, from stored texts, since passages are cut{each}"
            return
        yield (
            f"tokens      of up to {many(self.leave, 'document')} struck, of up to {self.come:,} added, "
            f"and of documents whose decision changes{each}"
        )

    def _rebuild(self) -> str:
        if self.unfilled:
            return f"not possible: the recipe does not fill {', '.join(self.unfilled)}"
        return f"about {self.rebuild_core_seconds:,.1f} core-seconds"

    def advice(self) -> str:
        """Return what the change does and costs, and what a user can do, as a hint of an error."""
        way = f"use another --lake, or pass --rebuild ({self._rebuild()}; older versions stay readable)"
        if self.unfilled:
            way = f"use another --lake (--rebuild is {self._rebuild()})"
        if self.refusals:
            return way
        shown = "; ".join(" ".join(line.split()) for line in [*self.lines()][:-1])
        return f"pass --apply-change ({shown}), or {way}"


def plan_change(
    recipe: RecipeLike, *, settings: SettingsLike = (), env: Collection[str] = ()
) -> ChangePlan | None:
    """Return what ``run`` with ``apply_change`` would change in the lake of another recipe, and the cost.

    ``recipe``, ``settings`` and ``env`` are as in ``etl.plan``. Returns None if the recipe made the lake, or
    the lake has no documents. Reads the columns of ``documents`` that verdicts depend on, and lists the
    source. Raises TableError if a file is damaged, SourceError if the source cannot be listed.
    """
    change = find_lake_change(Recipe.of(recipe, settings=settings, env=env))
    return None if change is None else price_change(change)


def price_change(change: LakeChange) -> ChangePlan:
    """Return the plan of a change; lists the source, and raises SourceError if that is not possible."""
    check_stages(change.recipe)
    plan = plan_work(change.recipe, open_ledgers(change.recipe), Drops(rebuild=True))
    units = change.units.values()
    rebuild = estimate_cost(plan)
    records = change.come + change.by_input
    expansion = rebuild.text_bytes / max(plan.num_bytes, 1)
    tables = [each.table for each in change.ledgers.values() if each.table is not None]
    reading = change.num_bytes * expansion * find_basis(tables).seconds(READ)
    share = (change.by_text + records) / max(change.num_rows, 1)
    arrivals, stages = change.num_arrivals, change.recipe.dedup_stages
    retokenizes = arrivals > 0 and find_cutting_stage(stages) is not None
    compared = change.num_kept + change.come - change.leave
    kept_bytes = round(rebuild.text_bytes * compared / max(change.num_rows, 1))
    texts = change.ledgers["texts"].table
    stored_bytes = sum(unit.size for unit in kept_units(texts)) if texts and arrivals else 0
    deciding = compared * _SECONDS_PER_SEARCHED if change.decides_few else 0.0
    if arrivals:
        deciding = deciding_seconds(
            stages, compared, text_bytes=kept_bytes, stored_bytes=stored_bytes
        )
    return ChangePlan(
        lake=str(change.recipe.lake),
        refusals=tuple(change.refusals),
        leave=change.leave,
        come=change.come,
        others=sum(each.others for each in units),
        stored_texts=change.by_text,
        records=records,
        input_bytes=change.num_bytes,
        decides_few=change.decides_few,
        compared=compared if arrivals else 0,
        arrivals=arrivals,
        retokenizes=retokenizes,
        core_seconds=round(
            change.num_rows * _SECONDS_PER_ROW
            + reading
            + share * rebuild.usage.core_seconds
            + deciding,
            2,
        ),
        rebuild_core_seconds=rebuild.usage.core_seconds,
        unfilled=plan.unfilled,
        tokens=tuple(token_tables(change.ledgers)),
    )


def deciding_seconds(
    stages: Sequence[DedupStage], documents: int, *, text_bytes: int, stored_bytes: int
) -> float:
    """Return the core-seconds of comparing documents again; ``stored_bytes`` are of their stored texts."""
    workers = 1 if compares_in_driver(stages, stored_bytes) else local_workers(stored_bytes)
    cutting = find_cutting_stage(stages)
    # A stage that cuts reads all texts, and what is cut is tokenized again.
    parts = [] if cutting is None else [cutting.kind, TOKENIZE]
    reading = sum(text_bytes / MEGABYTES_PER_SECOND[part] / 1e6 for part in parts)
    return STARTUP_SECONDS * workers + documents * _SECONDS_PER_COMPARED + reading
