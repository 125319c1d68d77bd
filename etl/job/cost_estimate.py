"""Estimate what a run will need of workers and storage, from its plan and from measured throughputs.

The formula, with all sums over the splits and units of the plan:

- text bytes = input bytes x the expansion of their format and compression; that of Parquet is read from the
  footers of a few files
- core-seconds = overhead x text bytes x (sum of the parts' seconds per byte) + start-up x workers
- bytes read = input bytes + kept text as stored, once for each pass after the first
- bytes written = bytes stored = documents + texts + tokens + keys
- requests: per split and per unit of each pass (open, ranges of 8 MiB), per pack of small ones (files
  written), per commit, and a constant for planning; only for files in S3

The parts are reading, each stage, writing, and each deduplication stage. The seconds per byte come from the
lake's own runs where these have recorded a stage of the same kind, and else from ``benchmarks/RESULTS.md``
(one core of an idle x86-64 virtual machine). All text is assumed to be kept, unless the lake's runs say
otherwise.

Uncertainty: from benchmarks, a factor of 2 on text like theirs and idle cores. The estimate is too high where
stages reject most of the text before the expensive ones, and too low where words come from dictionaries. From
the lake's own runs, it is as near as their input and the load of their machines resemble this run. On
S3, files below 8 MiB are read several times, once for each request for a part of them, which the estimate of
bytes read leaves out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from etl import schemas, storage
from etl.compute.worker_count import local_workers
from etl.delta.table import Table
from etl.job.dedup_costs import DEDUP_COSTS, stored_share, text_reads
from etl.job.egress import RANGE_BYTES, read_bytes, reads_by_store
from etl.job.packs import count_packs, pack_units
from etl.job.plan import Plan
from etl.job.text_expansion import expansion_of, parquet_expansion
from etl.lake.open_table import find_table
from etl.lake.stage_costs import READ, TOKENIZE, WRITE, stage_costs
from etl.lake.table_versions import stream_versions
from etl.recipe.recipe import Recipe
from etl.schemas import Usage

_MB: Final = 1e6

MEGABYTES_PER_SECOND: Final[Mapping[str, float]] = {
    READ: 200.0,
    WRITE: 306.0,
    "content hash": 780.0,
    TOKENIZE: 94.0,
    f"{TOKENIZE}.read": 520.0,
    f"{TOKENIZE}.write": 86.0,
    "c4": 341.0,
    "dedup_exact": 160.0,
    "dedup_minhash": 45.0,
    "dedup_paragraphs": 45.0,
    "dedup_substrings": 24.0,
    "extract": 24.0,
    "fineweb_quality": 148.0,
    "gopher_quality": 137.0,
    "gopher_repetition": 73.0,
    "language": 49.0,
}
"""Text per second of one worker, by part of the work: ``benchmarks/RESULTS.md``."""

_OTHER_STAGE = 100.0  # MB/s of a stage that is not measured there: chosen here
_OVERHEAD = (
    1.25  # of a run over the sum of its parts: waiting for the driver, commits, the last splits
)
STARTUP_SECONDS: Final = 3.0
"""Core-seconds of each worker before its first split: imports, kernels, tokenizer; measured with the demo."""

STORED_TEXT: Final = 0.28  # bytes of texts on disk per byte of text: zstd
_STORED_DOCUMENTS = 0.02  # bytes of documents on disk per byte of text: zstd, with signals
_TOKEN_BYTES = 0.35  # bytes of tokens on disk per byte of text: 1.5 per token of 4.2 bytes, zstd
_FILE_BYTES = 4000  # of a data file beside its rows: footer, statistics

# Requests to S3 of runs on a local server, counted: tests/job/test_cost_estimate.py has such a run.
_SPLIT_READS = 8.0  # of a split: size and ranges of its file, and the driver's check of new files
_COUNT_READS = 3.0  # of a split whose records are counted first
_TOKENIZE_READS = 8.0  # of a unit
_COMMIT_READS, _COMMIT_WRITES = 4.0, 1.5
_SPLITS_PER_COMMIT = 256
_PLAN_READS, _PLAN_WRITES = 90.0, 70.0  # listings, logs, lease, creation of tables

_ENOUGH_SECONDS = 20.0  # of recorded costs of a run, to derive more than speeds from it
_MAX_ENTRIES = 10  # of each log that are searched for a run to learn from: on S3, each is a request

_MEMORY = 1 << 30  # of a worker: benchmarks/RESULTS.md has up to 950 MB
_MEMORY_DEDUP = 2 << 30  # a hundred million keys fitted into workers of this size


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What an estimate is derived from: shares per byte of text, of the lake's runs or of benchmarks."""

    run_id: str | None = None  # None: benchmarks only
    seconds_per_byte: Mapping[str, float] = field(default_factory=dict)  # by part
    expansion: float | None = None  # text bytes per input byte
    overhead: float = _OVERHEAD
    stored: Mapping[str, float] = field(default_factory=dict)  # bytes per byte of text, by table

    def seconds(self, part: str) -> float:
        """Return the seconds that a part takes per byte of text."""
        known = self.seconds_per_byte.get(part)
        return 1 / _MB / MEGABYTES_PER_SECOND.get(part, _OTHER_STAGE) if known is None else known


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a run is expected to need."""

    usage: Usage
    text_bytes: int
    memory_per_worker: int
    reads: Mapping[str, int]  # bytes by the store that they leave: none of local files
    basis: str  # of the estimate, and its uncertainty


def estimate_cost(
    plan: Plan, *, workers: int | None = None, tables: Iterable[Table] | None = None
) -> Estimate:
    """Estimate what a planned run needs, with a number of workers (default: as a local run has).

    ``tables`` are the lake's tables, which are opened by default.
    """
    recipe = plan.recipe
    basis = find_basis(_open_tables(recipe) if tables is None else tables)
    inputs = sum(read_bytes(split) for splits in (plan.splits, plan.uncounted) for split in splits)
    parquet = basis.expansion or parquet_expansion(plan)
    text = sum(
        split.bytes * (basis.expansion or expansion_of(split, parquet)) for split in plan.splits
    )
    stored = basis.stored.get("texts", STORED_TEXT)
    # Units of earlier runs pass the later steps only.
    old = plan.units.num_bytes / stored
    units = max(plan.units.undecided, plan.units.untokenized)
    seconds = text * sum(basis.seconds(part) for part in _first_parts(recipe))
    decided, tokenized = (
        text + plan.units.undecided_bytes / stored,
        len(recipe.tokenizers) * text + plan.units.untokenized_bytes / stored,
    )
    seconds += decided * sum(basis.seconds(stage.kind) for stage in recipe.dedup_stages)
    seconds += tokenized * (basis.seconds(TOKENIZE) + basis.seconds(f"{TOKENIZE}.write"))
    # Without deduplication, the first pass has the texts for the first tokenizer.
    read_again = tokenized - (0 if recipe.dedup_stages else text * bool(recipe.tokenizers))
    seconds += read_again * basis.seconds(f"{TOKENIZE}.read")
    workers = workers or local_workers(plan.planned_bytes)
    split_bytes = recipe.source.split_bytes
    read_packs = sum(1 for _ in pack_units(plan.splits, split_bytes=split_bytes))
    unit_packs = count_packs(units, round(old), split_bytes=split_bytes)
    workers = min(workers, max(read_packs, unit_packs))
    files = _num_files(recipe, read_packs, unit_packs)
    added = _stored_bytes(recipe, basis, text, decided=decided, tokenized=tokenized)
    added += 0 if basis.run_id else files * _FILE_BYTES
    compared = decided * text_reads(stage.kind for stage in recipe.dedup_stages)
    later_reads = round((compared + read_again) * stored)
    reads, writes = _requests(plan, inputs=inputs, later_reads=later_reads, files=files)
    usage = Usage(
        core_seconds=round(seconds * basis.overhead + STARTUP_SECONDS * workers, 1),
        read_bytes=inputs + later_reads,
        written_bytes=added,
        stored_bytes=added,
        read_requests=reads,
        write_requests=writes,
    )
    return Estimate(
        usage=usage,
        text_bytes=round(text),
        reads=reads_by_store(plan, later_reads),
        memory_per_worker=_MEMORY_DEDUP if recipe.dedup_stages else _MEMORY,
        basis=_describe(basis),
    )


def _describe(basis: Basis) -> str:
    if basis.run_id is None:
        return "benchmarks: within a factor of 2 on similar text and idle cores"
    return (
        f"the lake's run {basis.run_id}: as near as its input and machines are to those of this run"
    )


def _first_parts(recipe: Recipe) -> Iterator[str]:
    yield from (READ, "content hash", WRITE)
    yield from (stage.kind for stage in recipe.documents_stages)


def _stored_bytes(
    recipe: Recipe, basis: Basis, text: float, *, decided: float, tokenized: float
) -> int:
    """Return the bytes that the tables grow by, given the bytes of text that each step processes."""
    added = text * basis.stored.get("documents", _STORED_DOCUMENTS)
    added += text * basis.stored.get("texts", STORED_TEXT)
    if recipe.dedup_stages:
        share = stored_share(stage.kind for stage in recipe.dedup_stages)
        known = [basis.stored[name] for name in ("duplicates", "keys") if name in basis.stored]
        added += decided * (sum(known) if known else share)
    added += tokenized * basis.stored.get("tokens", _TOKEN_BYTES)
    return round(added)


def _num_files(recipe: Recipe, read: int, tokenized: int) -> int:
    """Return how many data files a run writes, given the packs that it reads, and others to tokenize."""
    of_documents = 4 if recipe.rejected.text else 3  # kept and rejected, and texts
    return (of_documents + len(recipe.tokenizers)) * read + tokenized


def _requests(plan: Plan, *, inputs: int, later_reads: int, files: int) -> tuple[int, int]:
    """Return the requests to S3 that read and that write; 0 if neither lake nor input is there."""
    recipe, splits = plan.recipe, len(plan.splits)
    reads = writes = 0.0
    if not plan.has_work():
        return 0, 0
    if not all(storage.is_local(path) for path in recipe.source.paths):
        reads += splits * _SPLIT_READS + len(plan.uncounted) * _COUNT_READS + inputs / RANGE_BYTES
    if not storage.is_local(str(recipe.lake)):
        unit_reads = sum(DEDUP_COSTS[stage.kind].unit_reads for stage in recipe.dedup_stages)
        later = len(recipe.dedup_stages) + len(recipe.tokenizers)
        commits = (2 + later) * (1 + splits / _SPLITS_PER_COMMIT)
        reads += _PLAN_READS + commits * _COMMIT_READS + later_reads / RANGE_BYTES
        reads += (splits + plan.units.undecided) * unit_reads
        reads += (len(recipe.tokenizers) * splits + plan.units.untokenized) * _TOKENIZE_READS
        writes += _PLAN_WRITES + commits * _COMMIT_WRITES + files
    return round(reads), round(writes)


def _open_tables(recipe: Recipe) -> Iterator[Table]:
    """Yield the tables of a recipe's lake that exist."""
    for step in () if recipe.lake is None else recipe.steps:
        table = find_table(storage.join(str(recipe.lake), step))
        if table is not None:
            yield table


def find_basis(tables: Iterable[Table]) -> Basis:
    """Return what the largest of the newest runs in the tables has measured; benchmarks if they have none."""
    records: dict[str, schemas.Lineage] = {}  # the newest of each run
    for table in tables:
        for version in islice(stream_versions(table), _MAX_ENTRIES):
            record = version.lineage
            if record is None or record.run is None or not record.run.documents.text_bytes:
                continue
            known = records.get(record.run_id)
            if known is None or known.committed < record.committed:
                records[record.run_id] = record
    if not records:
        return Basis()
    return _learn(max(records.values(), key=lambda each: _run_of(each).documents.text_bytes))


def _run_of(record: schemas.Lineage) -> schemas.RunRecord:
    assert record.run is not None
    return record.run


def _learn(record: schemas.Lineage) -> Basis:
    """Return the seconds and shares per byte of text that a run has measured."""
    run = _run_of(record)
    text = run.documents.text_bytes
    seconds: dict[str, float] = {}
    stages = record.canonical["stages"]
    measured = 0.0
    tokenizers = max(sum(stage["kind"] == TOKENIZE for stage in stages), 1)
    for cost in stage_costs(stages, [run.documents], run.tokens.values()):
        # A stage is named with its number: "3 python"; signals are named after what they share.
        kind = cost.name.split()[-1]
        size = text * (tokenizers if kind.partition(".")[0] == TOKENIZE else 1)
        seconds[kind] = seconds.get(kind, 0.0) + cost.seconds / size
        measured += cost.seconds
    overhead = _OVERHEAD
    if measured > _ENOUGH_SECONDS:  # it includes the start of the workers, and deduplication
        overhead = max(1.0, run.used.core_seconds / measured)
        seconds |= {kind: 0.0 for kind in DEDUP_COSTS if kind not in seconds}
    return Basis(
        run_id=record.run_id,
        seconds_per_byte=_with_signals(record, seconds),
        expansion=text / run.input_bytes if run.input_bytes else None,
        overhead=overhead,
        stored={name: size / text for name, size in run.stored.items()},
    )


def _with_signals(record: schemas.Lineage, seconds: dict[str, float]) -> dict[str, float]:
    """Return the seconds by part, with the time of shared signals divided among the filters of the recipe."""
    signals = sum(seconds.pop(name) for name in list(seconds) if name.startswith("signals."))
    kinds = [stage["kind"] for stage in record.canonical["stages"] if stage["kind"] in seconds]
    weights = {kind: 1 / MEGABYTES_PER_SECOND.get(kind, _OTHER_STAGE) for kind in kinds}
    for kind, weight in weights.items():
        seconds[kind] += signals * weight / sum(weights.values())
    if kinds:
        seconds["content hash"] = 0.0  # one of the signals
    return seconds
