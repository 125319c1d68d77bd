"""Report the contents of a lake: counts over its current tables, and the quarantined inputs.

Rows, tokens and sizes come from the logs; reasons and languages are counted from their own columns. No text
is read. Memory: the counts of each input file.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas, storage
from etl.audit.mean_losses import mean_losses
from etl.audit.report_records import LakeReport, RunCost, SourceReport, TableReport
from etl.audit.row_lookup import count_rules, count_values
from etl.delta.actions import string_scalar
from etl.delta.data_file import read_columns
from etl.delta.table import Table
from etl.lake.quarantine import Quarantine
from etl.lake.releases import tables_at
from etl.lake.stage_costs import StageCost, stage_costs
from etl.lake.table_versions import stream_versions


def report(lake: str, *, version: int | str | None = None) -> LakeReport:
    """Count the rows in the tables of a lake, by default the current ones.

    ``version`` is that of the lake's last table, ``tokens`` or else ``documents``, or the name of a release.
    Raises TableError if the lake has no documents, or if the version does not exist.
    """
    url = storage.normalize(lake)
    tables = tables_at(url, version)
    files = {name: _count_files(table) for name, table in tables.items()}
    totals = _by_source(part for each in files.values() for part in each.by_source)
    sources = [SourceReport(**row) for row in totals.sort("source").iter_rows(named=True)]
    logs = {name: _read_log(name, table) for name, table in tables.items()}
    documents = files["documents"]
    kinds = files["duplicates"].kinds if "duplicates" in files else Counter()
    languages = _sorted(documents.languages) if set(documents.languages) - {None} else {}
    losses = None
    if "losses" in tables:
        losses = mean_losses(tables["losses"], tables["documents"], has_languages=bool(languages))
    return LakeReport(
        lake=url,
        tables=[_table(logs[name], table, files[name]) for name, table in tables.items()],
        rows=documents.rows,
        kept=documents.kept,
        rejected=_sorted(documents.reasons),
        duplicates=_sorted({kind: n for kind, n in kinds.items() if kind != schemas.CUT}),
        cut=kinds[schemas.CUT],
        tokenized=sum(source.tokenized for source in sources),
        tokens=sum(source.tokens for source in sources),
        special_texts=sum(counts.special_texts for counts in _token_counts(logs)),
        languages=languages,
        sources=sources,
        costs=_costs(logs),
        runs=_runs(logs.values()),
        quarantined=Quarantine(url).notes(),
        losses=losses,
    )


@dataclass
class _Log:
    """What the log of a table says: its last commit, and the counts behind its rows."""

    name: str
    committed: str
    record: schemas.Lineage | None = None  # the newest, without its input files
    counts: list[schemas.Counts] = field(default_factory=list)  # newest first
    runs: dict[str, RunCost] = field(default_factory=dict)  # by id, up to their last commit here


def _read_log(name: str, table: Table) -> _Log:
    """Read the log of a table once, newest entry first, and hold none of it."""
    log = _Log(name, "")
    for version in stream_versions(table):
        log.committed = log.committed or version.time.isoformat(timespec="seconds")
        if version.lineage is None:
            continue
        if (run := version.lineage.run) is not None and version.lineage.run_id not in log.runs:
            run_id, committed = version.lineage.run_id, version.lineage.committed
            log.runs[run_id] = RunCost(
                run_id=run_id, committed=committed, estimate=run.estimate, used=run.used
            )
        if log.record is None:
            log.record = version.lineage.model_copy(update={"input_files": []})
        if version.lineage.generation == log.record.generation:
            log.counts.append(version.lineage.counts)
    return log


def _table(log: _Log, table: Table, files: "_Files") -> TableReport:
    record = log.record
    return TableReport(
        name=log.name,
        version=table.version,
        files=files.files,
        rows=files.rows,
        size=files.size,
        recipe=record.recipe if record else None,
        fingerprint=record.recipe_fingerprint if record else None,
        committed=log.committed,
    )


def _costs(logs: Mapping[str, _Log]) -> list[StageCost]:
    """Sum up the cost of each stage over the commits behind the current tables."""
    record = logs["documents"].record
    if record is None:
        return []
    return stage_costs(record.canonical["stages"], logs["documents"].counts, _token_counts(logs))


def _runs(logs: Iterable[_Log]) -> list[RunCost]:
    """Return the runs that the logs name, each up to its last commit to any table."""
    runs: dict[str, RunCost] = {}
    for run in (run for log in logs for run in log.runs.values()):
        if run.run_id not in runs or runs[run.run_id].committed < run.committed:
            runs[run.run_id] = run
    return sorted(runs.values(), key=lambda run: run.committed, reverse=True)


def total_usage(usages: Iterable[schemas.Usage]) -> schemas.Usage:
    """Return the sums of usages."""
    sums: Counter[str] = Counter()
    for usage in usages:
        sums.update(usage.model_dump())
    return schemas.Usage(**sums)


def _token_counts(logs: Mapping[str, _Log]) -> list[schemas.Counts]:
    return logs["tokens"].counts if "tokens" in logs else []


@dataclass
class _Files:
    """Counts over the data files of a table."""

    files: int = 0
    rows: int = 0
    size: int = 0
    kept: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    languages: Counter[str | None] = field(default_factory=Counter)
    kinds: Counter[str | None] = field(default_factory=Counter)  # of duplicates
    by_source: list[pl.DataFrame] = field(default_factory=list)


def _count_files(table: Table) -> _Files:
    """Count over the data files of a table, a batch of which is held at a time."""
    counts = _Files()
    name = table.url.rsplit("/", 1)[-1]
    for files in table.file_batches():
        counts.files += files.num_rows
        counts.rows += _sum(files, "rows")
        counts.size += _sum(files, "size")
        if name == "documents":
            kept, rejected = _by_verdict(files)
            counts.kept += _sum(kept, "rows")
            counts.reasons.update(count_rules(table, rejected))
            counts.languages.update(count_values(table, "lang", kept))
            parts = [_counts(kept, rows="rows", kept="rows"), _counts(rejected, rows="rows")]
        elif name == "tokens":
            parts = _count_tokens(table, files)
        else:
            parts = []
            if name == "duplicates":
                counts.kinds.update(count_values(table, "kind", files))
        counts.by_source = [_by_source([*counts.by_source, *parts])]
    return counts


def _by_verdict(files: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split data files of ``documents`` into those with kept and those with rejected rows."""
    is_kept = pc.equal(files["partition.verdict"], string_scalar("kept"))
    return files.filter(is_kept), files.filter(pc.invert(is_kept))


def _count_tokens(table: Table, files: pa.Table) -> list[pl.DataFrame]:
    """Count by input file: a data file has rows of one, unless ``etl optimize`` wrote it."""
    is_one = pc.equal(files["min.source"], files["max.source"])
    one, several = files.filter(is_one), files.filter(pc.invert(is_one))
    counts = _counts(one, tokenized="rows", tokens="max.token_end")
    return [counts, *(_read_counts(table.url, path) for path in several["path"].to_pylist())]


_COUNTS: Final = ("rows", "kept", "tokenized", "tokens")
_BY_SOURCE: Final = pl.Schema({"source": pl.String, **dict.fromkeys(_COUNTS, pl.Int64)})


def _by_source(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the sums of counts by input file."""
    return pl.concat([pl.DataFrame(schema=_BY_SOURCE), *parts]).group_by("source").sum()


def _read_counts(url: str, path: str) -> pl.DataFrame:
    """Count the documents and tokens of a data file with rows of several input files."""
    rows = pl.DataFrame(read_columns(storage.join(url, path), ["source", "num_tokens"]))
    counts = rows.group_by("source").agg(
        tokenized=pl.len(), tokens=pl.col("num_tokens").sum().cast(pl.Int64)
    )
    return _with_all_counts(counts)


def _counts(files: pa.Table, **columns: str) -> pl.DataFrame:
    """Return the source of each data file with the named counts, and 0 for the others."""
    counts = {name: pl.Series(files[column]) for name, column in columns.items()}
    sources = pl.Series("source", files["min.source"].to_pylist(), pl.String)
    return _with_all_counts(pl.DataFrame({"source": sources, **counts}))


def _with_all_counts(counts: pl.DataFrame) -> pl.DataFrame:
    """Return counts by input file with those that are missing as 0."""
    missing = [pl.lit(0).alias(name) for name in _COUNTS if name not in counts.columns]
    return counts.with_columns(missing).select(*_BY_SOURCE).cast(_BY_SOURCE)


def _sorted(counts: Mapping[str, int] | Mapping[str | None, int]) -> dict[str, int]:
    """Sort counts, most frequent first and ties by name."""
    named = {"none" if name is None else name: count for name, count in counts.items()}
    return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))


def _sum(files: pa.Table, column: str) -> int:
    return int(pc.sum(files[column]).as_py() or 0)
