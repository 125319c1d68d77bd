"""Exactly-once commits: the Delta log records which units of work a table holds.

Each commit has one application transaction (``txn``) per unit of work, named by the unit's key, so that the
rows of a unit and the record that it is done become visible together. A key hashes everything that
determines the rows: the table's generation, the recipe's fingerprint, and the identity of the input. The
log has these kinds of ``txn``:

- ``generation``          the generation of the table, which increases with each rebuild
- ``recipe``              the fingerprint of the recipe that produced the rows (its first 63 bits)
- ``file:<hash>``         the fingerprint of an input file (its first 63 bits), by generation and URI
- ``edition:<hash>``      how often the rows of that file were replaced
- ``<key>``               a unit of work that is done; 0: its rows were dropped, it must be done again
- ``merged:<key>``        the data file that holds a unit's rows after compaction: the first 63 bits of
                          the file's own key
"""

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from etl.delta.data_file import DataFile
from etl.delta.layout import Layout
from etl.delta.set_transactions import SetTransactions
from etl.delta.table import Table
from etl.errors import ConflictError, MismatchError
from etl.lake.commit_info import find_record, read_record, to_commit_info
from etl.lake.open_table import open_table

_MAX_ATTEMPTS = 50  # each failure means that another writer's commit succeeded


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A finished unit of work: its key, its new data files, and the data files that they replace."""

    key: str
    data_files: Sequence[DataFile] = ()
    remove: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # input URI -> fingerprint


@dataclass(frozen=True)
class RewrittenFile:
    """New data files that take over rows of other files, with the units of work of these rows if known."""

    key: str
    data_files: Sequence[DataFile]
    units: Sequence[str] = ()


@dataclass(frozen=True)
class Rewrite:
    """A replacement of data files by others with the same rows."""

    remove: Sequence[str]
    parts: Sequence[RewrittenFile]


Describe = Callable[[Sequence[LedgerEntry], int], Mapping[str, Any]]
"""A function that returns the lineage record of a commit from its entries and the generation."""


class Ledger:
    """The progress of one recipe in one table: which units of work are done, and commits of more.

    >>> Ledger("file:///nowhere/documents", fingerprint="f" * 64).table is None
    True
    """

    def __init__(self, url: str, *, fingerprint: str, table: Table | None = None) -> None:
        """Open the ledger of the table at a URL at its newest version, or at that of an open table."""
        self.url = url
        self.fingerprint = fingerprint
        self.table: Table | None = None
        self.generation = 1
        self._transactions = SetTransactions()
        if table is None and Table.exists(url):
            table = open_table(url)
        if table is not None:
            self._read(table)

    def refresh(self) -> None:
        """Read the newest version of the table."""
        if self.table is not None or Table.exists(self.url):
            self._read(Table.open(self.url))

    def _read(self, table: Table) -> None:
        self.table = table
        self._transactions = table.transactions()
        self.generation = self._transactions.get("generation") or 1

    @property
    def is_other_recipe(self) -> bool:
        """Whether a recipe with another fingerprint produced the rows of the table."""
        return self.table is not None and self._transactions.get("recipe") != _int63(
            self.fingerprint
        )

    def key(self, *identity: object) -> str:
        """Return the key of a unit of work in this generation of the table (32 hexadecimal digits)."""
        return _digest(self.generation, self.fingerprint, *identity)[:32]

    def is_done(self, key: str) -> bool:
        """Return whether a unit of work is done, according to the log."""
        return (self._transactions.get(key) or 0) > 0

    def external_files(self) -> list[str]:
        """Return the live data files of another program, which no unit of work in the log has written."""
        if self.table is None:
            return []
        paths = (file["path"] for file in self.table.files("path"))
        return [path for path in paths if not self.is_done(key_of(path))]

    def units_of(self, paths: Iterable[str]) -> Iterator[list[str]]:
        """Yield, for each data file, the keys of the units of work whose rows it holds."""
        merged: dict[int, list[str]] = {}
        for key, number in self._transactions.of_kind("merged"):
            merged.setdefault(number, []).append(key)
        for key in map(key_of, paths):
            yield merged.get(_int63(key), [key]) if merged else [key]

    @property
    def has_compacted_files(self) -> bool:
        """Whether a data file may hold rows of several units of work, which ``optimize`` merged."""
        return any(True for _ in self._transactions.of_kind("merged"))

    def has_changed(self, uri: str, fingerprint: str) -> bool:
        """Return whether the table holds rows of different content of this input file."""
        committed = self._transactions.get(self._name("file", uri))
        return committed is not None and committed != _int63(_digest(fingerprint))

    def edition(self, uri: str, fingerprint: str) -> int:
        """Return how often a file's rows were replaced before this content: 0 for its first content.

        It is part of the keys, since a file may return to earlier content.
        """
        count = self._transactions.get(self._name("edition", uri)) or 0
        return count + self.has_changed(uri, fingerprint)

    def create_or_rebuild(
        self, schema: pa.Schema, layout: Layout, lineage: Callable[[int], Mapping[str, Any]]
    ) -> None:
        """Create the table, or start a new generation as a new, empty version.

        Older versions stay readable. Raises MismatchError if another recipe creates the table at the
        same time.
        """
        state = {"generation": 1, "recipe": _int63(self.fingerprint)}
        if self.table is None:
            self.table = Table.create(self.url, schema, layout, transactions=state)
            self.refresh()
            if self.is_other_recipe:  # another run was faster
                raise MismatchError("another recipe has just created this table", where=self.url)
            return
        generation = self.generation + 1
        self.table.commit(
            [],
            transactions={**state, "generation": generation},
            commit_info=to_commit_info(lineage(generation)),
            overwrite=(schema, layout),
        )
        self.refresh()

    def commit(
        self, entries: Sequence[LedgerEntry], describe: Describe, *, retry: bool = True
    ) -> list[LedgerEntry]:
        """Commit entries in one step, and return those that this commit has completed.

        An entry that another run has committed concurrently is skipped, and its files remain orphans.
        Raises MismatchError if the table was rebuilt concurrently, StorageError as ``Table.commit`` does,
        and, without ``retry``, ConflictError if any other commit came first.
        """
        for attempt in range(_MAX_ATTEMPTS):
            todo = [entry for entry in entries if not self.is_done(entry.key)]
            if not todo:
                return []
            if attempt:
                self._check_contents(todo)
            try:
                self._commit_on_head(todo, describe)
                return todo
            except ConflictError:
                if not retry:
                    raise
                self._back_off(attempt)
        raise self._too_many_conflicts()

    def rewrite(
        self, rewrites: Sequence[Rewrite], describe: Callable[[int], Mapping[str, Any]]
    ) -> list[Rewrite]:
        """Commit rewrites in one step, and return those that were committed.

        A rewrite of a file that is no longer live is skipped, since another commit came first; its new
        files remain orphans. ``describe`` gets the number of new files. Raises as ``commit`` does.
        """
        for attempt in range(_MAX_ATTEMPTS):
            assert self.table is not None
            live = {file["path"] for file in self.table.files("path")}
            todo = [rewrite for rewrite in rewrites if live.issuperset(rewrite.remove)]
            if not todo:
                return []
            parts = [part for rewrite in todo for part in rewrite.parts]
            data_files = [file for part in parts for file in part.data_files]
            transactions = {part.key: 1 for part in parts}
            for part in parts:
                transactions |= {f"merged:{unit}": _int63(part.key) for unit in part.units}
            try:
                self.table = self.table.commit(
                    data_files,
                    remove=[path for rewrite in todo for path in rewrite.remove],
                    transactions=transactions,
                    commit_info=to_commit_info(describe(len(data_files))),
                    data_change=False,
                )
            except ConflictError:
                self._back_off(attempt)
            else:
                self._transactions.update(transactions)
                return todo
        raise self._too_many_conflicts()

    def _too_many_conflicts(self) -> ConflictError:
        return ConflictError(
            f"{_MAX_ATTEMPTS} commits in a row conflicted with those of other writers",
            where=self.url,
            hint="run again when fewer jobs write to this table",
        )

    def _back_off(self, attempt: int) -> None:
        """Wait longer after each failed attempt, then read the newest version of the table."""
        generation = self.generation
        time.sleep(min(0.01 * 2**attempt, 1.0))
        self.refresh()
        if self.generation != generation or self.is_other_recipe:
            raise MismatchError("the table was rebuilt by another run", where=self.url)

    def _commit_on_head(self, entries: Sequence[LedgerEntry], describe: Describe) -> None:
        assert self.table is not None
        transactions = {entry.key: 1 for entry in entries}
        for entry in entries:
            for uri, fingerprint in entry.files.items():
                transactions[self._name("edition", uri)] = self.edition(uri, fingerprint)
                transactions[self._name("file", uri)] = _int63(_digest(fingerprint))
        remove = {path for entry in entries for path in entry.remove}
        if remove:
            # Look up the live files: another run may have committed since the entries were created.
            files = {uri for entry in entries if entry.remove for uri in entry.files}
            live = {
                file["path"]: file["min.source"] for file in self.table.files("path", "min.source")
            }
            self._check_removed(entries, live)
            remove = {path for path, source in live.items() if path in remove or source in files}
        self.table = self.table.commit(
            [file for entry in entries for file in entry.data_files],
            remove=sorted(remove),
            transactions=transactions,
            commit_info=to_commit_info(describe(entries, self.generation)),
        )
        self._transactions.update(transactions)

    def _check_removed(self, entries: Sequence[LedgerEntry], live: Collection[str]) -> None:
        """Refuse to replace rows whose current files are unknown: they would be in the table twice."""
        for entry in entries:
            if not entry.files and not set(entry.remove).issubset(live):
                raise MismatchError(
                    "data files that this run replaces were removed concurrently, perhaps by `etl optimize`",
                    where=self.url,
                    hint="run again: it continues after the last commit",
                )

    def _check_contents(self, entries: Sequence[LedgerEntry]) -> None:
        for entry in entries:
            for uri, fingerprint in entry.files.items():
                if not entry.remove and self.has_changed(uri, fingerprint):
                    raise MismatchError(
                        "another run has committed different content of this input file",
                        where=uri,
                        hint="run again when the file no longer changes",
                    )

    def _name(self, kind: str, uri: str) -> str:
        return f"{kind}:{_digest(self.generation, uri)[:32]}"


def find_ledger(table: Table) -> Ledger | None:
    """Return the ledger of a table for the recipe that made it; None if no recipe did."""
    record = find_record(table)
    if record is None:
        return None
    return Ledger(table.url, fingerprint=record.fingerprint, table=table)


def open_ledger(table: Table) -> Ledger:
    """Return the ledger of a table for the recipe that made it; raise TableError if no recipe did."""
    return Ledger(table.url, fingerprint=read_record(table).fingerprint, table=table)


def _digest(*parts: object) -> str:
    return hashlib.sha256("\x00".join(str(part) for part in parts).encode()).hexdigest()


def _int63(hexdigest: str) -> int:
    return int(hexdigest[:16], 16) >> 1


def key_of(path: str) -> str:
    """Return the key of the unit of work that wrote a data file: the beginning of the file name.

    >>> key_of("verdict=kept/" + "a" * 32 + "-0123456789ab-0.parquet") == "a" * 32
    True
    """
    return path.rsplit("/", 1)[-1][:32]
