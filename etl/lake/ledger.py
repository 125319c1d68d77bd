"""Exactly-once commits: the Delta log records which units of work a table holds.

Each commit has one application transaction (``txn``) per unit of work, named by the unit's key, so that the
rows of a unit and the record that it is done become visible together. A key hashes the table's name and
generation and the identity of the input; within a generation, all rows are made by one recipe. The log has
these kinds of ``txn``:

- ``epoch``               increases before rows are dropped; within an epoch, tables only grow
- ``generation``          the generation of the table, which increases with each rebuild
- ``recipe``              the fingerprint of the recipe that produced the rows (its first 63 bits)
- ``file:<hash>``         in ``documents``, the identity of the input file with a name, its real URI or its
                          address (``etl.lake.input_log``); 0: its rows were dropped
- ``stamp:<hash>``        the fingerprint (63 bits) that the file with a name had when it was last compared,
                          if it is not the one in its identity
- ``content:<hash>``      the identity of an input file, by its size (10 digits), its sample (10 digits) and
                          the identity (12 digits)
- ``part:<hash><start>``  a unit of work that is a part of an input file: where the part ends, 0 for the end
                          of the file. The hash is the identity's (20 digits), the start has 12 digits
- ``rows:<key>``          the digest of the input rows of a unit of work
- ``<key>``               a unit of work that is done, and the arrival of its texts (1 or more);
                          negative: its rows were dropped, and it must be done again
- ``arrival``             in ``texts``, the arrival of the units that are committed next
- ``first_arrival``       in ``duplicates``, the arrival that all earlier ones count as
- ``change``              in ``documents``, how often its recipe was changed; in other tables, up to which of
                          these changes their rows follow
- ``rows_change``         in ``documents``, the last change that other tables differ by: not later ones, which
                          changed only columns
- ``live_files``          a hash of the set of live data files with their deletion vectors, which commits of
                          other programs do not update

A ledger is opened for one epoch. Whenever it reads the log again, it checks that the epoch is the same and
that only Tokenlake has changed data; a commit succeeds only on the state that was checked last. The rules,
and why they keep overlapping runs from harm, are in docs/explanation/exactly-once.md.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from etl import schemas
from etl.delta.commit import check_written
from etl.delta.set_transactions import SetTransactions
from etl.delta.table import Table
from etl.errors import MismatchError
from etl.lake.commit_attempts import repeat_commit
from etl.lake.copied_inputs import tell_whole_packs
from etl.lake.foreign_changes import (
    HASHES,
    ForeignChanges,
    find_foreign_changes,
    foreign_commits,
    hash_files,
    hash_live,
    live_files,
)
from etl.lake.input_log import InputLog, digest, int63
from etl.lake.ledger_entry import Drop, LedgerEntry, Rewrite
from etl.lake.open_table import find_table
from etl.lake.table_digest import describe_commit
from etl.parquet.data_file import DataFile
from etl.parquet.layout import Layout

Describe = Callable[[Sequence[LedgerEntry], int], schemas.Lineage | None]
"""A function that returns the lineage record of a commit from its entries and the generation.

A table that no recipe has filled has none.
"""


class Ledger:
    """The progress of one recipe in one table: which units of work are done, and commits of more.

    >>> Ledger("file:///nowhere/documents", fingerprint="f" * 64).table is None
    True
    """

    def __init__(self, url: str, *, fingerprint: str, table: Table | None = None) -> None:
        """Open the ledger of the table at a URL, at its newest version or at the version of an open table."""
        self.url = url
        self.fingerprint = fingerprint
        self.table: Table | None = None
        self.generation = 1
        self.lake_epoch = 0
        self._transactions = SetTransactions()
        table = find_table(url) if table is None else table
        if table is not None:
            self._read(table)

    def refresh(self) -> None:
        """Read the newest version of the table.

        Raises MismatchError if another process has started an epoch or rebuilt the table since the ledger
        was opened, or if another program has changed the data.
        """
        before = self.table
        if before is None:
            if (created := Table.find(self.url)) is not None:
                self._read(created)
            return
        table = before.newest()
        if table.version != before.version:
            if foreign := tuple(foreign_commits(table.commits(after=before.version))):
                raise ForeignChanges(commits=foreign).error(self.url)
            transactions = table.transactions()
            if _epoch(transactions) != (self.generation, self.lake_epoch):
                raise self.other_epoch()
            self.table, self._transactions = table, transactions

    def other_epoch(self) -> MismatchError:
        """Return the error for a commit of another epoch."""
        return MismatchError(
            "another process has dropped or rebuilt rows of this lake",
            where=self.url,
            hint="run again when it has ended: a run continues after the last commit",
        )

    def _read(self, table: Table) -> None:
        self.table, self._transactions = table, table.transactions()
        self.generation, self.lake_epoch = _epoch(self._transactions)
        if table.is_remains:
            self._transactions.update({"live_files": hash_live(table)})

    @property
    def is_other_recipe(self) -> bool:
        """Whether a recipe with another fingerprint produced the rows of the table."""
        return self.table is not None and self._transactions.get("recipe") != int63(
            self.fingerprint
        )

    @property
    def change(self) -> int:
        """The number of the last change of the recipe that the rows follow."""
        return self._transactions.get("change") or 0

    @property
    def rows_change(self) -> int:
        """Of ``documents``, the last change of the recipe that changed rows of other tables."""
        number = self._transactions.get("rows_change")
        return self.change if number is None else number

    def has_rows(self) -> bool:
        """Return whether the table exists and has data files."""
        return self.table is not None and next(self.table.files("path", by=()), None) is not None

    def key(self, *identity: object) -> str:
        """Return the key of a unit of work in this generation of the table (32 hexadecimal digits)."""
        return digest(self.generation, self.url.rpartition("/")[2], *identity)[:32]

    def is_done(self, key: str) -> bool:
        """Return whether a unit of work is done, according to the log."""
        return (self._transactions.get(key) or 0) > 0

    @property
    def inputs(self) -> InputLog:
        """What the log says of input files."""
        return InputLog(self._transactions, self.generation, self.key)

    def done(self) -> Iterator[str]:
        """Yield the keys of all units of work that are done, also in earlier generations."""
        return (key for key, number in self._transactions.of_kind("") if number > 0)

    def arrival_of(self, key: str) -> int | None:
        """Return the arrival of a unit of work that is done or was dropped; None if it never was done."""
        return abs(self._transactions.get(key) or 0) or None

    @property
    def open_arrival(self) -> int:
        """The arrival of the units that are committed next."""
        return self._transactions.get("arrival") or 1

    def arrivals(self) -> Iterator[int]:
        """Yield the arrival of each unit of work that is done; negative for units that were dropped."""
        return (number for _, number in self._transactions.of_kind(""))

    @property
    def first_arrival(self) -> int:
        """The arrival that all earlier ones count as."""
        return self._transactions.get("first_arrival") or 1

    def foreign_changes(self) -> ForeignChanges | None:
        """Return the changes of data by other programs; None if there are none.

        Cost: a hash of each live file, and a pass over the log if there are changes.
        """
        if self.table is None:
            return None
        if hash_live(self.table) == (self._transactions.get("live_files") or 0):
            return None
        return find_foreign_changes(self.table)

    def create(
        self, schema: pa.Schema, layout: Layout, *, lake_epoch: int = 0, change: int = 0
    ) -> None:
        """Create the table, in the epoch of its lake; another run may do so at the same time.

        ``change`` is the number of the last change of the lake's recipe. Raises MismatchError if another
        recipe does, or if that run is in another epoch.
        """
        state = {"generation": 1, "recipe": int63(self.fingerprint), "epoch": lake_epoch}
        state |= {"change": change} if change else {}
        table = Table.create(self.url, schema, layout, transactions=state)
        self._read(table)
        if self.is_other_recipe or self.lake_epoch != lake_epoch:  # another run was faster
            raise MismatchError("another run has just created this table", where=self.url)

    def commit(
        self, entries: Sequence[LedgerEntry], describe: Describe, *, retry: bool = True
    ) -> list[LedgerEntry]:
        """Commit entries in one step, and return those that this commit has completed.

        An entry that another run has committed concurrently is skipped, and its files remain orphans. So do
        the files of an entry with the rows of an input file that the table holds already: the entry becomes
        a name of that input file, or is left to the next plan if that was read in parts. A pack is skipped
        as a whole if this is so of any of its units. Raises
        MismatchError as ``refresh`` does, and if the table holds other content of an input file;
        StorageError if a data file is missing or has another size; and, without ``retry``, ConflictError if
        any other commit came first.
        """

        # The remaining work is determined again on each attempt, since the commit that came first
        # may have done a part.
        def commit_rest() -> list[LedgerEntry]:
            open_ = [entry for entry in entries if not _is_committed(self, entry)]
            todo = tell_whole_packs(open_, self.inputs)
            if not todo:
                return []
            transactions: dict[str, int] = {}
            for entry in todo:
                transactions |= entry.transactions(self.inputs, self.open_arrival)
            data_files = [file for entry in todo for file in entry.data_files]
            check_written(self.url, data_files)
            self._commit(data_files, transactions, describe(todo, self.generation))
            return todo

        if not retry:
            return commit_rest()
        return repeat_commit(commit_rest, refresh=self.refresh, url=self.url)

    def close_arrival(self, describe: Describe) -> None:
        """Commit that the units which are committed from now on have a later arrival.

        Raises ConflictError if any commit came since the ledger was opened or refreshed.
        """
        self._commit([], {"arrival": self.open_arrival + 1}, describe([], self.generation))

    def drop(self, drop: Drop, describe: Describe, *, lake_epoch: int) -> None:
        """Drop rows and start an epoch in one commit; ``lake_epoch`` is its number.

        Raises ConflictError if any commit came since the ledger was opened or refreshed: what to drop must be
        determined again.
        """
        # A new generation changes the keys of all units, so a rebuild need not undo the old ones.
        generation = self.generation + (drop.rebuild is not None)
        # A dropped unit keeps its arrival as a negative number: -3 is not done, but was the third to
        # arrive. When it is done again, its documents are compared in the same order, so that decisions
        # do not change.
        transactions = {key: -(self.arrival_of(key) or 0) for key in sorted(drop.keys)}
        for address in sorted(drop.files):
            transactions |= self.inputs.forget(address)
        transactions |= {
            entry.key: self.arrival_of(entry.key) or self.open_arrival for entry in drop.add
        }
        # All commits of the old epoch fail from here on, since they check these two numbers
        # (``refresh``).
        transactions |= {"epoch": lake_epoch, "generation": generation}
        # A log that has lost entries may have lost the recipe, too.
        if self.table is not None and self.table.is_remains and not drop.is_void:
            transactions["recipe"] = int63(self.fingerprint)
        # ``_commit`` would continue the sum that foreign commits have made wrong: sum up the files
        # instead that the table has after this commit.
        if drop.is_undo and self.table is not None:
            kept = {f.path: f.vector for f in live_files(self.table) if f.path not in drop.paths}
            kept |= {file.path: file.vector for file in drop.data_files}
            transactions["live_files"] = hash_files(kept.items())
        # 0 is not the fingerprint of any recipe, and the sum of no files.
        if drop.is_void:
            transactions |= {"recipe": 0, "live_files": 0}
        if drop.rebuild is not None:
            transactions |= {"recipe": int63(self.fingerprint), "live_files": 0}
        # Arrivals only grow: a number that was used once never means another arrival.
        if drop.open_arrival > self.open_arrival:
            transactions["arrival"] = drop.open_arrival
        if drop.change is not None:
            transactions["change"] = drop.change
        if drop.first_arrival is not None:
            transactions["first_arrival"] = drop.first_arrival
        self._commit(
            drop.data_files,
            transactions,
            describe([*drop.add, LedgerEntry("", drop.rest)], generation),
            remove=sorted(drop.paths),
            overwrite=drop.rebuild,
        )
        self.generation, self.lake_epoch = generation, lake_epoch

    def strike(
        self,
        positions: Mapping[str, Iterable[int]],
        describe: Describe,
        *,
        add: Sequence[LedgerEntry] = (),
        follows: "Ledger | None" = None,
        waits: bool = False,
    ) -> None:
        """Commit which rows of some data files are struck from now on, and more data files, in one step.

        ``positions`` has all struck rows of a file by path. With ``follows``, the ledger of ``documents``,
        the table has then followed its last change, or ``waits`` to follow. Raises ConflictError if a commit
        came in between: what to strike must be determined again. The record names the versions read.
        """
        assert self.table is not None
        added = [file for entry in add for file in entry.data_files]
        check_written(self.url, added)
        transactions = {entry.key: entry.arrival or self.open_arrival for entry in add}
        if follows is not None:
            change = self.change if waits else follows.change
            transactions |= _state(self, follows.lake_epoch, change)
        files = [*self.table.strike(positions), *added]
        self._commit(files, transactions, describe(add, self.generation), remove=[*positions])
        self.lake_epoch = transactions.get("epoch", self.lake_epoch)

    def replace(
        self,
        remove: Collection[str],
        add: Sequence[DataFile],
        describe: Describe,
        *,
        lake_epoch: int,
        keeps_rows: bool,
        overwrite: tuple[pa.Schema, Layout] | None = None,
    ) -> None:
        """Commit that the rows of data files are replaced as another recipe demands, and start an epoch.

        ``keeps_rows`` says that other tables remain as they are. With ``overwrite``, all data files are
        replaced, and the table has another schema. Raises
        ConflictError if any commit came since the ledger was opened or refreshed.
        """
        check_written(self.url, add)
        transactions = _state(self, lake_epoch, self.change + 1)
        transactions["rows_change"] = self.rows_change if keeps_rows else self.change + 1
        if overwrite is not None:
            transactions["live_files"] = hash_files((file.path, file.vector) for file in add)
        record = describe([LedgerEntry("", add)], self.generation)
        self._commit(add, transactions, record, remove=sorted(remove), overwrite=overwrite)
        self.lake_epoch = lake_epoch

    def rewrite(self, rewrites: Sequence[Rewrite], describe: Describe) -> list[Rewrite]:
        """Commit rewrites in one step, and return those that were committed.

        A rewrite of a file that is no longer live, or of which other rows are struck, is skipped, since
        another commit came first; its new files remain orphans. Raises as ``commit`` does.
        """

        def commit_rest() -> list[Rewrite]:
            assert self.table is not None
            live = live_files(self.table)
            todo = [rewrite for rewrite in rewrites if live.issuperset(rewrite.remove)]
            if not todo:
                return []
            data_files = [file for rewrite in todo for file in rewrite.data_files]
            check_written(self.url, data_files)
            self._commit(
                data_files,
                {},
                describe([LedgerEntry("", data_files)], self.generation),
                remove=[file.path for rewrite in todo for file in rewrite.remove],
                data_change=False,
            )
            return todo

        return repeat_commit(commit_rest, refresh=self.refresh, url=self.url)

    def _commit(
        self,
        add: Sequence[DataFile],
        transactions: Mapping[str, int],
        record: schemas.Lineage | None,
        *,
        remove: Sequence[str] = (),
        overwrite: tuple[pa.Schema, Layout] | None = None,
        data_change: bool = True,
    ) -> None:
        """Commit on the state that was read last; raise ConflictError if the table has a newer version."""
        assert self.table is not None
        if "live_files" not in transactions:
            live = self._transactions.get("live_files") or 0
            # A sum of hashes follows each commit in time proportional to the commit, and shows later
            # whether other programs have added or removed files (``foreign_changes``).
            live += hash_files((file.path, file.vector) for file in add)
            live -= hash_files(self.table.vectors(remove).items())
            transactions = {**transactions, "live_files": live % HASHES}
        self.table = self.table.commit(
            add,
            remove=remove,
            transactions=transactions,
            commit_info=describe_commit(self.table, record, add, None if overwrite else remove),
            overwrite=overwrite,
            data_change=data_change,
        )
        self._transactions.update(transactions)


def _is_committed(ledger: Ledger, entry: LedgerEntry) -> bool:
    split = entry.split
    if split is None or not entry.is_name:
        return ledger.is_done(entry.key)
    inputs = ledger.inputs
    return inputs.identity_of(split.real_uri) == split.identity and inputs.is_current(split)


def _state(ledger: Ledger, lake_epoch: int, change: int) -> dict[str, int]:
    """Return the transactions of a table that is from now on the result of the ledger's recipe."""
    return {"epoch": lake_epoch, "change": change, "recipe": int63(ledger.fingerprint)}


def _epoch(transactions: SetTransactions) -> tuple[int, int]:
    """Return the generation and the epoch of a table."""
    return transactions.get("generation") or 1, transactions.get("epoch") or 0


def key_of(path: str) -> str:
    """Return the key of the unit of work that wrote a data file: the beginning of the file name.

    >>> key_of("verdict=kept/" + "a" * 32 + "-0123456789ab-0.parquet") == "a" * 32
    True
    """
    return path.rsplit("/", 1)[-1][:32]
