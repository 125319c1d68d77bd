"""The state of a table at a version: its checkpoint, and the actions of the commits after it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.json

from etl import storage
from etl.delta import checkpoint, log_segment, protocol
from etl.delta.actions import TXN, as_actions, at_paths, parse_actions, reconcile
from etl.delta.added_files import data_file
from etl.delta.entry_checksum import check_entries, digest, seal
from etl.delta.set_transactions import SetTransactions
from etl.delta.statistics import column_types, file_table
from etl.errors import DamagedLogError, TableError, error_line
from etl.parquet.data_file import DataFile

_PARSED_BYTES = 1 << 22  # of log entries, parsed at a time
_TRANSACTION_ROWS = 1 << 19  # read at a time


@dataclass(frozen=True)
class Snapshot:
    """The state of a table at one version."""

    head: log_segment.LogSegment
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]
    # Reconciled add, remove and txn actions since the checkpoint: the last one of each path or appId.
    changes: Mapping[str, pa.StructArray]
    entries: Mapping[str, bytes]  # contents of the log entries since the checkpoint, by file name
    has_lost: bool = False  # whether the log has lost entries

    def transactions(self) -> SetTransactions:
        """Return all application transactions."""
        transactions = SetTransactions()
        old = checkpoint.read_actions(
            _checkpoint_files(self.head), "txn", TXN, rows=_TRANSACTION_ROWS
        )
        for txn in chain(old, [self.changes["txn"]]):
            transactions.extend(txn.field("appId"), txn.field("version"))
        return transactions

    def files(self, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the live data files with the columns of ``Table.data_files``, in the order of the log.

        Raises TableError if their statistics cannot be parsed.
        """
        return pa.concat_tables(self.file_batches(schema, columns))

    def file_batches(
        self, schema: pa.Schema, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the live data files in batches, as ``files`` returns them."""
        to_table = partial(file_table, types=column_types(schema, self.metadata), columns=columns)
        try:
            yield from map(to_table, self._adds())
        except ValueError as error:  # Arrow's errors are ValueErrors
            what = f"the statistics of data files in the log are damaged ({error_line(error)})"
            raise TableError(what, where=self.head.url) from error

    def files_at(self, paths: Collection[str]) -> dict[str, DataFile]:
        """Return the live data files at some paths, by path."""
        found = (add for batch in self._adds() for add in at_paths(batch, paths))
        return {add["path"]: data_file(add) for add in found}

    def preview(self, actions: Iterable[Mapping[str, Any]]) -> "Snapshot":
        """Return the state after the actions of a commit that is not made."""
        name, version = self.head.url.rpartition("/")[2], self.head.version + 1
        entry = seal(actions, table=name, version=version, previous="")
        entries = {**self.entries, log_segment.commit_file_name(version): entry}
        head = self.head.after(len(entry), digest(entry))
        return read_snapshot(head, base=replace(self, entries=entries))

    def has_vectors(self) -> bool:
        """Return whether a live data file has a deletion vector."""
        vectors = (batch.field("deletionVector") for batch in self._adds())
        return any(each.null_count < len(each) for each in vectors)

    def _adds(self) -> Iterator[pa.StructArray]:
        """Yield the add actions of the live data files, in the order of the log."""
        files = _checkpoint_files(self.head)
        yield from checkpoint.unchanged_actions(files, "add", self.changes, by_path=self.has_lost)
        yield self.changes["add"]

    def write_checkpoint(self) -> None:
        """Write a checkpoint of this version; raises WriteError if the log is not writable."""
        checkpoint.write_checkpoint(
            log_segment.log_folder(self.head.url),
            self.head.version,
            before=_checkpoint_files(self.head),
            state={"protocol": self.protocol, "metaData": self.metadata},
            changes=self.changes,
            by_path=self.has_lost,
        )
        _release_memory()


def read_checkpoint(url: str, version: int) -> Snapshot:
    """Return the state of a table at the last checkpoint of a version, read from that checkpoint."""
    head = log_segment.read_log_segment(url, version)
    last = head.version - len(head.entries)
    return read_snapshot(replace(head, version=last, entries=(), size=0))


def read_snapshot(
    head: log_segment.LogSegment,
    *,
    default: Mapping[str, Mapping[str, Any]] | None = None,
    base: Snapshot | None = None,
) -> Snapshot:
    """Read the actions since the last checkpoint, and the table's metadata and protocol.

    ``default`` has the ``metaData`` and ``protocol`` of a log that has lost entries, perhaps these. ``base``
    is the state of an earlier version: if there was no checkpoint since, only the entries after it are read.
    Raises DamagedLogError if the log is damaged, TableError if the table requires a feature of readers that
    is not supported, StorageError if the log cannot be read.
    """
    held = {} if base is None else dict(base.entries)
    # After a newer checkpoint, the entries since the base may be deleted: read from the checkpoint on.
    if base is not None and base.head.checkpoint != head.checkpoint:
        base = None
    start = 0 if base is None else len(base.head.entries)
    if base is None:
        single = _read_checkpoint(head, default or {})
    else:
        single = {"metaData": base.metadata, "protocol": base.protocol}
    changes = _Changes(head.url, () if base is None else as_actions(base.changes))
    entries = {} if base is None else dict(base.entries)
    names = head.entries[max(start - 1, 0) :]  # with the one before, whose digest the next one has
    versions = map(log_segment.version_of_commit_file, names)
    contents = log_segment.read_commit_files(head.url, names, held)
    for entry in check_entries(zip(versions, contents, strict=True)):
        name, content = log_segment.commit_file_name(entry.version), entry.content
        if entry.problem is not None:
            raise log_segment.damaged_entry(head.url, name, entry.problem)
        # It was read for its digest only: its actions are in the base.
        if base is not None and entry.version <= base.head.version:
            continue
        if entry.version == head.version and head.digest is None:
            head = replace(head, digest=digest(content))
        with log_segment.raise_if_damaged(head.url, name):
            # The newest ``metaData`` and ``protocol`` count.
            single |= {k: log_segment.last_action(content, k) or old for k, old in single.items()}
            entries[name] = content
        changes.append(name, content, single["metaData"].get("partitionColumns") or ())
    for kind, action in single.items():
        if not action:
            raise DamagedLogError(f"the log has no {kind}", where=head.url)
    protocol.check_readable(head.url, single["protocol"], single["metaData"])
    has_lost = default is not None
    reconciled = changes.reconcile(by_path=has_lost)
    del changes
    _release_memory()
    return Snapshot(head, single["metaData"], single["protocol"], reconciled, entries, has_lost)


def _read_checkpoint(
    head: log_segment.LogSegment, default: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return metadata and protocol as of the checkpoint."""
    parts = _checkpoint_files(head)
    return {
        kind: checkpoint.read_single_action(parts, kind) or dict(default.get(kind, {}))
        for kind in ("metaData", "protocol")
    }


class _Changes:
    """The actions of successive log entries. Many are parsed at once: a call of the parser takes 1 ms."""

    def __init__(self, url: str, parsed: Iterable[pa.Table]) -> None:
        self._url = url
        self._parsed = list(parsed)
        self._unparsed: dict[str, bytes] = {}
        self._partition: Sequence[str] = ()

    def append(self, name: str, content: bytes, partition: Sequence[str]) -> None:
        """Add the actions of an entry; raise DamagedLogError if one before it cannot be parsed."""
        size = len(content) + sum(map(len, self._unparsed.values()))
        if partition != self._partition or size > _PARSED_BYTES:
            self._parse()
        self._unparsed[name], self._partition = content, partition

    def reconcile(self, *, by_path: bool) -> Mapping[str, pa.StructArray]:
        """Return the reconciled actions of all entries; raise as ``append`` does."""
        self._parse()
        return reconcile(self._parsed, by_path=by_path)

    def _parse(self) -> None:
        entries, self._unparsed = self._unparsed, {}
        if not entries:
            return
        try:
            self._parsed.append(parse_actions(b"\n".join(entries.values()), self._partition))
        except ValueError:  # Arrow's errors are ValueErrors
            for name, content in entries.items():
                with log_segment.raise_if_damaged(self._url, name):
                    self._parsed.append(parse_actions(content, self._partition))


def _checkpoint_files(head: log_segment.LogSegment) -> list[str]:
    return [storage.join(log_segment.log_folder(head.url), name) for name in head.checkpoint]


def _release_memory() -> None:
    """Return unused memory to the operating system: parsing needs three times the memory it keeps."""
    pa.default_memory_pool().release_unused()
