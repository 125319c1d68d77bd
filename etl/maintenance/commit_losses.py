"""Commit the losses that trainings have logged to the table ``losses`` of their lakes.

Each file of a log is a unit of work of the table: its rows, and the record that they are there, become
visible in one commit, so that a file counts once however often the command is run, killed or run twice at the
same time. A sample of a run counts once, too: after a resume, it may be in several files. If the table has
it, the table keeps it; otherwise the rows that were written last are committed.

Only here are the documents of the samples found, in the order of the loader's lanes, which reads the small
columns of each row group about once. Memory: half a million rows of the log.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from etl import schemas, storage
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table
from etl.errors import ConflictError, LoaderError, TokenlakeError
from etl.lake.commit_info import read_record
from etl.lake.jobs import Job, JobIdentity, hold_job
from etl.lake.lake_epochs import current_lake_epoch
from etl.lake.ledger import Ledger
from etl.lake.ledger_entry import LedgerEntry
from etl.lake.lineage_record import Change, Origin
from etl.lake.missing_tables import lake_url
from etl.lake.open_ledger import refuse_foreign_changes
from etl.lake.open_table import open_table
from etl.lake.table_specs import LOSSES
from etl.loader import loss_log
from etl.loader.find_documents import DocumentSpan
from etl.loader.mixture import TokenMixture
from etl.loader.ranks import Shard
from etl.loader.replay import open_saved
from etl.parquet.data_file import DataFileWriter
from etl.parquet.parquet_file import open_parquet, read_footer

FINGERPRINT: Final = "00" * 32
"""The fingerprint of the table: no recipe fills it."""

_GROUP_ROWS = 1 << 19  # 240 MB (measured)
_MAX_ATTEMPTS = 50  # each failure means that another writer's commit succeeded
_THREADS = 16  # they wait for storage
_SAMPLE = ["run", "plan", "epoch", "sample"]  # what counts once
_LOGGED: Final = {"source": pl.String, "row": pl.Int64, "start": pl.Int64, "span": pl.Int64}


@dataclass(frozen=True, kw_only=True)
class LeftLog:
    """A file of a log that was not committed, and why."""

    file: str
    why: str


@dataclass(kw_only=True)
class CommittedLosses:
    """What was committed to the table of one lake."""

    lake: str
    version: int | None = None  # of the table ``losses``; None if the lake has none
    files: int = 0  # of the log
    rows: int = 0  # added to the table
    repeated: int = 0  # rows of samples that the table has already, or that came again
    runs: set[str] = field(default_factory=set)
    left: list[LeftLog] = field(default_factory=list)


@dataclass(frozen=True)
class _LogFile:
    """A file of a log: its URI, its number of rows, and what its metadata say."""

    uri: str
    rows: int
    run: str
    state: Mapping[str, Any]
    tables: Sequence[str]
    written: int

    @property
    def name(self) -> str:
        return self.uri.rpartition("/")[2]


def commit_losses(*lakes: str, folder: str | None = None) -> list[CommittedLosses]:
    """Commit the logged losses of lakes, delete the files that are committed, and return a report for each.

    ``lakes`` is one URL, or NAME=URL for each source of a mixture. ``folder`` is the folder of the
    ``LossLog``. A file that cannot be read, or that is not of these lakes, is left and reported. Raises
    TableError for a lake that no recipe made, and MismatchError if another process drops rows of a lake.
    """
    urls = [lake_url(lake.rpartition("=")[2]) for lake in lakes]
    folder = storage.join(urls[0], loss_log.FOLDER) if folder is None else folder
    reports = [CommittedLosses(lake=url) for url in urls]
    files, left = _list_files(storage.normalize(folder))
    with ExitStack() as stack:
        identities = [JobIdentity(lake=url, kind="losses") for url in urls if files]
        jobs = [stack.enter_context(hold_job(identity)) for identity in identities]
        targets = [_Target(reports[number], number, job) for number, job in enumerate(jobs)]
        reader = _LogReader(lakes)
        # A file may have samples of several lakes of a mixture. It is deleted only when all of them have
        # its rows.
        for group in _groups(files):
            done = [_commit_group(target, group, reader) for target in targets]
            with ThreadPoolExecutor(_THREADS) as pool:
                committed = [f.uri for f in group if all(f.name in names for names in done)]
                list(pool.map(storage.remove, committed))
        left += reader.left
    # Another process may have committed files, and deleted them, while this one read them.
    left = [each for each in left if storage.file_info(each.file) is not None]
    for report in reports:
        url = storage.join(report.lake, LOSSES.name)
        report.version = Table.open(url).version if Table.exists(url) else None
        report.left = left
    return reports


def _list_files(folder: str) -> tuple[list[_LogFile], list[LeftLog]]:
    """Return the files of all logs in a folder, those written last first, and those that cannot be read."""
    files: list[_LogFile] = []
    left: list[LeftLog] = []
    for info in storage.walk_files(folder):
        if not info.uri.endswith(".parquet"):
            continue
        try:
            files.append(_read_footer(info.uri))
        except (pa.ArrowException, OSError, ValueError, LookupError, TokenlakeError) as error:
            left.append(LeftLog(file=info.uri, why=f"not a file of a log ({error})"))
    return sorted(files, key=lambda file: (-file.written, file.uri)), left


def _read_footer(uri: str) -> _LogFile:
    with storage.open_input(uri) as source:
        footer = read_footer(source)
    fields = json.loads((footer.metadata or {})[loss_log.METADATA])
    if fields.pop("format") != loss_log.FILE_FORMAT:
        raise ValueError("it has another format version")
    return _LogFile(uri=uri, rows=footer.num_rows, **fields)


def _groups(files: Sequence[_LogFile]) -> Iterator[list[_LogFile]]:
    """Yield the files in groups that fit into memory."""
    group: list[_LogFile] = []
    for file in files:
        if group and sum(each.rows for each in group) + file.rows > _GROUP_ROWS:
            yield group
            group = []
        group.append(file)
    if group:
        yield group


class _LogReader:
    """Reads files of logs, and finds the documents of their samples."""

    def __init__(self, lakes: Sequence[str]) -> None:
        self.left: list[LeftLog] = []
        self._lakes = lakes
        self._datasets: dict[str, Any] = {}  # by state: a dataset, or the error

    def read(self, file: _LogFile) -> pl.DataFrame | None:
        """Return the rows of a file with the documents; None, which is reported, if there is a problem.

        Rows also have ``lake``, the number of the lake, and ``span``, the number of the document in the
        sample.
        """
        try:
            dataset = self._open(file)
            with storage.open_input(file.uri) as source:
                rows = pl.DataFrame(open_parquet(source).read(use_threads=False))
            epoch, sample = dataset.epochs.find(rows["sample"].to_numpy())
            rows = rows.with_columns(epoch=pl.Series(epoch), sample=pl.Series(sample))
            return self._with_documents(dataset, rows).with_columns(
                run=pl.lit(file.run), plan=pl.lit(str(file.state["plan"]))
            )
        except (pa.ArrowException, OSError, TokenlakeError) as error:
            if all(each.file != file.uri for each in self.left):
                self.left.append(LeftLog(file=file.uri, why=str(error)))
            return None

    def _open(self, file: _LogFile) -> Any:
        key = json.dumps([file.state, file.tables], sort_keys=True)
        # Opening a dataset reads the log of a table, and the files of a run share a few states. An error
        # is kept like a dataset, so that it is reported for each file without opening again.
        if key not in self._datasets:
            lakes = [
                storage.join(lake, table)
                for lake, table in zip(self._lakes, file.tables, strict=False)
            ]
            try:
                one = Shard(rank=0, world_size=1)
                self._datasets[key] = open_saved(lakes, dict(file.state), shard=one)
            except TokenlakeError as error:
                self._datasets[key] = error
        if isinstance(self._datasets[key], TokenlakeError):
            raise self._datasets[key]
        return self._datasets[key]

    def _with_documents(self, dataset: Any, rows: pl.DataFrame) -> pl.DataFrame:
        """Replace the offsets in windows by documents and offsets in them."""
        # Neighbours in a lane are neighbours in the table.
        rows = rows.sort("epoch", pl.col("sample") % dataset.lanes, "sample", "start")
        numbers = rows.select("epoch", "sample", "start").rows()
        found: list[tuple[int, str, int, int, int]] = []
        located: tuple[int, int] | None = None
        lake, spans, starts = 0, list[DocumentSpan](), np.empty(0, np.int64)
        locators: dict[int, Any] = {}
        for epoch, sample, start in numbers:
            # All documents of a window are located at once, and rows are sorted by window.
            if located != (epoch, sample):
                if epoch not in locators:
                    locators[epoch] = dataset.locator(epoch)
                lake, spans = _locate(dataset, locators[epoch], sample)
                starts = np.array([span.start for span in spans])
                located = epoch, sample
            # Spans that start at tokens 0, 40 and 90: token 40 is in the second, token 89 too.
            number = int(np.searchsorted(starts, start, side="right")) - 1
            span = spans[number]
            # The last label of a best-fit window is the token after its last span.
            if number < 0 or start > span.start + span.count:
                raise LoaderError(f"sample {sample} has no document at token {start}")
            offset = span.document_start + start - span.start
            found.append((lake, span.source, span.row, offset, number))
        schema = {"lake": pl.Int64, **_LOGGED}
        documents = pl.DataFrame(found, schema=schema, orient="row")
        return pl.concat([rows.drop("start"), documents], how="horizontal")


def _locate(dataset: Any, locator: Any, sample: int) -> tuple[int, list[DocumentSpan]]:
    if isinstance(dataset, TokenMixture):
        name, spans = locator.locate(sample)
        return dataset.names.index(name), spans
    return 0, locator.locate(sample)


class _Target:
    """The table ``losses`` of one lake."""

    def __init__(self, report: CommittedLosses, number: int, job: Job) -> None:
        self.report = report
        self.number = number  # of the lake
        self.job = job
        self.open()

    def open(self) -> None:
        """Open the newest version of the table; create it if it does not exist."""
        lake_epoch = current_lake_epoch(self.report.lake)
        self.ledger = Ledger(storage.join(self.report.lake, LOSSES.name), fingerprint=FINGERPRINT)
        if self.ledger.table is None:
            self.ledger.create(schemas.LOSSES, LOSSES.layout, lake_epoch=lake_epoch)
        refuse_foreign_changes(self.ledger)

    def is_done(self, file: _LogFile) -> bool:
        """Return whether the table has the rows of a file."""
        return self.ledger.is_done(self.key(file))

    def key(self, file: _LogFile) -> str:
        """Return the key of the unit of work that a file is."""
        return self.ledger.key("log", file.name)

    def without_present(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of samples that the table does not have."""
        table = self.ledger.table
        assert table is not None
        # Files whose statistics exclude all samples are not opened: a file has samples of about one
        # time.
        bounds = [rows[name] for name in ("epoch", "sample")]
        for file in table.files(
            "vector", *(f"{m}.{n}" for m in ("min", "max") for n in ("epoch", "sample"))
        ):
            ranges = zip(("epoch", "sample"), bounds, strict=True)
            if rows.is_empty() or any(
                file[f"min.{n}"] > b.max() or file[f"max.{n}"] < b.min() for n, b in ranges
            ):
                continue
            present = pl.DataFrame(read_live_rows(table.url, file, _SAMPLE)).unique()
            rows = rows.join(present, on=_SAMPLE, how="anti")
        return rows


def _commit_group(target: _Target, group: Sequence[_LogFile], reader: _LogReader) -> set[str]:
    """Commit the rows of a group to the table of a lake; return the names of the files that are done."""
    parts: dict[str, pl.DataFrame | None] = {}
    for _ in range(_MAX_ATTEMPTS):
        # Each attempt looks again: another process may have committed some of the files, or the same
        # samples from other files. The rows read from a file stay valid.
        todo = [file for file in group if not target.is_done(file)]
        for file in todo:
            if file.name not in parts:
                parts[file.name] = reader.read(file)
        todo = [file for file in todo if parts[file.name] is not None]
        if not todo:
            break
        logged = [
            # Of two rows of a sample, the one with the greater turn was written later.
            part.with_columns(turn=pl.lit(-turn << 40) + pl.col("call"))
            for turn, file in enumerate(group)
            if file in todo and (part := parts[file.name]) is not None
        ]
        rows = pl.concat(logged).filter(pl.col("lake") == target.number)
        kept = target.without_present(_merge(rows))
        try:
            _commit(target, todo, kept)
        except ConflictError:
            target.open()
            continue
        report = target.report
        report.files += len(todo)
        report.rows += len(kept)
        report.repeated += len(_merge(rows, once=False)) - len(kept)
        report.runs |= {file.run for file in todo}
    return {file.name for file in group if target.is_done(file)}


def _merge(rows: pl.DataFrame, *, once: bool = True) -> pl.DataFrame:
    """Return one row for each document in a sample; if ``once``, only the last rows of a sample."""
    # A run that resumed from a checkpoint logs some samples again. The later values count.
    if once:
        rows = rows.filter(pl.col("turn") == pl.col("turn").max().over(_SAMPLE))
    merged = rows.group_by(*_SAMPLE, "turn", "span").agg(
        pl.col("source", "row", "step").first(),
        pl.col("start").min(),
        pl.col("num_tokens").cast(pl.Int64).sum(),
        pl.col("loss").sum() / pl.col("num_tokens").sum(),
    )
    return merged.select(schemas.LOSSES.names).sort("source", "row", *_SAMPLE, "start")


def _commit(target: _Target, files: Sequence[_LogFile], rows: pl.DataFrame) -> None:
    """Commit rows as the content of files; raises ConflictError if any other commit came first."""
    keys = [target.key(file) for file in files]
    writer = DataFileWriter(target.ledger.url, schemas.LOSSES, LOSSES.layout, name=keys[0])
    writer.append(rows.to_arrow().cast(schemas.LOSSES))
    data_files = writer.close()
    # One data file has the rows of all log files; each log file is a unit of work, done in the same
    # commit.
    entries = [LedgerEntry(key, data_files if key == keys[0] else ()) for key in keys]

    def describe(_: Sequence[LedgerEntry], generation: int) -> schemas.Lineage:
        inputs = _inputs(target, files)
        change = Change(
            action="append",
            generation=generation,
            input_tables=inputs,
            num_data_files=len(data_files),
            counts=schemas.Counts(rows=len(rows), kept=len(rows)),
        )
        # The recipe is the recipe of the tokens that the runs were trained on.
        origin = Origin.of(read_record(open_table(inputs[0].url, inputs[0].version)))
        losses = replace(origin, step=LOSSES.name, fingerprint=FINGERPRINT)
        return target.job.record(losses, change)

    target.ledger.commit(entries, describe, retry=False)


def _inputs(target: _Target, files: Sequence[_LogFile]) -> list[schemas.InputTable]:
    """Return the token tables of a lake that runs were trained on, each with its newest version."""
    versions: dict[str, int] = {}
    for file in files:
        name, states = file.tables[target.number], file.state.get("datasets", {"": file.state})
        version = [*states.values()][target.number]["version"]
        versions[name] = max(version, versions.get(name, 0))
    return [
        schemas.InputTable(name=name, url=storage.join(target.report.lake, name), version=version)
        for name, version in sorted(versions.items())
    ]
