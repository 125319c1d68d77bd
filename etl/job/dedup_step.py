"""Deduplicate all kept rows that have not been deduplicated yet: the barrier, in one commit per arrival.

After each arrival, the keys of its documents are written, so that the next one need not read them.

The barrier first closes the open arrival: documents that are committed later arrive later. Documents of one
arrival are decided together. Rows that a repair has dropped and a run has read again keep their arrival, so
that they are decided as before.
"""

from etl import schemas, storage
from etl.compact_collections import SpilledList
from etl.compute.listener import Progress
from etl.dedup import key_writer
from etl.dedup.document_reader import DocumentReader
from etl.dedup.losses import find_collapsed
from etl.dedup.numbered_files import ComparisonSet
from etl.dedup.run_passes import count_cut, find_duplicates
from etl.errors import ConflictError
from etl.job.collapse import collapse_error
from etl.job.run_context import RunContext
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.keys_table import KeysTable
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.row_ranges import RangeIndex
from etl.lake.work_units import arrived_units
from etl.parquet.data_file import DataFile
from etl.recipe.recipe import Recipe
from etl.stages.document_columns import identifies_languages


def deduplicate(run: RunContext) -> None:
    """Deduplicate all kept rows that have not been deduplicated yet, then write their keys."""
    while _decide_arrival(run):
        _write_keys(run)
    _write_keys(run)


def _write_keys(run: RunContext) -> None:
    key_writer.update_keys(
        run.job.client,
        run.ledgers["texts"],
        run.ledgers["duplicates"],
        reader=_reader(run),
        describe=run.commits.describe_keys,
    )


def _decide_arrival(run: RunContext) -> bool:
    """Decide the undecided documents of the first arrival that has any; return whether there were any."""
    ledger, texts = run.ledgers["duplicates"], run.ledgers["texts"]
    documents = run.ledgers["documents"]
    while True:
        decisions = DedupDecisions(ledger)
        run.refresh("documents", "texts")
        judged = None
        if _reads_documents(run.recipe):
            assert documents.table is not None
            judged = RangeIndex.of(documents.table, verdict="kept")
        units = SpilledList(arrived_units(texts, ledger, judged))
        undecided = SpilledList(unit for unit in units if not decisions.include(unit))
        if not len(undecided):
            return False
        arrival = min(unit.arrival for unit in undecided)
        if any(unit.arrival == texts.open_arrival for unit in undecided):
            try:
                texts.close_arrival(run.commits.describe("texts", action="arrival"))
            except ConflictError:  # another run has closed it, or added texts
                continue
        units = SpilledList(unit for unit in units if unit.arrival <= arrival)
        new = SpilledList(unit for unit in undecided if unit.arrival == arrival)
        size = sum(unit.size for unit in new)
        run.report(Progress("duplicates", 0, len(new), total_bytes=size))
        unit_keys = (ledger.key(unit.key) for unit in new)
        first_key = next(unit_keys)
        keys, reader = KeysTable(ledger), _reader(run)
        compared = ComparisonSet(
            units, decisions, keys, run.plan.others, arrival=arrival, stages=reader.stages
        )
        data_files = find_duplicates(
            run.job.client, compared.files, reader, name=first_key, keys=compared.keys
        )
        _check_losses(run, compared, reader, data_files)
        num_cut = count_cut(data_files)
        num_duplicates = sum(file.rows for file in data_files) - num_cut
        num_rows = sum(unit.rows for unit in new)
        num_kept = num_rows - num_duplicates
        counts = schemas.Counts(rows=num_rows, kept=num_kept, duplicates=num_duplicates)
        entries = [
            LedgerEntry(first_key, data_files, arrival=arrival),
            *(LedgerEntry(key, arrival=arrival) for key in unit_keys),
        ]
        try:
            ledger.commit(
                entries,
                run.commits.describe("duplicates", counts, others=run.plan.others),
                retry=False,
            )
        except ConflictError:  # another run committed first: start over from its decisions
            continue
        run.commits.count("duplicates", entries, counts)
        run.commits.tally.add_cut(num_cut)
        progress = Progress(
            "duplicates",
            len(new),
            len(new),
            done_bytes=size,
            total_bytes=size,
            rows=num_rows,
            kept=num_kept,
        )
        run.report(progress)
        return True


def _reads_documents(recipe: Recipe) -> bool:
    """Return whether decisions need a column of ``documents``: the preferred one, or the language."""
    has_column = any(stage.keep_column is not None for stage in recipe.dedup_stages)
    return has_column or identifies_languages(recipe.stages)


def _check_losses(
    run: RunContext, compared: ComparisonSet, reader: DocumentReader, written: list[DataFile]
) -> None:
    """Raise CollapseError if nearly all of a file, a folder or a language would go."""
    guard = run.recipe.guard
    if not written or guard.max_share == 1:
        return
    new = SpilledList(file for file in compared.files if not file.decided)
    if sum(file.rows for file in new) < guard.min_documents:
        return
    name = run.ledgers["duplicates"].key("losses")
    collapsed = find_collapsed(run.job.client, new, reader, written, guard, name=name)
    if collapsed:
        texts = run.ledgers["texts"].table
        assert texts is not None
        raise collapse_error(run.recipe, texts, collapsed)


def _reader(run: RunContext) -> DocumentReader:
    lake = storage.normalize(str(run.recipe.lake))
    texts = {lake: run.ledgers["texts"].table} | {each.url: each.texts for each in run.plan.others}
    struck = (url for url, table in texts.items() if table and table.may_have_struck_rows)
    return DocumentReader(lake, run.recipe.dedup_stages, frozenset(struck))
