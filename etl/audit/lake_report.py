"""Report the contents of a lake: counts over its current tables, and the quarantined inputs.

Rows, tokens and sizes come from the logs; reasons and languages are counted from their own columns. No text
is read.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from etl import schemas, storage
from etl.audit.row_lookup import count_rules, count_values
from etl.delta.table import Table
from etl.lake.quarantine import Quarantine, Quarantined
from etl.lake.stage_costs import StageCost, stage_costs
from etl.lake.table_specs import open_tables
from etl.lake.table_versions import stream_versions


@dataclass(frozen=True, kw_only=True)
class TableReport:
    """The version, data files, size and recipe of a table."""

    name: str
    version: int
    files: int
    rows: int
    size: int  # bytes on disk
    recipe: str | None
    fingerprint: str | None
    committed: str  # UTC, ISO 8601


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """The outcome of the records of one input file."""

    source: str
    rows: int
    kept: int
    tokenized: int  # documents with tokens
    tokens: int


@dataclass(frozen=True, kw_only=True)
class LakeReport:
    """The counts of a lake; ``rows`` equals ``kept`` plus the sum of ``rejected``."""

    lake: str
    tables: list[TableReport]
    rows: int
    kept: int
    rejected: dict[str, int]  # by rule, most frequent first
    duplicates: dict[str, int]  # left out, by kind
    cut: int  # documents that lost units which occur in other documents
    tokenized: int  # documents with tokens
    tokens: int
    languages: dict[str, int]  # kept documents by language, if the recipe detects it
    sources: list[SourceReport]
    costs: list[StageCost]  # of the runs behind the tables
    quarantined: list[Quarantined] = field(default_factory=list)

    @property
    def tokens_per_document(self) -> float | None:
        """The mean over the documents with tokens; None if there are none."""
        return self.tokens / self.tokenized if self.tokenized else None


def report(lake: str) -> LakeReport:
    """Count the rows in the current tables of a lake.

    Raises TableError if the lake has no documents.
    """
    url = storage.normalize(lake)
    tables = open_tables(url)
    files = {name: table.data_files() for name, table in tables.items()}
    kept, rejected = _by_verdict(files["documents"])
    reasons = count_rules(tables["documents"], rejected)
    languages = count_values(tables["documents"], "lang", kept)
    kinds: Counter[str | None] = Counter()
    if "duplicates" in tables:
        kinds = count_values(tables["duplicates"], "kind", files["duplicates"])
    sources = _sources(kept, rejected, tables.get("tokens"), files.get("tokens"))
    logs = {name: _read_log(name, table) for name, table in tables.items()}
    return LakeReport(
        lake=url,
        tables=[_table(logs[name], table, files[name]) for name, table in tables.items()],
        rows=_sum(files["documents"], "rows"),
        kept=_sum(kept, "rows"),
        rejected=_sorted(reasons),
        duplicates=_sorted({kind: n for kind, n in kinds.items() if kind != schemas.CUT}),
        cut=kinds[schemas.CUT],
        tokenized=sum(source.tokenized for source in sources),
        tokens=sum(source.tokens for source in sources),
        languages=_sorted(languages) if set(languages) - {None} else {},
        sources=sources,
        costs=_costs(logs),
        quarantined=Quarantine(url).notes(),
    )


@dataclass
class _Log:
    """What the log of a table says: its last commit, and the counts behind its rows."""

    name: str
    committed: str
    record: schemas.Lineage | None = None  # the newest, without its input files
    counts: list[schemas.Counts] = field(default_factory=list)  # newest first


def _read_log(name: str, table: Table) -> _Log:
    """Read the log of a table once, newest entry first, and hold none of it."""
    log = _Log(name, "")
    for version in stream_versions(table):
        log.committed = log.committed or version.time.isoformat(timespec="seconds")
        if version.lineage is None:
            continue
        if log.record is None:
            log.record = version.lineage.model_copy(update={"input_files": []})
        if version.lineage.generation == log.record.generation:
            log.counts.append(version.lineage.counts)
    return log


def _table(log: _Log, table: Table, files: pa.Table) -> TableReport:
    record = log.record
    return TableReport(
        name=log.name,
        version=table.version,
        files=files.num_rows,
        rows=_sum(files, "rows"),
        size=_sum(files, "size"),
        recipe=record.recipe if record else None,
        fingerprint=record.fingerprint if record else None,
        committed=log.committed,
    )


def _costs(logs: Mapping[str, _Log]) -> list[StageCost]:
    """Sum up the cost of each stage over the commits behind the current tables."""
    record = logs["documents"].record
    if record is None:
        return []
    tokens = logs["tokens"].counts if "tokens" in logs else []
    return stage_costs(record.canonical["stages"], logs["documents"].counts, tokens)


def _by_verdict(files: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split the data files of ``documents`` into those with kept and those with rejected rows."""
    if files.num_rows == 0:
        return files, files
    is_kept = pc.equal(files["partition.verdict"], "kept")
    return files.filter(is_kept), files.filter(pc.invert(is_kept))


def _sources(
    kept: pa.Table, rejected: pa.Table, tokens: Table | None, files: pa.Table | None
) -> list[SourceReport]:
    """Count by input file: a data file holds rows of one, unless ``etl optimize`` wrote it."""
    parts = [
        _by_source(kept, rows="rows", kept="rows"),
        _by_source(rejected, rows="rows"),
    ]
    if tokens is not None and files is not None and files.num_rows:
        is_one = pc.equal(files["min.source"], files["max.source"])
        one, several = files.filter(is_one), files.filter(pc.invert(is_one))
        parts.append(_by_source(one, tokenized="rows", tokens="max.token_end"))
        parts += [_read_by_source(tokens.url, path) for path in several["path"].to_pylist()]
    total = pl.concat(parts).group_by("source").sum().sort("source")
    return [SourceReport(**row) for row in total.iter_rows(named=True)]


def _read_by_source(url: str, path: str) -> pl.DataFrame:
    """Count the documents and tokens of a data file with rows of several input files."""
    with storage.open_input(storage.join(url, path)) as file:
        rows = pl.DataFrame(pq.read_table(file, columns=["source", "num_tokens"]))
    counts = rows.group_by("source").agg(
        tokenized=pl.len(), tokens=pl.col("num_tokens").sum().cast(pl.Int64)
    )
    return counts.select(
        "source", pl.lit(0).alias("rows"), pl.lit(0).alias("kept"), pl.col("tokenized", "tokens")
    ).cast(dict.fromkeys(("rows", "kept", "tokenized", "tokens"), pl.Int64))


def _by_source(files: pa.Table, **columns: str) -> pl.DataFrame:
    """Return the source of each data file with the named counts, and 0 for the others."""
    names = ("rows", "kept", "tokenized", "tokens")
    schema = {"source": pl.String, **dict.fromkeys(names, pl.Int64)}
    if files.num_rows == 0:
        return pl.DataFrame(schema=schema)
    counts = {name: files[column].to_numpy() for name, column in columns.items()}
    zeros = {name: 0 for name in names if name not in counts}
    sources = pl.Series("source", files["min.source"].to_pylist(), pl.String)
    frame = pl.DataFrame({"source": sources, **counts})
    return frame.with_columns(**{n: pl.lit(v) for n, v in zeros.items()}).select(
        pl.col(name).cast(dtype) for name, dtype in schema.items()
    )


def _sorted(counts: Mapping[str, int] | Mapping[str | None, int]) -> dict[str, int]:
    """Sort counts, most frequent first and ties by name."""
    named = {"none" if name is None else name: count for name, count in counts.items()}
    return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))


def _sum(files: pa.Table, column: str) -> int:
    return int(pc.sum(files[column]).as_py() or 0)
