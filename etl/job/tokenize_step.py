"""Second pass of a run: tokenize the kept rows that are not duplicates into ``tokens``."""

from etl.compact_collections import SpilledList, sort_spilled
from etl.job.commit_policy import batch_for_commits
from etl.job.finished_units import Work, run_units
from etl.job.run_context import RunContext
from etl.job.tasks import TokenizeUnit
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.work_units import kept_units


def tokenize_units(run: RunContext) -> None:
    """Tokenize the units that are deduplicated but not tokenized yet."""
    ledger, texts = run.ledgers["tokens"], run.ledgers["texts"]
    run.refresh("documents", "texts", "tokens")
    assert texts.table is not None
    duplicates = DedupDecisions(run.ledgers.get("duplicates"))
    keyed = ((unit, ledger.key(unit.key)) for unit in kept_units(texts.table))
    todo = (each for each in keyed if not ledger.is_done(each[1]) and duplicates.include(each[0]))
    # The largest first, so that all workers end at about the same time.
    remaining = SpilledList(sort_spilled(todo, key=lambda each: -each[0].size))
    work = Work(
        step="tokens",
        task=TokenizeUnit(run.recipe),
        arguments=([(unit, key, duplicates.files(unit))] for unit, key in remaining),
        count=len(remaining),
        num_bytes=sum(unit.size for unit, _ in remaining),
        label="tokenize",
    )
    for finished in batch_for_commits(run_units(run, work)):
        results = [unit.result for unit in finished if unit.result is not None]
        entries = [LedgerEntry(result.key, result.files["tokens"]) for result in results]
        read_bytes = sum(unit.unit.size for unit in finished)
        run.commits.commit("tokens", entries, results, read_bytes=read_bytes)
