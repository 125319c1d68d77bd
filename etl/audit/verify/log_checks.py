"""Check the log of each table: its entries, its checkpoints and its newest version.

Tokenlake never cleans a log, so every entry must exist. Missing newest entries show up in other tables and
in releases that name a later version.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from etl import storage
from etl.audit.row_lookup import iterate_rows
from etl.audit.verify.file_checks import Problem
from etl.compact_collections import KeyMap, digest
from etl.delta import log_segment
from etl.delta.actions import parse_actions
from etl.delta.set_transactions import SetTransactions
from etl.delta.table import Table
from etl.delta.torn_entries import TornFile, find_torn_files, raise_if_damaged
from etl.errors import StorageError, TableError, TokenlakeError, error_line
from etl.lake import releases
from etl.lake.commit_info import input_versions, parse_record
from etl.lake.table_specs import SPECS
from etl.lake.table_versions import LiveInputs

_DELETE = "delete it, the log is complete without it"
_REMOVED = -1
_BATCH_ROWS = 1 << 13


@dataclass
class Logs:
    """The logs of a lake: their problems, the tables at their newest versions, and the lineage."""

    problems: list[Problem] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    inputs: LiveInputs = field(default_factory=LiveInputs)  # of documents
    newest: dict[str, int] = field(default_factory=dict)
    named: list[tuple[str, int, str]] = field(default_factory=list)  # table, version, who names it


def check_logs(lake: str) -> Logs:
    """Check the logs of a lake's tables, and return what they contain.

    Each log entry is read once. Raises TableError if the lake has another format version.
    """
    logs = Logs()
    logs.named += [
        (kind, version, f"the release {release.name!r} names")
        for release in releases.list_releases(lake)
        for kind, version in release.versions.items()
    ]
    # Those made from others come first: the versions that they name exist when the others are read.
    for table_name in reversed(SPECS):
        problems = _check_log(lake, table_name, logs)
        logs.problems += [Problem(table_name, None, what) for what in problems]
    logs.problems += _check_ends(logs.newest, logs.named)
    return logs


def describe_torn(file: TornFile) -> str:
    """Return the problem of a file of a log that was not written completely."""
    version = log_segment.version_of_commit_file(file.name)
    name = f"the log entry of version {version}" if file.is_entry else file.name
    repair = f"it is kept: {file.why_kept}" if file.why_kept else "`etl repair` removes it"
    return f"{name} was not written completely: {repair}"


def _check_log(lake: str, table_name: str, logs: Logs) -> list[str]:
    url = storage.join(lake, table_name)
    pointer = storage.read_bytes(storage.join(url, "_delta_log", "_last_checkpoint"))
    try:
        names = log_segment.list_log_files(url)
    except FileNotFoundError:
        return []
    newest = max(map(log_segment.version_of_commit_file, names), default=-1)
    logs.newest[table_name] = newest
    table, error, torn = None, None, list[TornFile]()
    try:
        table = Table.open(url, newest)
    except TokenlakeError as raised:
        error = raised.what  # reported only if the reason is not
        torn = [file for file in find_torn_files(url) if file.is_entry]
        names = [name for name in names if name not in {file.name for file in torn}]
    problems = [describe_torn(file) for file in torn]
    problems += _check_checkpoints(url, names, pointer)
    log = _Log(table_name, url, table, logs)
    problems = [*log.check(names), *problems]
    if not problems and error is not None:
        return [error]
    if table is not None and not problems:
        logs.tables[table_name] = table
    return problems


class _Log:
    """One pass over the log entries of a table, oldest first.

    Memory: 24 bytes for each data file and transaction, until the checkpoint was compared.
    """

    def __init__(self, name: str, url: str, table: Table | None, logs: Logs) -> None:
        self._name = name
        self._url = url
        self._table = table
        self._logs = logs
        self._files = KeyMap()  # digest of a path -> hash of its add action, or _REMOVED
        self._transactions = SetTransactions()

    def check(self, names: list[str]) -> Iterator[str]:
        """Yield the problems of the entries, and those of the last checkpoint."""
        entries = {
            log_segment.version_of_commit_file(name): name
            for name in names
            if log_segment.version_of_commit_file(name) >= 0
        }
        missing = sorted(set(range(max(entries, default=-1) + 1)) - entries.keys())
        if missing:
            yield f"{len(missing)} log entries are missing, the first of version {missing[0]}"
        held = {} if self._table is None else self._table.held_entries
        contents = log_segment.read_commit_files(self._url, list(entries.values()), held)
        last = -1 if self._table is None or missing else self._table.checkpoint_version
        is_sound = True
        for version, content in zip(entries, contents, strict=True):
            if not _is_sound(content):
                is_sound = False
                yield f"the log entry of version {version} is damaged"
                continue
            with raise_if_damaged(self._url, entries[version]):
                self._read_info(version, content)
            if version <= last and is_sound:
                try:
                    with raise_if_damaged(self._url, entries[version]):
                        self._fold(content)
                    if version == last and not self._is_checkpoint_right():
                        what = f"the checkpoint of version {last} disagrees with the log entries"
                        yield f"{what}: {_DELETE}"
                except TableError as error:
                    is_sound = False
                    yield error.what

    def _read_info(self, version: int, content: bytes) -> None:
        info = log_segment.last_action(content, "commitInfo") or {}
        self._logs.named += [
            (name, number, f"{self._name} was built from")
            for name, number in input_versions(info).items()
        ]
        if self._name == "documents":
            record = parse_record({**info, "version": version}, self._url)
            if record is not None:
                self._logs.inputs.add(record)

    def _fold(self, content: bytes) -> None:
        """Apply the actions of an entry to the digests of the live files."""
        assert self._table is not None
        actions = parse_actions(content, self._table.partition_columns)
        removed = actions["remove"].combine_chunks().drop_null().field("path").to_pylist()
        for path in removed:
            self._files.put(digest(path), _REMOVED)
        add = actions["add"].combine_chunks().drop_null()
        for key, value in _hashes(self._table.file_list(add)):
            self._files.put(key, value)
        txn = actions["txn"].combine_chunks().drop_null()
        names, versions = (txn.field(name).to_pylist() for name in ("appId", "version"))
        self._transactions.update(dict(zip(names, versions, strict=True)))

    def _is_checkpoint_right(self) -> bool:
        """Compare the last checkpoint with the entries that it replaces."""
        assert self._table is not None
        files, self._files = self._files, KeyMap()
        transactions, self._transactions = self._transactions, SetTransactions()
        state = self._table.checkpoint_state()
        for batch in state.file_batches(self._table.schema):
            for key, value in _hashes(batch):
                if files.get(key) != value:
                    return False
                files.put(key, _REMOVED)  # a second entry of the path is wrong
        done = state.transactions()
        return all(value == _REMOVED for _, value in files.items()) and all(
            done.get(name) == version for name, version in transactions.items()
        )


def _hashes(files: pa.Table) -> Iterator[tuple[bytes, int]]:
    """Yield a digest of the path and a hash, not negative, of each row of a file list."""
    for row in iterate_rows(files):
        yield digest(row["path"]), int.from_bytes(digest(repr(row))[:8]) >> 1


def _is_sound(entry: bytes) -> bool:
    try:
        actions = [json.loads(line) for line in entry.splitlines()]
    except ValueError:  # also for invalid UTF-8
        return False
    return bool(actions) and all(isinstance(action, dict) for action in actions)


def _check_checkpoints(url: str, names: list[str], pointer: bytes | None) -> Iterator[str]:
    checkpoints = [name for name in names if ".checkpoint" in name and name.endswith(".parquet")]
    if pointer is not None:
        try:
            version = int(json.loads(pointer)["version"])
        except (ValueError, KeyError, TypeError):
            yield f"_last_checkpoint is damaged: {_DELETE}"
        else:
            if not any(name.startswith(f"{version:020}") for name in checkpoints):
                yield f"_last_checkpoint names the checkpoint of version {version}, which is missing"
    for name in checkpoints:
        try:
            with storage.open_input(storage.join(url, "_delta_log", name)) as source:
                parquet = pq.ParquetFile(
                    source, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
                )
                for _ in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
                    pass
        except (pa.ArrowException, OSError, StorageError) as error:
            yield f"the checkpoint {name} cannot be read ({error_line(error)}): {_DELETE}"


def _check_ends(newest: dict[str, int], named: list[tuple[str, int, str]]) -> Iterator[Problem]:
    """Yield the tables whose newest version is older than one named by another table or a release."""
    worst: dict[str, tuple[int, str]] = {}
    for kind, version, why in named:
        worst[kind] = max((version, why), worst.get(kind, (-1, "")))
    for kind in SPECS:
        version, why = worst.get(kind, (-1, ""))
        if version > newest.get(kind, -1):
            what = f"its newest version is {newest.get(kind, 'none')}, but {why} version {version}"
            yield Problem(kind, None, what)
