"""Run a recipe on Dask: read, deduplicate and tokenize, with regular commits.

Workers write files; only the driver commits. After a kill at any moment, ``run`` does the remaining work.
"""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import Client

from etl.compact_collections import PackedKeySet, SpilledList, index_of
from etl.compute.cluster import Cluster, raise_if_scheduler_lost
from etl.compute.submit import map_unordered
from etl.compute.time_limit import TIME_LIMIT
from etl.dedup import key_writer
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import ComparisonSet
from etl.dedup.passes import count_cut, find_duplicates
from etl.errors import ConflictError, WriteError
from etl.job.commit_policy import CommitPolicy
from etl.job.plan import Plan, make_plan
from etl.job.progress import Progress, RunReport
from etl.job.replacements import FileReplacements
from etl.job.run_commits import RunCommits, UnitLocation, load_reference_tokenizer
from etl.job.tasks import ReadSplit, TokenizeUnit
from etl.lake import leases
from etl.lake.dedup_decisions import DedupDecisions
from etl.lake.keys_table import KeysTable
from etl.lake.ledger import Ledger, LedgerEntry
from etl.lake.rewrite_files import split_files
from etl.lake.tables import SPECS
from etl.lake.work_units import (
    WorkResult,
    WorkUnit,
    data_files_of,
    kept_units,
    split_key,
    stale_data_files,
)
from etl.recipe.recipe import Recipe, Step
from etl.sources import Split, count_records, number_splits


def run(
    recipe: Recipe,
    *,
    cluster: Cluster | Client | None = None,
    rebuild: bool = False,
    replace_changed: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_client: Callable[[Client], None] | None = None,
) -> RunReport:
    """Do the remaining work of a recipe and return a report.

    ``cluster`` is the cluster to use (default: all cores of this machine) or an existing client. No cluster
    is started if nothing remains to be done. Input that cannot be read is quarantined: the run continues,
    and the report is not ``ok``. Raises the errors of ``make_plan``, ClusterError if the scheduler is lost,
    and WriteError if the lake cannot be written, for example because the disk is full.
    """
    started = time.monotonic()
    plan = make_plan(recipe, rebuild=rebuild, replace_changed=replace_changed)
    where = cluster if cluster is not None else Cluster()
    limit = TIME_LIMIT if isinstance(where, Client) else where.time_limit
    job = _Run(plan, on_progress, limit)
    if plan.has_work():
        if plan.recipe.tokenize_stage is not None:
            load_reference_tokenizer(
                plan.recipe.tokenize_stage
            )  # fail early, and once, if it is not a tokenizer
        with nullcontext(where) if isinstance(where, Client) else where.connect() as client:
            if on_client is not None:
                on_client(client)
            held = leases.hold_lease(
                str(plan.recipe.lake), "run"
            )  # protects its files from a vacuum
            with held, raise_if_scheduler_lost(client):
                job.execute(client)
    report = job.commits.report
    report.costs = job.commits.costs()
    report.seconds = time.monotonic() - started
    report.versions = {s: led.table.version for s, led in plan.ledgers.items() if led.table}
    return report


@dataclass(frozen=True)
class _Work:
    """The work of one step: a task and its units, which are generated as they are needed."""

    task: Callable[..., str]
    units: Iterable[tuple[Any, ...]]
    count: int
    label: str  # on the dashboard


class _FirstRows:
    """A lookup from a split to the ordinal of its first record, in 24 bytes per split."""

    def __init__(
        self, documents: Ledger, splits: SpilledList[Split], counts: npt.NDArray[np.int64]
    ) -> None:
        self._documents = documents
        numbered = number_splits(splits, map(int, counts))
        rows = (split.known_first_row for split in numbered)
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


class _Run:
    """The execution of one plan."""

    def __init__(
        self,
        plan: Plan,
        on_progress: Callable[[Progress], None] | None,
        time_limit: float | None,
    ) -> None:
        self.plan = plan
        self.recipe = plan.recipe
        self.ledgers = plan.ledgers
        self.commits = RunCommits(plan)
        self._on_progress = on_progress
        self._time_limit = time_limit

    def execute(self, client: Client) -> None:
        """Run all steps, in the order in which a document passes them."""
        for step in reversed(self.plan.begin):  # downstream first, so no row outlives its origin
            self._begin(step)
        self._read(client)
        if (duplicates := self.ledgers.get("duplicates")) is not None:
            self._deduplicate(client)
            documents = self.ledgers["documents"]
            lineage = partial(self.commits.lineage, "keys")
            key_writer.update_keys(
                client, documents, duplicates, lake=self._lake(), lineage=lineage
            )
        if "tokens" in self.ledgers:
            self._tokenize(client)

    def _begin(self, step: Step) -> None:
        spec, lineage = SPECS[step], self.commits.lineage(step, action="rebuild")
        self.ledgers[step].create_or_rebuild(
            spec.schema(self.recipe), spec.layout, lambda generation: lineage([], generation)
        )

    def _read(self, client: Client) -> None:
        """First pass: read splits into ``documents``."""
        documents = self.ledgers["documents"]
        # Without deduplication this pass writes tokens too.
        fused = None if "duplicates" in self.ledgers else self.ledgers.get("tokens")
        splits = SpilledList(self._numbered_splits(client))

        def units() -> Iterator[tuple[Split, str, str]]:
            for split in splits:
                key = split_key(documents, split)
                yield split, key, "" if fused is None else fused.key(key)

        replaced = FileReplacements(
            data_files_of(documents, self.plan.changed), (s.uri for s in splits)
        )
        task = ReadSplit(self.recipe, with_tokens=fused is not None)
        label = "-".join(stage.kind for stage in self.recipe.documents_stages) or "read"
        work = _Work(task, units(), len(splits), label)
        uncommitted: dict[str, Split] = {}  # key -> split, for finished results
        for finished in self._batches(client, "documents", work):
            uncommitted |= {result.key: split for (split, *_), result in finished}
            results = replaced.ready(result for _, result in finished)
            self._commit_documents(results, replaced, uncommitted)
            if fused is not None:
                self._commit_fused_tokens(results, replaced, fused)
            for result in results:
                del uncommitted[result.key]

    def _commit_documents(
        self, results: Sequence[WorkResult], replaced: FileReplacements, splits: Mapping[str, Split]
    ) -> None:
        entries = [
            LedgerEntry(
                result.key,
                result.documents,
                replaced.paths(result.source),
                {result.source: splits[result.key].fingerprint},
            )
            for result in results
        ]
        self.commits.commit("documents", entries, results, splits=splits)

    def _commit_fused_tokens(
        self, results: Sequence[WorkResult], replaced: FileReplacements, tokens: Ledger
    ) -> None:
        """Commit the tokens of new files; the second pass tokenizes files that replace old rows."""
        new = [
            replace(result, key=tokens.key(result.key), costs={})
            for result in results
            if not replaced.paths(result.source)
        ]
        entries = [LedgerEntry(result.key, result.token_files) for result in new]
        self.commits.commit("tokens", entries, new)

    def _numbered_splits(self, client: Client) -> Iterator[Split]:
        """Yield the splits to read, with the ordinals of their first records.

        Leaves out files whose records could not all be counted.
        """
        first_rows, failed = self._count_records(client)
        for split in self.plan.splits:
            if split.uri in failed:
                continue
            is_known = split.first_row is not None
            yield split if is_known else replace(split, first_row=first_rows[split])

    def _count_records(self, client: Client) -> tuple[_FirstRows, set[str]]:
        """Count the records of the files cut by bytes; return their first rows and the failed files."""
        uncounted = self.plan.uncounted
        counts = np.zeros(len(uncounted), np.int64)
        failed: set[str] = set()
        units = ((split, index) for index, split in enumerate(uncounted))
        for (split, index), answer in map_unordered(
            client, _count, units, label="count-records", time_limit=self._time_limit
        ):
            if isinstance(answer, BaseException):  # later splits of the file have no row numbers
                failed.add(split.uri)
                self.commits.put_aside("documents", _source_and_part(split), answer)
            else:
                counts[index] = int(answer)
        return _FirstRows(self.ledgers["documents"], uncounted, counts), failed

    def _deduplicate(self, client: Client) -> None:
        """Deduplicate all kept rows that have not been deduplicated yet: the barrier, in one commit."""
        ledger, documents = self.ledgers["duplicates"], self.ledgers["documents"]
        while True:
            decisions = DedupDecisions(ledger)
            documents.refresh()
            assert documents.table is not None
            units = SpilledList(kept_units(documents.table))
            new = SpilledList(unit for unit in units if not decisions.include(unit))
            if not len(new):
                return
            unit_keys = (ledger.key(unit.key) for unit in new)
            first_key = next(unit_keys)
            keys, lake = KeysTable(ledger), self._lake()
            compared = ComparisonSet(units, decisions, keys, self.plan.others, stages=lake.stages)
            fragments = find_duplicates(
                client, compared.files, lake, name=first_key, keys=compared.keys
            )
            num_cut = count_cut(fragments)
            num_duplicates = sum(fragment.rows for fragment in fragments) - num_cut
            num_rows = sum(unit.rows for unit in new)
            num_kept = num_rows - num_duplicates
            result = WorkResult("", rows=num_rows, kept=num_kept, duplicates=num_duplicates)
            entries = [LedgerEntry(first_key, fragments), *map(LedgerEntry, unit_keys)]
            try:
                ledger.commit(entries, self.commits.lineage("duplicates", [result]), retry=False)
            except ConflictError:  # another run committed first: start over from its decisions
                continue
            self.commits.report.duplicates += num_duplicates
            self.commits.report.cut += num_cut
            self._report(Progress("duplicates", len(new), len(new), num_rows, num_kept))

    def _lake(self) -> DocumentReader:
        documents, duplicates = self.ledgers["documents"].url, self.ledgers["duplicates"].url
        return DocumentReader(documents, duplicates, self.recipe.dedup_stages)

    def _tokenize(self, client: Client) -> None:
        """Second pass: tokenize the kept rows that are not duplicates into ``tokens``."""
        ledger, documents = self.ledgers["tokens"], self.ledgers["documents"]
        ledger.refresh()  # before documents, where every row of tokens was committed first
        documents.refresh()
        assert documents.table is not None
        units = SpilledList(kept_units(documents.table))
        live = PackedKeySet(ledger.key(unit.key) for unit in units)
        self._split_mixed_files(live, units)
        stale = stale_data_files(ledger, live)
        duplicates = DedupDecisions(self.ledgers.get("duplicates"))
        keyed = ((unit, ledger.key(unit.key)) for unit in units)
        remaining = SpilledList(
            (unit, key)
            for unit, key in keyed
            if not ledger.is_done(key) and duplicates.include(unit)
        )
        replaced = FileReplacements(stale, (unit.source for unit, _ in remaining))
        work = _Work(
            TokenizeUnit(self.recipe),
            ((unit, key, duplicates.files(unit.source)) for unit, key in remaining),
            len(remaining),
            "tokenize",
        )
        for finished in self._batches(client, "tokens", work):
            results = replaced.ready(result for _, result in finished)
            entries = [LedgerEntry(r.key, r.token_files, replaced.paths(r.source)) for r in results]
            self.commits.commit("tokens", entries, results)
        for source in sorted(stale.keys() - {unit.source for unit in units if stale}):
            removal = LedgerEntry(ledger.key("removed", *stale[source]), remove=stale[source])
            self.commits.commit("tokens", [removal], [])

    def _split_mixed_files(self, live: Container[str], units: Iterable[WorkUnit]) -> None:
        """Rewrite files of ``tokens`` that hold rows to replace together with other rows."""
        ledger, describe = self.ledgers["tokens"], self.commits.lineage("tokens", action="optimize")
        while mixed := split_files(ledger, live, units):
            ledger.rewrite(mixed, lambda _: describe([], ledger.generation))

    def _batches(
        self, client: Client, step: Step, work: _Work
    ) -> Iterator[list[tuple[tuple[Any, ...], WorkResult]]]:
        """Run units and yield them with their results, one batch per commit; quarantine failed units."""
        finished: list[tuple[tuple[Any, ...], WorkResult]] = []
        cadence, progress = CommitPolicy(), Progress(step, 0, work.count)
        begun = time.monotonic()
        answers = map_unordered(
            client, work.task, work.units, label=work.label, time_limit=self._time_limit
        )
        with closing(answers):
            for unit, answer in answers:
                source, part = _source_and_part(unit[0])
                if isinstance(answer, WriteError):
                    # The input is not at fault: fail rather than deduplicate without it.
                    if finished:
                        yield finished
                    raise answer
                if isinstance(answer, BaseException):
                    result = WorkResult(unit[1], source, failed=True)
                    self.commits.put_aside(step, (source, part), answer)
                else:
                    result = WorkResult.from_json(answer)
                    self.commits.clear(step, (source, part))
                finished.append((unit, result))
                progress = progress.after(result, seconds=time.monotonic() - begun)
                self._report(progress)
                if cadence.is_due(len(finished)):
                    before = time.monotonic()
                    yield finished
                    cadence.committed(seconds=time.monotonic() - before)
                    finished = []
        if finished:
            yield finished

    def _report(self, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(progress)


def _count(split: Split, _index: int) -> str:
    """Return the number of records in a part of a file, as text for ``map_unordered``."""
    return str(count_records(split))


def _source_and_part(unit: Split | WorkUnit) -> UnitLocation:
    """Return the input file of a unit of work, and the part of it."""
    if isinstance(unit, WorkUnit):
        return unit.source, unit.key
    return unit.uri, "" if unit.stop is None else f"{unit.start}-{unit.stop}"
