"""Execute a plan on a Dask client: read, deduplicate, tokenize; commit as it goes.

Workers write files, this driver alone commits. Killed anywhere, ``run`` again does what is left.
"""

import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from distributed import Client

import schemas
from etl import lease
from etl.cluster import TIME_LIMIT, Cluster, lost_is_told
from etl.compact import KeySet, Spilled
from etl.errors import ConflictError, WriteError
from etl.fragment import DOCUMENTS, DUPLICATES, TOKENS
from etl.job import dedup, keys, paragraphs
from etl.job.cadence import Cadence
from etl.job.commits import Commits, Place, reference
from etl.job.compared import Compared
from etl.job.decisions import Decisions
from etl.job.files import Lake, data_files
from etl.job.merged import take_apart
from etl.job.progress import Progress, RunReport
from etl.job.replaced import Replaced, fragments_of
from etl.job.tasks import ReadSplit, Result, TokenizeUnit
from etl.job.waves import stream
from etl.key_table import KeyTable
from etl.ledger import Entry
from etl.plan import Plan, Unit, kept_units, make_plan, split_key, stale_fragments
from etl.recipe import Recipe, Step
from etl.sources import Split, count_records, number
from etl.stages.apply import schema_of


def run(
    recipe: Recipe,
    *,
    cluster: Cluster | Client | None = None,
    rebuild: bool = False,
    replace_changed: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_client: Callable[[Client], None] | None = None,
) -> RunReport:
    """Do what is left of a recipe, and return what was done.

    ``cluster`` says where (default: all cores of this machine), or is a client that exists already.
    With nothing to do no cluster is started. Raises the errors of ``make_plan``, ClusterError if the
    scheduler is lost, and WriteError if a place takes no more; what cannot be read goes into quarantine,
    the run goes on, and the report is not ``ok``.
    """
    started = time.monotonic()
    plan = make_plan(recipe, rebuild=rebuild, replace_changed=replace_changed)
    where = cluster if cluster is not None else Cluster()
    limit = TIME_LIMIT if isinstance(where, Client) else where.time_limit
    job = _Run(plan, on_progress, limit)
    if plan.has_work():
        if plan.recipe.tokenize_stage is not None:
            reference(plan.recipe.tokenize_stage)  # what is no tokenizer fails here, and once
        with nullcontext(where) if isinstance(where, Client) else where.connect() as client:
            if on_client is not None:
                on_client(client)
            held = lease.hold(str(plan.recipe.lake), "run")  # a vacuum leaves its files alone
            with held, lost_is_told(client):
                job.execute(client)
    report = job.commits.report
    report.costs = job.commits.costs()
    report.seconds = time.monotonic() - started
    report.versions = {s: led.table.version for s, led in plan.ledgers.items() if led.table}
    return report


@dataclass(frozen=True)
class _Work:
    """What workers are to do in one step: a task, and how many units of work, made as they are needed."""

    task: Callable[..., str]
    units: Iterable[tuple[Any, ...]]
    count: int
    label: str  # what the dashboard calls it


class _Run:
    """The steps of one run over its plan."""

    def __init__(
        self,
        plan: Plan,
        on_progress: Callable[[Progress], None] | None,
        time_limit: float | None,
    ) -> None:
        self.plan = plan
        self.recipe = plan.recipe
        self.ledgers = plan.ledgers
        self.commits = Commits(plan)
        self._on_progress = on_progress
        self._time_limit = time_limit

    def execute(self, client: Client) -> None:
        """The steps, in the order in which a document takes them."""
        for step in reversed(self.plan.begin):  # downstream first: no row outlives its origin
            self._begin(step)
        self._read(client)
        if (duplicates := self.ledgers.get("duplicates")) is not None:
            self._deduplicate(client)
            documents = self.ledgers["documents"]
            lineage = partial(self.commits.lineage, "keys")
            keys.update(client, documents, duplicates, lake=self._lake(), lineage=lineage)
        if "tokens" in self.ledgers:
            self._tokenize(client)

    def _begin(self, step: Step) -> None:
        schema, layout = {
            "documents": (schema_of(self.recipe.stages), DOCUMENTS),
            "duplicates": (
                schemas.duplicates(
                    has_references=bool(self.recipe.references),
                    has_cuts=self.recipe.paragraphs_stage is not None,
                ),
                DUPLICATES,
            ),
            "tokens": (schemas.TOKENS, TOKENS),
        }[step]
        lineage = self.commits.lineage(step, action="rebuild")
        self.ledgers[step].begin(schema, layout, lambda generation: lineage([], generation))

    def _read(self, client: Client) -> None:
        """First pass: splits of the input -> ``documents`` (and ``tokens``, where nothing waits)."""
        documents, tokens = self.ledgers["documents"], self.ledgers.get("tokens")
        fused = tokens if "duplicates" not in self.ledgers else None
        todo = Spilled(self._numbered(client))
        keys = ((split, split_key(documents, split)) for split in todo)
        units = ((split, key, fused.key(key) if fused else "") for split, key in keys)
        replaced = Replaced(fragments_of(documents, self.plan.changed), (s.uri for s in todo))
        splits: dict[str, Split] = {}  # those whose results wait for their commit
        task = ReadSplit(self.recipe, with_tokens=fused is not None)
        label = "-".join(stage.kind for stage in self.recipe.documents_stages) or "read"
        work = _Work(task, units, len(todo), label)
        for finished in self._batches(client, "documents", work):
            splits |= {result.key: split for (split, *_), result in finished}
            results = replaced.ready(result for _, result in finished)
            entries = [
                Entry(
                    r.key,
                    r.documents,
                    replaced.paths(r.source),
                    {r.source: splits[r.key].fingerprint},
                )
                for r in results
            ]
            self.commits.commit("documents", entries, results, splits=splits)
            if fused is not None:  # what replaces old rows is tokenized by the second pass
                new = [replace(r, key=fused.key(r.key), costs={}) for r in results]
                new = [r for r in new if not replaced.paths(r.source)]
                self.commits.commit("tokens", [Entry(r.key, r.token_files) for r in new], new)
            for result in results:
                del splits[result.key]

    def _numbered(self, client: Client) -> Iterator[Split]:
        """The splits to read; those of files cut by bytes get the ordinal of their first record."""
        cut = self.plan.uncounted
        counts = np.full(len(cut), -1, np.int64)
        failed: set[str] = set()
        units = ((split, place) for place, split in enumerate(cut))
        for (split, place), answer in stream(
            client, _count, units, label="count-records", time_limit=self._time_limit
        ):
            if isinstance(answer, BaseException):  # no later part of the file has a number now
                failed.add(split.uri)
                self.commits.put_aside("documents", _place(split), answer)
            else:
                counts[place] = int(answer)
        numbered = number(cut, (None if count < 0 else count for count in counts.tolist()))
        for split in self.plan.splits:  # in the order of those that were counted
            if split.uri in failed:
                continue
            if split.first_row is not None:
                yield split
            else:
                yield next(found for found in numbered if _place(found) == _place(split))

    def _deduplicate(self, client: Client) -> None:
        """The barrier: decide all kept rows that are not decided yet, in one commit."""
        ledger, documents = self.ledgers["duplicates"], self.ledgers["documents"]
        while True:
            decisions = Decisions(ledger)
            documents.refresh()
            assert documents.table is not None
            units = Spilled(kept_units(documents.table))
            new = Spilled(unit for unit in units if not decisions.include(unit))
            if not len(new):
                return
            names = (ledger.key(unit.key) for unit in new)
            name = next(names)
            compared = Compared(units, decisions, KeyTable(ledger), self.plan.others)
            fragments = dedup.find(
                client,
                compared.files,
                self._lake(),
                name=name,
                has_exact=self.recipe.has_exact,
                keys=compared.keys,
            )
            if self.recipe.paragraphs_stage is not None:
                files = Spilled(data_files(units, decisions))
                fragments += paragraphs.find(
                    client, files, self._lake(), name=name, decided=fragments
                )
            cut = paragraphs.num_cut(fragments)
            found = sum(fragment.rows for fragment in fragments) - cut
            result = Result("", rows=sum(u.rows for u in new), duplicates=found)
            result.kept = result.rows - found
            entries = [Entry(name, fragments), *map(Entry, names)]
            try:
                ledger.commit(entries, self.commits.lineage("duplicates", [result]), retry=False)
            except ConflictError:  # another run has decided meanwhile: its decisions come first
                continue
            self.commits.report.duplicates += found
            self.commits.report.cut += cut
            size = len(new)
            self._tell(Progress("duplicates", size, size, result.rows, result.kept))

    def _lake(self) -> Lake:
        documents, duplicates = self.ledgers["documents"].url, self.ledgers["duplicates"].url
        references = bool(self.recipe.references)
        near, units = self.recipe.minhash_stage, self.recipe.paragraphs_stage
        return Lake(documents, duplicates, near, references, units)

    def _tokenize(self, client: Client) -> None:
        """Second pass: kept rows that are no duplicates -> ``tokens``."""
        ledger, documents = self.ledgers["tokens"], self.ledgers["documents"]
        ledger.refresh()  # before documents: a row of tokens stood in documents first
        documents.refresh()
        assert documents.table is not None
        units = Spilled(kept_units(documents.table))
        live = KeySet(ledger.key(unit.key) for unit in units)
        self._take_apart(live, units)
        stale = stale_fragments(ledger, live)
        duplicates = Decisions(self.ledgers.get("duplicates"))
        keyed = ((unit, ledger.key(unit.key)) for unit in units)
        todo = Spilled(
            (unit, key)
            for unit, key in keyed
            if not ledger.is_done(key) and duplicates.include(unit)
        )
        replaced = Replaced(stale, (unit.source for unit, _ in todo))
        task = TokenizeUnit(self.recipe)
        work = _Work(
            task,
            ((unit, key, duplicates.files(unit.source)) for unit, key in todo),
            len(todo),
            "tokenize",
        )
        for finished in self._batches(client, "tokens", work):
            results = replaced.ready(result for _, result in finished)
            entries = [Entry(r.key, r.token_files, replaced.paths(r.source)) for r in results]
            self.commits.commit("tokens", entries, results)
        for source in sorted(stale.keys() - {unit.source for unit in units if stale}):
            gone = Entry(ledger.key("removed", *stale[source]), remove=stale[source])
            self.commits.commit("tokens", [gone], [])

    def _take_apart(self, live: Container[str], units: Iterable[Unit]) -> None:
        """Let no file of ``tokens`` hold rows that are to be replaced beside others."""
        ledger, describe = self.ledgers["tokens"], self.commits.lineage("tokens", action="optimize")
        while mixed := take_apart(ledger, live, units):
            ledger.rewrite(mixed, lambda _: describe([], ledger.generation))

    def _batches(
        self, client: Client, step: Step, work: "_Work"
    ) -> Iterator[list[tuple[tuple[Any, ...], Result]]]:
        """Units with their results, in batches worth a commit; failed ones go into quarantine."""
        finished: list[tuple[tuple[Any, ...], Result]] = []
        cadence, progress = Cadence(), Progress(step, 0, work.count)
        begun = time.monotonic()
        answers = stream(
            client, work.task, work.units, label=work.label, time_limit=self._time_limit
        )
        with closing(answers):
            for unit, answer in answers:
                place = _place(unit[0])
                if isinstance(answer, WriteError):  # nothing is decided without what could be read
                    if finished:
                        yield finished
                    raise answer
                if isinstance(answer, BaseException):
                    result = Result(unit[1], place[0], failed=True)
                    self.commits.put_aside(step, place, answer)
                else:
                    result = Result.from_json(answer)
                    self.commits.clear(step, place)
                finished.append((unit, result))
                progress = progress.after(result, seconds=time.monotonic() - begun)
                self._tell(progress)
                if cadence.is_due(len(finished)):
                    before = time.monotonic()
                    yield finished
                    cadence.committed(seconds=time.monotonic() - before)
                    finished = []
        if finished:
            yield finished

    def _tell(self, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(progress)


def _count(split: Split, _place: int) -> str:
    """How many records a part of a file holds, as the text that ``stream`` carries."""
    return str(count_records(split))


def _place(unit: Split | Unit) -> Place:
    """The file of a unit of work, and which part of it."""
    if isinstance(unit, Unit):
        return unit.source, unit.key
    return unit.uri, "" if unit.stop is None else f"{unit.start}-{unit.stop}"
