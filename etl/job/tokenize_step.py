"""Second pass of a run: tokenize the kept rows that are not duplicates into ``tokens``."""

from collections.abc import Container, Iterable

from etl.compact_collections import PackedKeySet, SpilledList
from etl.job.commit_policy import batch_for_commits
from etl.job.finished_units import Work, run_units
from etl.job.replacements import FileReplacements
from etl.job.run_context import RunContext
from etl.job.tasks import TokenizeUnit
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.ledger import LedgerEntry
from etl.lake.rewrite_files import split_files
from etl.lake.work_units import WorkUnit, kept_units, stale_data_files


def tokenize_units(run: RunContext) -> None:
    """Tokenize the units that are deduplicated but not tokenized yet, and drop stale tokens."""
    ledger, documents = run.ledgers["tokens"], run.ledgers["documents"]
    run.refresh("documents", "tokens")
    assert documents.table is not None
    units = SpilledList(kept_units(documents.table))
    live = PackedKeySet(ledger.key(unit.key) for unit in units)
    _split_mixed_files(run, live, units)
    stale = stale_data_files(ledger, live)
    duplicates = DedupDecisions(run.ledgers.get("duplicates"))
    keyed = ((unit, ledger.key(unit.key)) for unit in units)
    remaining = SpilledList(
        (unit, key) for unit, key in keyed if not ledger.is_done(key) and duplicates.include(unit)
    )
    replaced = FileReplacements(stale, (unit.source for unit, _ in remaining))
    work = Work(
        step="tokens",
        task=TokenizeUnit(run.recipe),
        arguments=((unit, key, duplicates.files(unit.source)) for unit, key in remaining),
        count=len(remaining),
        label="tokenize",
    )
    for finished in batch_for_commits(run_units(run, work)):
        results = replaced.add(finished)
        entries = [LedgerEntry(r.key, r.token_files, replaced.paths(r.source)) for r in results]
        run.commits.commit("tokens", entries, results)
    for source in sorted(stale.keys() - {unit.source for unit in units if stale}):
        removal = LedgerEntry(ledger.key("removed", *stale[source]), remove=stale[source])
        run.commits.commit("tokens", [removal], [])


def _split_mixed_files(run: RunContext, live: Container[str], units: Iterable[WorkUnit]) -> None:
    """Rewrite files of ``tokens`` that hold rows to replace together with other rows."""
    ledger, describe = run.ledgers["tokens"], run.commits.lineage("tokens", action="optimize")
    while mixed := split_files(ledger, live, units):
        ledger.rewrite(mixed, lambda _: describe([], ledger.generation))
