"""The Delta table: open a version, list its data files, and commit.

A commit is a compare-and-swap on the head of the log: the next entry is created only if none is there, so
that it succeeds only if no other commit came since the table was opened. Whoever loses opens the table again
and asks again what is left to do; ``etl.ledger`` builds exactly-once on that. It costs the same however large
the table is, which delta-rs's does not.
"""

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from deltalake.transaction import CommitProperties, Transaction

from etl import foreign, log, snapshot, storage
from etl.errors import ConflictError, StorageError, TableError, said
from etl.fragment import Fragment, Layout
from etl.snapshot import Snapshot
from etl.transactions import Transactions

if TYPE_CHECKING:
    import pyarrow.dataset as pds

_WRITER_VERSION = 2  # of the Delta protocol: append, overwrite, and no features besides
# A checkpoint is written after so many entries (as delta-rs does), or bytes of them: they are read whenever
# the table is opened, and held meanwhile.
_ENTRIES = 100
_ENTRY_BYTES = 16 << 20
_FILES_AT_ONCE = 4096  # as Python's objects, a kilobyte each
_CONFIGURATION: Mapping[str, str] = {
    # The log is the lineage: keep it for years. Vacuum is the owner's decision, never a default.
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}


class Table:
    """A Delta table at one version: its schema, its data files, its history, and the next commit."""

    def __init__(
        self,
        head: log.Head,
        metadata: Mapping[str, Any],
        protocol: Mapping[str, Any],
        snapshot: Snapshot | None = None,
    ) -> None:
        self.url = head.url
        self.version = head.version
        self._head = head
        self._metadata = metadata
        self._protocol = protocol
        self._known = snapshot

    @staticmethod
    def exists(url: str) -> bool:
        """Whether a Delta table stands at the URL; raises StorageError if nobody can say."""
        try:
            names = log.names(url)
        except FileNotFoundError:
            return False
        except StorageError as error:
            hint = "check the URL, and the credentials in the environment"
            raise StorageError(
                f"cannot be reached ({error.what})", where=storage.normalize(url), hint=hint
            ) from error
        return any(log.number(name) >= 0 or name.endswith(".parquet") for name in names)

    @classmethod
    def open(cls, url: str, version: int | datetime | None = None) -> Self:
        """Open the newest version, one by its number, or the one of a point in time (UTC).

        Raises TableError if there is no table, or no such version, or if another program has made it one
        that the data files alone do not tell (deletion vectors, column mapping); StorageError if the store
        does not answer.
        """
        url = storage.normalize(url)
        if isinstance(version, datetime):
            version = _version_of(url, version)
        found = snapshot.read(log.head(url, version))
        properties = found.metadata.get("configuration") or {}
        foreign.check_plain(url, properties, found.protocol.get("readerFeatures") or ())
        return cls(found.head, found.metadata, found.protocol, found)

    @classmethod
    def create(
        cls,
        url: str,
        schema: pa.Schema,
        layout: Layout,
        *,
        transactions: Mapping[str, int] | None = None,
    ) -> Self:
        """Create an empty table (version 0); one that another writer just made is opened instead.

        Raises StorageError if the place is not writable.
        """
        url = storage.normalize(url)
        made = CommitProperties(
            app_transactions=[Transaction(n, v) for n, v in (transactions or {}).items()]
        )
        try:
            if storage.is_local(url):  # delta-rs wants the folder; make it with a clear error
                storage.local_path(url).mkdir(parents=True, exist_ok=True)
            deltalake.DeltaTable.create(
                foreign.place(url),
                schema,
                mode="ignore",
                partition_by=list(layout.partition_by),
                configuration=_configuration(schema, layout),
                storage_options=storage.delta_options(url),
                commit_properties=made,
            )
        except (DeltaError, OSError) as error:
            if cls.exists(url):  # another writer made it at the same moment
                return cls.open(url)
            raise StorageError(
                f"the table cannot be created ({said(error)})",
                where=url,
                hint="check the permissions",
            ) from error
        return cls.open(url)

    @property
    def schema(self) -> pa.Schema:
        """The table's Arrow schema."""
        return pa.schema(deltalake.Schema.from_json(self._metadata["schemaString"]).to_arrow())

    @property
    def _snapshot(self) -> Snapshot:
        if self._known is None:
            self._known = snapshot.read(self._head)
        return self._known

    def fragments(
        self, columns: Sequence[str] | None = None, *, is_sorted: bool = True
    ) -> pa.Table:
        """The live data files, sorted by path, or as the log has them.

        Columns ``path`` (string, inside the table), ``size`` (int64, bytes), ``rows`` (int64, null if not
        known), ``partition.NAME`` (string), and of columns with statistics ``min.NAME``, ``max.NAME``,
        ``null_count.NAME``; or ``path`` and those of the others that are wanted.
        """
        found = self._snapshot.files(self.schema, columns)
        # sort_by() would import pandas, which a training process has no need of.
        return found.take(pc.sort_indices(found["path"])) if is_sorted else found

    def files(self, *columns: str, by: Sequence[str] = ("path",)) -> Iterator[dict[str, Any]]:
        """The live data files, one by one: ``path`` and some of the other columns of ``fragments``.

        They are sorted by columns that are among these.
        """
        found = self.fragments(columns, is_sorted=False)
        order = pc.sort_indices(found, sort_keys=[(name, "ascending") for name in by])
        for start in range(0, len(order), _FILES_AT_ONCE):  # no second list of all of them
            yield from found.take(order.slice(start, _FILES_AT_ONCE)).to_pylist()

    def transactions(self) -> Transactions:
        """All application transactions up to this version: which splits are done, and the state."""
        return self._snapshot.transactions()

    def history(self) -> Iterator[dict[str, Any]]:
        """One dictionary per version, newest first: version, timestamp, operation, ``tokenlake``."""
        return log.history(self.url, self.version)

    def record(self) -> dict[str, Any] | None:
        """The newest lineage record of a recipe's commit, as data; None if there is none."""
        found = (entry.get("tokenlake") or {} for entry in self.history())
        return next((dict(record) for record in found if "canonical" in record), None)

    @property
    def is_vacuumed(self) -> bool:
        """Whether a vacuum has deleted data files of this version, which is then an old one."""
        return any(first <= self.version <= last for first, last in log.vacuumed(self.url))

    def check_files(self) -> None:
        """Raise TableError if a vacuum has deleted data files of this version."""
        if self.is_vacuumed:
            raise TableError(
                f"data files of version {self.version} were deleted by a vacuum",
                where=self.url,
                hint="take a newer version; `etl release` keeps those that are to stay",
            )

    def entries(self) -> Iterator[log.LogEntry]:
        """What the commits up to this version did, oldest first."""
        return log.entries(self.url, self.version)

    def commit(
        self,
        add: Sequence[Fragment],
        *,
        transactions: Mapping[str, int],
        lineage: Mapping[str, Any],
        remove: Iterable[str] = (),
        overwrite: tuple[pa.Schema, Layout] | None = None,
        data_change: bool = True,
    ) -> Self:
        """Make fragments visible, and others invisible, in one step; return the table after it.

        ``remove`` are paths of live files; ``overwrite`` removes all and sets a new schema; without
        ``data_change`` the same rows stand in other files. Raises
        ConflictError if another commit came since the table was opened (open it again and ask again),
        StorageError if a fragment is not there as it was written or the log cannot be written.
        """
        self._check_writable()
        _check_written(self.url, add)
        now = int(time.time() * 1000)
        metadata = self._metadata
        mode = "Append" if overwrite is None else "Overwrite"
        info = {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": {"mode": mode},
            "engineInfo": "tokenlake",
            "tokenlake": dict(lineage),
            "commit": uuid.uuid4().hex,  # no two entries are alike, see storage.create
        }
        if overwrite is not None:
            metadata = {**metadata, **_metadata(*overwrite)}
            remove = (file["path"] for file in self.files("path"))
        gone = {"deletionTimestamp": now, "dataChange": data_change}
        new = {"modificationTime": now, "dataChange": data_change}
        actions: Iterable[dict[str, Any]] = chain(
            [{"commitInfo": info}],
            [{"metaData": metadata}] if overwrite is not None else [],
            ({"txn": {"appId": n, "version": v}} for n, v in transactions.items()),
            ({"remove": {"path": path, **gone}} for path in remove),
            ({"add": {**_added(fragment), **new}} for fragment in add),
        )
        entry = "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()
        uri = storage.join(log.folder(self.url), log.entry_name(self.version + 1))
        if not storage.create(uri, entry):
            raise ConflictError("another commit came first", where=self.url)
        head = self._head.after(len(entry))
        table = type(self)(head, metadata, self._protocol)
        if len(head.entries) >= _ENTRIES or head.size >= _ENTRY_BYTES:
            with suppress(StorageError, TableError):  # the commit is done; the next one tries again
                table = table.checkpoint()
        return table

    def checkpoint(self) -> Self:
        """Write all that stands at this version into one file, from which it is opened quickly.

        Commits do it themselves, every so often. Raises WriteError if the log is not writable, TableError if
        another program asks more of a writer than is done here.
        """
        self._check_writable()
        self._snapshot.write_checkpoint()
        return type(self)(log.head(self.url, self.version), self._metadata, self._protocol)

    def _check_writable(self) -> None:
        """Raise TableError if another program asks more of a writer than is done here."""
        needed = int(self._protocol.get("minWriterVersion", 0))
        if needed > _WRITER_VERSION:
            raise TableError(
                f"it asks for Delta's writer version {needed}, not {_WRITER_VERSION}, with which it was made",
                where=self.url,
                hint="another program has set features of it; `etl history` tells which version was before",
            )

    def dataset(self) -> "pds.Dataset":
        """The table's rows as a pyarrow dataset, which skips files by the log's statistics."""
        return foreign.opened(self.url, self.version).to_pyarrow_dataset()


def _version_of(url: str, time: datetime) -> int:
    """The newest version that had been committed at a point in time."""
    moment = time.timestamp() * 1000
    for entry in log.history(url, log.head(url).version):
        if entry["timestamp"] <= moment:
            return int(entry["version"])
    raise TableError(f"has no version of {time}", where=url, hint="see `etl history`")


def _metadata(schema: pa.Schema, layout: Layout) -> dict[str, Any]:
    """What of a table's metadata another schema changes."""
    return {
        "schemaString": deltalake.Schema.from_arrow(schema).to_json(),
        "partitionColumns": list(layout.partition_by),
        "configuration": _configuration(schema, layout),
    }


def _configuration(schema: pa.Schema, layout: Layout) -> dict[str, str]:
    statistics = ",".join(name for name in layout.statistics if name in schema.names)
    return {**_CONFIGURATION, "delta.dataSkippingStatsColumns": statistics}


def _added(fragment: Fragment) -> dict[str, Any]:
    return {
        "path": fragment.path,
        "partitionValues": dict(fragment.partition),
        "size": fragment.size,
        # An empty text is no JSON: delta-rs then misses others', too.
        "stats": fragment.statistics or None,
    }


def _check_written(url: str, fragments: Sequence[Fragment]) -> None:
    """Check that the files are there, as they were written."""
    with ThreadPoolExecutor(16) as pool:
        sizes = list(pool.map(lambda f: storage.size(storage.join(url, f.path)), fragments))
    for fragment, found in zip(fragments, sizes, strict=True):
        if found != fragment.size:
            raise StorageError(
                f"a fragment has {found} bytes where {fragment.size} were written",
                where=storage.join(url, fragment.path),
                hint="run again: its split is not done and will be written anew",
            )
