"""Report the contents of a lake: counts over its current tables, and the quarantined inputs.

Rows, tokens and sizes come from the logs; reasons and languages are counted from their own columns. No text
is read. Memory: the counts of each input file.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl import schemas, storage
from etl.audit.report_records import LakeReport, RunCost, SourceReport, TableReport
from etl.audit.value_counts import count_rules, count_values, sum_counts, with_verdict
from etl.delta.actions import to_numpy
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.lake.quarantine import Quarantine
from etl.lake.releases import tables_at
from etl.lake.stage_costs import StageCost, stage_costs
from etl.lake.table_names import token_tables
from etl.lake.table_versions import stream_versions
from etl.lake.unit_files import unit_parts


def report(lake: str, *, version: int | str | None = None) -> LakeReport:
    """Count the rows in the tables of a lake, by default the current ones.

    ``version`` is a version of the lake's last table, ``tokens`` or else ``texts``, or the name of a
    release. Of several tokenizers, the first one's tokens are counted by input file. Raises TableError if the
    lake has no documents, or if the version does not exist.
    """
    url = storage.normalize(lake)
    tables = tables_at(url, version)
    files = {name: _count_files(table) for name, table in tables.items()}
    others = token_tables(tables)[1:]  # the first tokenizer's are counted by input file
    sources = _by_source(each for name, each in files.items() if name not in others)
    logs = {name: _read_log(name, table) for name, table in tables.items()}
    documents = files["documents"]
    kinds = files["duplicates"].kinds if "duplicates" in files else Counter()
    languages = _sorted(documents.languages) if set(documents.languages) - {None} else {}
    losses = None
    if "losses" in tables:
        from etl.audit.mean_losses import mean_losses  # few lakes need it, and what it imports

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
        special_texts=_special_texts(logs),
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
                run_id=run_id,
                committed=committed,
                estimate=run.estimate,
                used=run.used,
                skipped_items=run.skipped_items,
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
        tokens=files.by_source["tokens"].total() if schemas.is_tokens(log.name) else None,
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
    """Return the counts of the commits to the tables of all tokenizers."""
    return [counts for name in token_tables(logs) for counts in logs[name].counts]


def _special_texts(logs: Mapping[str, _Log]) -> int:
    return sum(
        counts.special_texts for name in token_tables(logs)[:1] for counts in logs[name].counts
    )


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
    by_source: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


def _count_files(table: Table) -> _Files:
    """Count over the data files of a table, a batch of which is held at a time."""
    counts = _Files()
    name = table.url.rsplit("/", 1)[-1]
    for files in table.file_batches():
        counts.files += files.num_rows
        counts.rows += sum_counts(files, "rows")
        counts.size += sum_counts(files, "size")
        if name == "documents":
            kept, rejected = (with_verdict(files, verdict) for verdict in schemas.VERDICTS)
            counts.kept += sum_counts(kept, "rows")
            counts.reasons.update(count_rules(table, rejected))
            counts.languages.update(count_values(table, "lang", kept))
            _add_units(counts.by_source["rows"], table, files)
            _add_units(counts.by_source["kept"], table, kept)
        elif schemas.is_tokens(name):
            _count_tokens(counts.by_source, table, files)
        elif name == "duplicates":
            counts.kinds.update(count_values(table, "kind", files))
    return counts


def _count_tokens(counts: dict[str, Counter[str]], table: Table, files: pa.Table) -> None:
    """Count by input file: a data file has rows of one, unless it is merged or of a pack.

    The log counts the tokens of struck rows, too: files with such rows are read.
    """
    is_one = pc.equal(files["min.source"], files["max.source"])
    is_known = pc.and_(is_one, pc.is_null(files["vector"]))
    one, others = files.filter(is_known), files.filter(pc.invert(is_known))
    _add_files(counts["tokenized"], one, "rows")
    _add_files(counts["tokens"], one, "max.token_end")
    for file in others.select(["path", "vector"]).to_pylist():
        _add_rows(counts, read_live_rows(table.url, file, ["source", "num_tokens"]))


def _add_rows(counts: dict[str, Counter[str]], rows: pa.Table) -> None:
    """Count the documents and tokens of a data file that must be read."""
    sources = rows["source"].combine_chunks().dictionary_encode()
    lengths = rows["num_tokens"].cast(pa.int64()).combine_chunks()
    names, numbers = sources.dictionary.to_pylist(), to_numpy(sources.indices, np.int32)
    tokens = np.bincount(numbers, to_numpy(lengths, np.int64)).astype(np.int64)
    counts["tokenized"].update(dict(zip(names, np.bincount(numbers).tolist(), strict=True)))
    counts["tokens"].update(dict(zip(names, tokens.tolist(), strict=True)))


def _add_files(counts: Counter[str], files: pa.Table, column: str) -> None:
    """Add a count of each data file to the count of its input file."""
    values = files[column].to_pylist()
    for source, value in zip(files["min.source"].to_pylist(), values, strict=True):
        counts[source] += value or 0


def _add_units(counts: Counter[str], table: Table, files: pa.Table) -> None:
    """Add the rows of data files to the counts of their input files, of which a file may have several."""
    is_own = pc.is_null(files["units"])
    _add_files(counts, files.filter(is_own), "rows")
    for file in files.filter(pc.invert(is_own)).to_pylist():
        for part in unit_parts(table.url, file):
            counts[part["min.source"]] += part["rows"]


def _by_source(files: Iterable[_Files]) -> list[SourceReport]:
    """Return the counts of each input file, by its name."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for each in files:
        for name, by_source in each.by_source.items():
            counts[name].update(by_source)
    return [
        SourceReport(
            source=source,
            rows=counts["rows"][source],
            kept=counts["kept"][source],
            tokenized=counts["tokenized"][source],
            tokens=counts["tokens"][source],
        )
        for source in sorted({*counts["rows"], *counts["tokenized"]})
    ]


def _sorted(counts: Mapping[str, int] | Mapping[str | None, int]) -> dict[str, int]:
    """Sort counts, most frequent first and ties by name."""
    named = {"none" if name is None else name: count for name, count in counts.items()}
    return dict(sorted(named.items(), key=lambda item: (-item[1], item[0])))
