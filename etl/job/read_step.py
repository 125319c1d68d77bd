"""First pass of a run: read splits, apply the stages, and write ``documents`` and ``texts``."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from etl.compact_collections import SpilledList, index_of, sort_spilled
from etl.compute.dask_tasks import map_unordered
from etl.compute.unit_log import follow_units
from etl.job.commit_policy import batch_for_commits
from etl.job.finished_units import Work, run_units, unit_location
from etl.job.packs import pack_units, run_packs
from etl.job.run_context import RunContext
from etl.job.step_progress import StepProgress
from etl.job.tasks import ReadSplit
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.work_units import WorkResult, split_key
from etl.recipe.recipe import Step
from etl.sources import Split
from etl.sources.list_splits import number_splits
from etl.sources.read_split import count_records

_UNKNOWN: Final = np.int64(-1)  # the number of records in a piece that could not be counted


def read_splits(run: RunContext) -> None:
    """Read splits into ``documents`` and ``texts``; without deduplication also tokenize them.

    Only the first tokenizer of the recipe does so: a worker holds one at a time. Small files are read in
    packs. The units of a pack that failed, or that could not be committed together with the others, are read
    again alone.
    """
    documents = run.ledgers["documents"]
    packs = pack_units(
        numbered_splits(run),
        split_bytes=run.recipe.source.split_bytes,
        held=lambda split: _held(run, split_key(documents, split)),
    )
    # The largest first, so that all workers end at about the same time.
    todo = SpilledList(sort_spilled(packs, key=lambda pack: -sum(split.work for split in pack)))
    run.failed.clear_other_parts(
        "documents", (unit_location(split) for pack in todo for split in pack)
    )
    progress = StepProgress.of(run, "documents", todo)
    with follow_units(run.job.client, progress.add_part):
        run_packs(todo, partial(_read_packs, run, progress))


def _fused(run: RunContext) -> Step | None:
    """Return the table of tokens into which splits are read, too; None if there is none."""
    return None if "duplicates" in run.ledgers else next(iter(run.recipe.tokenizers), None)


def _held(run: RunContext, key: str) -> tuple[bool, ...]:
    """Return which of the tables into which splits are read hold a unit, given its key in ``documents``."""
    derived = (run.ledgers[step] for step in ("texts", _fused(run)) if step is not None)
    is_read = run.ledgers["documents"].is_done(key)
    return is_read, *(ledger.is_done(ledger.key(key)) for ledger in derived)


def _read_packs(
    run: RunContext, progress: StepProgress, packs: SpilledList[tuple[Split, ...]]
) -> Generator[Split]:
    """Read packs of splits, commit them, and yield the splits of packs to be read again alone."""
    documents, fused = run.ledgers["documents"], _fused(run)

    def arguments() -> Iterator[list[tuple[Split, str, str]]]:
        for pack in packs:
            keys = ((split, split_key(documents, split)) for split in pack)
            yield [
                (s, key, "" if fused is None else run.ledgers[fused].key(key)) for s, key in keys
            ]

    work = Work(
        step="documents",
        task=ReadSplit(run.recipe, fused),
        arguments=arguments(),
        progress=progress,
        label="read",
    )
    for finished in batch_for_commits(run_units(run, work)):
        splits = {unit.key: unit.unit for unit in finished}
        results = [unit.result for unit in finished if unit.result is not None]
        _commit_documents(run, results, splits)
        _commit_derived(run, results, "texts")
        if fused is not None:
            _commit_derived(run, results, fused)
        yield from (u.unit for u in finished if u.in_pack and not all(_held(run, u.key)))


def _commit_documents(
    run: RunContext, results: Sequence[WorkResult], splits: Mapping[str, Split]
) -> None:
    entries = [
        LedgerEntry(
            result.key,
            result.files.get("documents", ()),
            splits[result.key],
            result.content,
            pack=result.pack,
        )
        for result in results
    ]
    read_bytes = sum(split.bytes for split in splits.values())
    run.commits.commit("documents", entries, results, read_bytes=read_bytes, splits=splits)


def _commit_derived(run: RunContext, results: Sequence[WorkResult], step: Step) -> None:
    """Commit the texts or tokens of units whose documents are committed: not of copies of other files."""
    documents, ledger = run.ledgers["documents"], run.ledgers[step]
    duplicates = run.ledgers.get("duplicates")
    entries, new = [], []
    for result in results:
        if not documents.is_done(result.key):
            continue
        key, files = ledger.key(result.key), result.files.get(step, ())
        pack = tuple(map(ledger.key, result.pack))
        # A unit that was decided and is read again keeps its arrival. If a unit was dropped before, others
        # may have been decided without it.
        arrival = duplicates.arrival_of(duplicates.key(result.key)) if duplicates else None
        entries.append(LedgerEntry(key, files, arrival=arrival, pack=pack))
        new.append(replace(result, key=key, costs={}))
    run.commits.commit(step, entries, new, read_bytes=0)


def numbered_splits(run: RunContext) -> Iterator[Split]:
    """Yield the splits to read, with the row numbers of their first records.

    Leaves out files whose records could not all be counted.
    """
    first_rows, failed = _count_records(run)
    for split in run.plan.splits:
        if split.uri in failed:
            continue
        is_known = split.first_row is not None
        yield split if is_known else replace(split, first_row=first_rows[split])


def _count_records(run: RunContext) -> tuple["_FirstRows", set[str]]:
    """Count the records of the files cut by bytes; return their first rows and the failed files."""
    uncounted = run.plan.uncounted
    counts = np.full(len(uncounted), _UNKNOWN)
    failed: set[str] = set()
    units = ((split, index) for index, split in enumerate(uncounted))
    for (split, index), answer in map_unordered(
        run.job.client, _count, units, label="count_records", time_limit=run.job.time_limit
    ):
        if isinstance(answer, BaseException):  # later splits of the file have no row numbers
            failed.add(split.uri)
            run.failed.add("documents", unit_location(split), answer)
        else:
            counts[index] = answer
    return _FirstRows(run.ledgers["documents"], uncounted, counts), failed


def _count(split: Split, _index: int) -> int:
    """Return the number of records in a part of a file; the driver needs its index."""
    return count_records(split)


class _FirstRows:
    """A lookup from a split to the row number of its first record, in 24 bytes per split."""

    def __init__(
        self, documents: Ledger, splits: SpilledList[Split], counts: npt.NDArray[np.int64]
    ) -> None:
        self._documents = documents
        known = (None if count == _UNKNOWN else int(count) for count in counts)
        numbered = number_splits(splits, known)
        rows = (_UNKNOWN if s.first_row is None else s.first_row for s in numbered)
        self._keys = np.fromiter(map(self._key, splits), "S16", len(splits))
        order = np.argsort(self._keys)
        self._rows = np.fromiter(rows, np.int64, len(splits))[order]
        self._keys.sort()

    def __getitem__(self, split: Split) -> int:
        index = index_of(self._keys, self._key(split))
        assert index is not None, "the split was not counted"
        return int(self._rows[index])

    def _key(self, split: Split) -> bytes:
        return bytes.fromhex(split_key(self._documents, split))
