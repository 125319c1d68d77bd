"""Delta tables: open a version, list its data files, and commit the next version.

A commit succeeds only if there was no other commit since the table was opened. The loser opens the table
again and determines the remaining work. Unlike with delta-rs, a commit costs the same for small and large
tables.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import deltalake
import pyarrow as pa
import pyarrow.compute as pc

from etl import storage
from etl.delta import (
    checkpoint,
    commit_history,
    delta_rs,
    log_segment,
    protocol,
    snapshot,
)
from etl.delta.commit import (
    commit_actions,
    creation_actions,
    next_state,
    write_commit,
)
from etl.delta.log_segment import ranges
from etl.delta.protocol import permits_vectors
from etl.delta.set_transactions import SetTransactions
from etl.delta.snapshot import Snapshot
from etl.delta.statistics import column_types, file_table
from etl.delta.strikes import strike_rows
from etl.errors import ConflictError, StorageError, TableError, TokenlakeError, WriteError
from etl.parquet.data_file import DataFile
from etl.parquet.layout import Layout

if TYPE_CHECKING:
    import pyarrow.dataset as pds

_FILES_PER_BATCH = 4096  # as Python objects, about a kilobyte each
_NO_INFO: Mapping[str, Any] = MappingProxyType({})


class Table:
    """A Delta table at one version: its schema, its data files and its history; it can commit the next."""

    def __init__(
        self,
        head: log_segment.LogSegment,
        metadata: Mapping[str, Any],
        protocol: Mapping[str, Any],
        state: Snapshot | None = None,
        *,
        lost: tuple[int, ...] | None = None,
    ) -> None:
        """Take the parts of a version; ``state`` is its state, or the state of an earlier version.

        ``lost`` are versions that a damaged log lacks: the table is what its sound files make, and its next
        commit states all that it holds, in a checkpoint (see ``log_damage``).
        """
        self.url = head.url
        self.version = head.version
        self._head = head
        self._metadata = metadata
        self._protocol = protocol
        self._state = state
        self._lost = lost
        self.name: str | None = metadata.get("name")  # None if another program created the table
        self.is_remains = lost is not None  # so the next commit states what the table holds
        self.may_have_struck_rows = permits_vectors(protocol)  # some were struck once
        self.checkpoint_error: TokenlakeError | None = None
        held = {} if state is None else state.entries
        self.held_entries = {name: held[name] for name in head.entries if name in held}
        """The contents of some log entries that were read before, by file name."""

    @staticmethod
    def exists(url: str) -> bool:
        """Return whether there is a Delta table at the URL; raises StorageError if that is unknown."""
        return log_segment.has_log(url)

    @classmethod
    def open(cls, url: str, version: int | datetime | None = None) -> Self:
        """Open the newest version, the given version, or the newest version at a point in time (UTC).

        Raises TableError if the table or version does not exist, or if it requires a feature of readers
        that is not supported (column mapping); StorageError if the store does not respond.
        """
        url = storage.normalize(url)
        if isinstance(version, datetime):
            version = commit_history.version_at(url, version)
        return cls._of(snapshot.read_snapshot(log_segment.read_log_segment(url, version)))

    def newest(self) -> Self:
        """Return the table at its newest version; raise as ``open`` does.

        Log entries that this object has read are not read again.
        """
        head = log_segment.read_log_segment(self.url)
        if head.version == self.version:
            return self
        return self._of(snapshot.read_snapshot(head, base=self._state))

    @classmethod
    def find(cls, url: str) -> Self | None:
        """Open the newest version, or return None if the table does not exist; raise as ``open`` does."""
        head = log_segment.find_log_segment(storage.normalize(url))
        return None if head is None else cls._of(snapshot.read_snapshot(head))

    @classmethod
    def _of(cls, state: Snapshot) -> Self:
        return cls(state.head, state.metadata, state.protocol, state)

    @classmethod
    def create(
        cls,
        url: str,
        schema: pa.Schema,
        layout: Layout,
        *,
        transactions: Mapping[str, int] | None = None,
    ) -> Self:
        """Create an empty table (version 0), or open it if it exists.

        Raises StorageError if the URL is not writable, TableError if the schema has types that plain Delta
        readers do not know.
        """
        url = storage.normalize(url)
        if not cls.exists(url):
            name = url.rpartition("/")[2]
            actions = creation_actions(name, schema, layout, transactions=transactions or {})
            try:
                write_commit(log_segment.LogSegment(url, -1), actions)
            except ConflictError:
                pass
            except WriteError as error:
                what = f"the table cannot be created ({error.what})"
                raise StorageError(what, where=url, hint=error.hint) from error
        return cls.open(url)

    @property
    def schema(self) -> pa.Schema:
        """The table's Arrow schema."""
        return pa.schema(deltalake.Schema.from_json(self._metadata["schemaString"]).to_arrow())

    @property
    def _snapshot(self) -> Snapshot:
        if self._state is None or self._state.head.version != self.version:
            self._state = snapshot.read_snapshot(self._head, base=self._state)
        return self._state

    def data_files(
        self, columns: Sequence[str] | None = None, *, is_sorted: bool = True
    ) -> pa.Table:
        """Return the live data files, sorted by path or in the order of the log.

        The columns are ``path`` (relative to the table), ``size`` (int64, bytes), ``rows`` (int64, or null;
        ``physical_rows`` includes struck ones), ``vector`` (the deletion vector as in the log, or null),
        ``digest`` (of the physical rows, or null), ``partition.NAME``, and for columns with statistics
        ``min.NAME``, ``max.NAME`` and ``null_count.NAME``. ``columns`` selects some, always with ``path``.
        """
        files = self._snapshot.files(self.schema, columns)
        # sort_by() would import pandas.
        return files.take(pc.sort_indices(files["path"])) if is_sorted else files

    def files(self, *columns: str, by: Sequence[str] = ("path",)) -> Iterator[dict[str, Any]]:
        """Yield the live data files with ``path`` and the given columns of ``data_files``.

        The rows are sorted by the columns ``by``, which must be among these. If there are none, the order
        is the log's, and only some of the files are held at a time.
        """
        if not by:
            for batch in self.file_batches(columns):
                for start in range(0, batch.num_rows, _FILES_PER_BATCH):
                    yield from batch.slice(start, _FILES_PER_BATCH).to_pylist()
            return
        files = self.data_files(columns, is_sorted=False)
        order = pc.sort_indices(files, sort_keys=[(name, "ascending") for name in by])
        for start in range(0, len(order), _FILES_PER_BATCH):  # no second list of all files
            yield from files.take(order.slice(start, _FILES_PER_BATCH)).to_pylist()

    def file_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the live data files in batches, in the order of the log, with the columns of ``data_files``.

        A batch has the files of a part of the checkpoint, or those that were added since.
        """
        return self._snapshot.file_batches(self.schema, columns)

    @property
    def partition_columns(self) -> Sequence[str]:
        """The names of the columns that partition the table."""
        return list(self._metadata.get("partitionColumns") or ())

    def file_list(self, add: pa.StructArray) -> pa.Table:
        """Return add actions as rows with all columns of ``data_files``."""
        return file_table(add, types=column_types(self.schema, self._metadata), columns=None)

    def transactions(self) -> SetTransactions:
        """Return all application transactions up to this version."""
        return self._snapshot.transactions()

    def history(self) -> Iterator[dict[str, Any]]:
        """Yield ``commitInfo`` of each commit with its ``version`` and ``timestamp``, newest first.

        Entries that were read when the table was opened are not read again.
        """
        return commit_history.read_commit_infos(self._head, self.held_entries)

    def commits(self, *, after: int = -1) -> Iterator[commit_history.Commit]:
        """Yield the commits after a version and up to this one, oldest first."""
        return commit_history.read_commits(self.url, self.version, self.held_entries, after=after)

    def check_writable(self, *, removes: bool = False) -> None:
        """Raise TableError if the table requires a feature of writers that is not supported.

        ``removes`` says whether commits are to remove rows, which the table may forbid.
        """
        protocol.check_writable(self.url, self._protocol, self._metadata, removes=removes)

    def vectors(self, paths: Iterable[str]) -> dict[str, str | None]:
        """Return the deletion vectors of data files by path, as in ``data_files``."""
        vectors: dict[str, str | None] = dict.fromkeys(paths)
        if vectors and self.may_have_struck_rows:
            vectors |= {p: f.vector for p, f in self._snapshot.files_at(vectors).items()}
        return vectors

    def strike(self, positions: Mapping[str, Iterable[int]]) -> list[DataFile]:
        """Write deletion vectors, and return the data files with them: a commit removes and adds these files.

        ``positions`` has all rows that are struck from then on, by path. Raises as ``strike_rows`` does.
        """
        return strike_rows(self.url, self._snapshot.files_at(positions), positions)

    def commit(
        self,
        add: Sequence[DataFile],
        *,
        transactions: Mapping[str, int],
        commit_info: Mapping[str, Any] = _NO_INFO,
        remove: Iterable[str] = (),
        overwrite: tuple[pa.Schema, Layout] | None = None,
        data_change: bool = True,
    ) -> Self:
        """Add and remove data files atomically, and return the table at the new version.

        ``commit_info`` has the caller's own fields of ``commitInfo``, which ``history`` yields. ``remove``
        lists paths of live files; ``overwrite`` removes all of them and sets a new schema.
        ``data_change=False`` marks a commit that moves the same rows to other files. Whether the data files
        exist is not checked: see ``check_written``.

        Raises ConflictError if there was another commit since the table was opened (open it again, determine
        again what to commit), TableError as ``check_writable`` does, and StorageError if the log is not
        writable.
        """
        removed = self.vectors(remove)
        self.check_writable(removes=data_change and (overwrite is not None or bool(removed)))
        before = {"protocol": self._protocol, "metaData": self._metadata}
        info, state = dict(commit_info), next_state(before, add, overwrite)
        if overwrite is not None:
            info["operationParameters"] = {"mode": "Overwrite"}
            removed = {file["path"]: file["vector"] for file in self.files("path", "vector")}
        stated = {kind: action for kind, action in state.items() if action is not before[kind]}
        if self._lost is not None:
            info["lost"], stated = ranges(self._lost), state
        actions = commit_actions(
            add,
            remove=removed,
            transactions=transactions,
            commit_info=info,
            state=stated,
            data_change=data_change,
        )
        head = write_commit(self._head, actions)
        if self._lost is None:
            table = type(self)(head, state["metaData"], state["protocol"], self._state)
            return table.checkpoint_if_due()
        loaded = snapshot.read_snapshot(head, default=state)  # the earlier entries have no metadata
        return type(self)(head, state["metaData"], state["protocol"], loaded).checkpoint()

    def preview(self, add: Sequence[DataFile], *, remove: Iterable[str]) -> Self:
        """Return the table as a commit would leave it, only to be read: nothing is written."""
        removed = self.vectors(remove)
        actions = commit_actions(add, remove=removed, transactions={}, commit_info={}, state={})
        return self._of(self._snapshot.preview(actions))

    def checkpoint_if_due(self) -> Self:
        """Write a checkpoint if so many commits have none; return the table with it.

        A failure loses nothing, and the next commit tries again: the returned table has the error as
        ``checkpoint_error``.
        """
        if not checkpoint.is_due(self._head):
            return self
        try:
            return self.checkpoint()
        except (StorageError, TableError) as error:
            self.checkpoint_error = error
            return self

    def checkpoint(self) -> Self:
        """Write a checkpoint of this version, which makes the table faster to open.

        Commits write checkpoints automatically when they are due. Raises WriteError if the log is not
        writable, TableError as ``check_writable`` does.
        """
        self.check_writable()
        self._snapshot.write_checkpoint()
        head = log_segment.read_log_segment(self.url, self.version)
        head = replace(head, digest=self._head.digest)
        return type(self)(head, self._metadata, self._protocol)

    def dataset(self) -> "pds.Dataset":
        """Return the table's rows as a pyarrow dataset, which skips files by their statistics.

        Raises TableError for a table with struck rows, which delta-rs refuses: ``live_rows`` reads these.
        """
        return delta_rs.open_delta_rs(self.url, self.version).to_pyarrow_dataset()
