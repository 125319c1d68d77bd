"""Check the log of each table: its entries, its checkpoints and its newest version.

Tokenlake never cleans a log, so every entry must exist, except for those that a repair has given up. Missing
newest entries show up in what names a later version: other tables, releases, and the versions that a job has
left when it ended.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from etl import schemas, storage
from etl.audit.value_counts import iterate_rows
from etl.audit.verify.file_checks import Problem
from etl.compact_collections import KeyMap, digest
from etl.delta import log_segment
from etl.delta.actions import parse_actions
from etl.delta.entry_checksum import CheckedEntry
from etl.delta.log_damage import LogCheck, LogDamage, lost_versions
from etl.delta.set_transactions import SetTransactions
from etl.delta.snapshot import Snapshot, read_checkpoint
from etl.delta.table import Table
from etl.errors import TableError, TokenlakeError
from etl.lake import releases
from etl.lake.commit_info import input_versions, parse_record
from etl.lake.finished_versions import finished_versions
from etl.lake.table_names import in_order, table_names
from etl.lake.table_versions import LiveInputs
from etl.recipe.recipe import Recipe

_REMOVED = -1


@dataclass
class Logs:
    """The logs of a lake: their damage, the tables at their newest versions, and the lineage."""

    damage: dict[str, LogDamage] = field(default_factory=dict)  # by table
    errors: list[Problem] = field(default_factory=list)  # of tables whose logs are sound
    tables: dict[str, Table] = field(default_factory=dict)
    inputs: LiveInputs = field(default_factory=LiveInputs)  # of documents
    records: dict[str, schemas.Lineage] = field(default_factory=dict)  # the newest, by table
    named: dict[str, int] = field(default_factory=dict)  # newest version that others name, by table

    @property
    def problems(self) -> list[Problem]:
        """All problems of the logs."""
        damage = ((name, what) for name, log in self.damage.items() for what in log.describe())
        return [*(Problem(name, None, what) for name, what in damage), *self.errors]

    @property
    def newest_record(self) -> schemas.Lineage | None:
        """The newest record of all tables, or None without a record."""
        return max(self.records.values(), key=lambda record: record.committed, default=None)

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """The fingerprints of the tables that the recipe of the newest record fills, by table."""
        newest = self.newest_record
        return {} if newest is None else {str(k): v for k, v in newest.fingerprints.items()}

    def recipe(self) -> Recipe | None:
        """Return the recipe of the newest record, or None without a record."""
        newest = self.newest_record
        return None if newest is None else Recipe.recorded(newest.canonical, where=newest.recipe)

    def name(self, table: str, version: int) -> None:
        """Note that another table or a release names a version."""
        self.named[table] = max(version, self.named.get(table, -1))


def check_logs(lake: str) -> Logs:
    """Check the logs of a lake's tables, and return what they contain.

    Raises TableError if the lake has another format version.
    """
    logs = Logs()
    for release in releases.read_releases(lake)[0]:
        for kind, version in release.versions.items():
            logs.name(kind, version)
    for kind, version in _finished(lake).items():
        logs.name(kind, version)
    # Tables made from others come first: the versions that they name exist when the others are read.
    for name in reversed(in_order({*table_names(lake), *logs.named})):
        _check_log(lake, name, logs)
    recipe = logs.recipe()
    for name in () if recipe is None else recipe.steps:
        if schemas.is_tokens(name) and name not in logs.named:
            continue  # it was dropped, or is not made yet
        if name not in logs.tables and name not in logs.damage:
            url = storage.join(lake, name)
            if not any(problem.table == name for problem in logs.errors):
                logs.damage[name] = LogDamage(url=url, newest=-1)
    return logs


def _finished(lake: str) -> dict[str, int]:
    try:
        return finished_versions(lake)
    except TableError:  # reported among the small files
        return {}


def _check_log(lake: str, name: str, logs: Logs) -> None:
    url = storage.join(lake, name)
    table, error = None, None
    try:
        table = Table.open(url) if Table.exists(url) else None
    except TokenlakeError as raised:
        error = raised.what  # reported only if the reason is not
    check = LogCheck(
        url, newest=logs.named.get(name, -1), held=table.held_entries if table else None
    )
    if not check.has_files and name not in logs.named:
        return
    # Entries are folded to compare them with a checkpoint: those after the last one need not be.
    log = _Log(name, url, table, logs, last_checkpoint=max(check.checkpoints, default=-1))
    wrong: dict[str, str] = {}
    for entry in check.entries():
        if entry.problem is None:
            log.read(entry)
            if entry.version in check.checkpoints and not log.agrees(entry.version):
                files = check.checkpoints[entry.version]
                wrong |= dict.fromkeys(files, "disagrees with the log entries")
    damage = check.damage()
    damage = replace(damage, files={**wrong, **damage.files})
    if damage.has_any:
        logs.damage[name] = damage
    elif error is not None:
        logs.errors.append(Problem(name, None, error))
    elif table is not None:
        logs.tables[name] = table


class _Log:
    """One pass over the log entries of a table, oldest first.

    Memory: 24 bytes for each data file and transaction.
    """

    def __init__(
        self, name: str, url: str, table: Table | None, logs: Logs, *, last_checkpoint: int
    ) -> None:
        self._last_checkpoint = last_checkpoint
        self._url = url
        self._name = name
        self._table = table
        self._logs = logs
        self._last = -1
        self._is_known = table is not None  # whether all entries so far were folded
        self._files = KeyMap()  # digest of a path -> hash of its add action, or _REMOVED
        self._transactions = SetTransactions()

    def read(self, entry: CheckedEntry) -> None:
        """Read the record of the next entry, and apply its actions."""
        info = entry.info or log_segment.last_action(entry.content, "commitInfo") or {}
        for name, version in input_versions(info).items():
            self._logs.name(name, version)
        record = parse_record({**info, "version": entry.version}, self._url)
        if record is not None:
            self._logs.records[self._name] = record
            if self._name == "documents":
                self._logs.inputs.add(record)
        self._is_known &= entry.version == self._last + 1
        self._last = entry.version
        if lost_versions(entry) and self._table is not None:
            self._restart(entry.version)
        elif self._is_known and entry.version <= self._last_checkpoint:
            self._fold(entry.content)

    def agrees(self, version: int) -> bool:
        """Return whether the checkpoint of the version that was read last has what the entries have."""
        if not self._is_known or self._table is None:
            return True  # nothing to compare it with
        try:
            state = read_checkpoint(self._table.url, version)
            return self._is_same(state)
        except TokenlakeError:
            return True  # it cannot be read, which is found elsewhere

    def _restart(self, version: int) -> None:
        """Start from a checkpoint: entries before it are lost."""
        assert self._table is not None
        self._files, self._transactions = KeyMap(), SetTransactions()
        try:
            state = read_checkpoint(self._table.url, version)
            for batch in state.file_batches(self._table.schema):
                for key, value in _hashes(batch):
                    self._files.put(key, value)
            self._transactions = state.transactions()
        except TokenlakeError:
            return
        self._is_known = True

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

    def _is_same(self, state: Snapshot) -> bool:
        """Compare a checkpoint with the entries that it replaces."""
        assert self._table is not None
        paths = bytearray()
        for batch in state.file_batches(self._table.schema):
            for key, value in _hashes(batch):
                if self._files.get(key) != value:
                    return False
                paths += key
        num_files = len(np.unique(np.frombuffer(paths, "S16")))
        done, num_done = state.transactions(), 0
        for name, version in done.items():
            if self._transactions.get(name) != version:
                return False
            num_done += 1
        return num_files == sum(value != _REMOVED for _, value in self._files.items()) and (
            num_done == sum(1 for _ in self._transactions.items())
        )


def _hashes(files: pa.Table) -> Iterator[tuple[bytes, int]]:
    """Yield a digest of the path and a hash, not negative, of each row of a file list."""
    for row in iterate_rows(files):
        yield digest(row["path"]), int.from_bytes(digest(repr(row))[:8]) >> 1
