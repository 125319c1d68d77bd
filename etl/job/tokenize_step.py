"""Second pass of a run: tokenize the kept rows that are not duplicates, into the table of each tokenizer."""

from collections.abc import Generator
from functools import partial

from etl.compact_collections import SpilledList, sort_spilled
from etl.compute.unit_log import follow_units
from etl.job.commit_policy import batch_for_commits
from etl.job.finished_units import Work, run_units
from etl.job.packs import pack_units, run_packs
from etl.job.run_context import RunContext
from etl.job.step_progress import StepProgress
from etl.job.tasks import TokenizeUnit
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.work_units import WorkUnit, kept_units
from etl.recipe.recipe import Step


def tokenize_units(run: RunContext, table: Step) -> None:
    """Tokenize the units that are deduplicated but not in a tokenizer's table yet, small ones in packs."""
    ledger, texts = run.ledgers[table], run.ledgers["texts"]
    run.refresh("documents", "texts", table)
    assert texts.table is not None
    duplicates = DedupDecisions(run.ledgers.get("duplicates"))
    units = (unit for unit in kept_units(texts.table) if not ledger.is_done(ledger.key(unit.key)))
    packs = pack_units(filter(duplicates.include, units), split_bytes=run.recipe.source.split_bytes)
    # The largest first, so that all workers end at about the same time.
    todo = SpilledList(sort_spilled(packs, key=lambda pack: -sum(unit.size for unit in pack)))
    progress = StepProgress.of(run, table, todo)
    with follow_units(run.job.client, progress.add_part):
        run_packs(todo, partial(_tokenize_packs, run, table, duplicates, progress))


def _tokenize_packs(
    run: RunContext,
    table: Step,
    duplicates: DedupDecisions,
    progress: StepProgress,
    packs: SpilledList[tuple[WorkUnit, ...]],
) -> Generator[WorkUnit]:
    """Tokenize packs of units, commit them, and yield the units of packs to be tokenized again alone."""
    ledger = run.ledgers[table]
    work = Work(
        step=table,
        task=TokenizeUnit(run.recipe, table),
        arguments=(
            [(unit, ledger.key(unit.key), duplicates.files(unit)) for unit in pack]
            for pack in packs
        ),
        progress=progress,
        label="tokenize",
    )
    for finished in batch_for_commits(run_units(run, work)):
        results = [unit.result for unit in finished if unit.result is not None]
        entries = [
            LedgerEntry(result.key, result.files.get(table, ()), pack=result.pack)
            for result in results
        ]
        read_bytes = sum(unit.unit.size for unit in finished)
        run.commits.commit(table, entries, results, read_bytes=read_bytes)
        yield from (unit.unit for unit in finished if unit.in_pack and not ledger.is_done(unit.key))
