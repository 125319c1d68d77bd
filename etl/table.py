"""The Delta table: open a version, list its data files, and commit.

A commit is a compare-and-swap on the head of the log: it succeeds only if no other commit came since the
table was opened. Whoever loses opens the table again and asks again what is left to do; ``etl.ledger``
builds exactly-once on that. This is the only module that knows deltalake.
"""

import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from etl import log, storage
from etl.errors import ConflictError, StorageError, TableError
from etl.fragment import Fragment, Layout
from etl.transactions import Transactions

if TYPE_CHECKING:
    import pyarrow.dataset as pds

_CONFIGURATION: Mapping[str, str | None] = {
    # The log is the lineage: keep it for years. Vacuum is the owner's decision, never a default.
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}


class Table:
    """A Delta table at one version: its schema, its data files, its history, and the next commit."""

    def __init__(self, url: str, delta: deltalake.DeltaTable) -> None:
        self.url = url
        self._handle: deltalake.DeltaTable | None = delta
        self.version = int(delta.version())

    @staticmethod
    def exists(url: str) -> bool:
        """Whether a Delta table stands at the URL; raises StorageError if nobody can say."""
        url = storage.normalize(url)
        try:
            return bool(deltalake.DeltaTable.is_deltatable(_place(url), storage.delta_options(url)))
        except (DeltaError, OSError) as error:
            hint = "check the URL, and the credentials in the environment"
            raise StorageError(
                f"cannot be reached ({_said(error)})", where=url, hint=hint
            ) from error

    @classmethod
    def open(cls, url: str, version: int | datetime | None = None) -> Self:
        """Open the newest version, one by its number, or the one of a point in time (UTC).

        Raises TableError if there is no table, or no such version, or if another program has made it one
        that the data files alone do not tell (deletion vectors, column mapping).
        """
        url = storage.normalize(url)
        return cls(url, _opened(url, version))

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
        statistics = ",".join(name for name in layout.statistics if name in schema.names)
        try:
            if storage.is_local(url):  # delta-rs wants the folder; make it with a clear error
                storage.local_path(url).mkdir(parents=True, exist_ok=True)
            deltalake.DeltaTable.create(
                _place(url),
                schema,
                mode="ignore",
                partition_by=list(layout.partition_by),
                configuration={**_CONFIGURATION, "delta.dataSkippingStatsColumns": statistics},
                storage_options=storage.delta_options(url),
                commit_properties=_properties(None, transactions or {}),
            )
        except (DeltaError, OSError) as error:
            if cls.exists(url):  # another writer made it at the same moment
                return cls.open(url)
            raise StorageError(
                f"the table cannot be created ({_said(error)})",
                where=url,
                hint="check the permissions",
            ) from error
        return cls.open(url)

    @property
    def _delta(self) -> deltalake.DeltaTable:
        """The table as delta-rs holds it; opened again where a commit has taken it to the next version."""
        if self._handle is None:
            self._handle = _opened(self.url, self.version)
        return self._handle

    @property
    def schema(self) -> pa.Schema:
        """The table's Arrow schema."""
        return pa.schema(self._delta.schema().to_arrow())

    def fragments(self, *, is_sorted: bool = True) -> pa.Table:
        """The live data files, sorted by path, or as delta-rs has them.

        Columns ``path`` (string, inside the table), ``size`` (int64, bytes), ``rows`` (int64), and where
        known ``partition.NAME``, ``min.NAME``, ``max.NAME``.
        """
        # pa.table() and sort_by() would import pandas, which a training process has no need of.
        found = self._delta.get_add_actions(flatten=True)
        actions = pa.RecordBatchReader.from_stream(found).read_all()
        names = {"size_bytes": "size", "num_records": "rows"}
        actions = actions.rename_columns([names.get(n, n) for n in actions.column_names])
        return actions.take(pc.sort_indices(actions["path"])) if is_sorted else actions

    def transactions(self) -> Transactions:
        """All application transactions up to this version: which splits are done, and the state."""
        return log.transactions(self.url, self.version)

    def history(self) -> list[dict[str, Any]]:
        """One dictionary per version, newest first: version, timestamp, operation, ``tokenlake``."""
        # Asked at an older version, delta-rs 1.6 lists the whole log and misnumbers it.
        delta = deltalake.DeltaTable(
            _place(self.url), storage_options=storage.delta_options(self.url)
        )
        entries = delta.history()
        return [entry for entry in entries if entry["version"] <= self.version]

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
        _check_written(self.url, add)
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size, f.partition, now, data_change, f.statistics) for f in add
        ]
        actions += [RemoveAction(path, data_change, now) for path in remove]
        schema = self.schema if overwrite is None else overwrite[0]
        name = uuid.uuid4().hex
        try:
            self._delta.create_write_transaction(
                actions,
                "append" if overwrite is None else "overwrite",
                schema,
                partition_by=self._delta.metadata().partition_columns,
                commit_properties=_properties(lineage, transactions, commit=name),
            )
        except (DeltaError, OSError) as error:
            if type(self).open(self.url).version == self.version:
                what = f"the commit failed ({_said(error)})"
                raise StorageError(what, where=self.url) from error
            if not self._next_is(name):  # it is where the answer was lost
                raise ConflictError("another commit came first", where=self.url) from error
        return self._next()

    def _next(self) -> Self:
        """The version after this one, and no later one: of that nobody has asked what it holds."""
        delta, self._handle = self._delta, None
        try:
            delta.load_as_version(self.version + 1)  # what is known is not read again
        except (DeltaError, OSError):
            return type(self).open(self.url, self.version + 1)  # or say why not
        return type(self)(self.url, delta)

    def _next_is(self, commit: str) -> bool:
        """Whether the version after this one is the commit of that name."""
        entry = storage.join(self.url, "_delta_log", f"{self.version + 1:020}.json")
        return commit.encode() in (storage.read(entry) or b"")

    def dataset(self) -> "pds.Dataset":
        """The table's rows as a pyarrow dataset, which skips files by the log's statistics."""
        return self._delta.to_pyarrow_dataset()


def _opened(url: str, version: int | datetime | None) -> deltalake.DeltaTable:
    """A table as delta-rs holds it; raises as ``Table.open``."""
    try:
        delta = deltalake.DeltaTable(_place(url), storage_options=storage.delta_options(url))
        if version is not None:
            delta.load_as_version(version)
    except TableNotFoundError as error:
        raise TableError(
            "there is no Delta table", where=url, hint="`etl run` makes it; check the URL"
        ) from error
    except (DeltaError, OSError) as error:
        what = "cannot be opened" if version is None else f"has no version {version}"
        raise TableError(f"{what} ({_said(error)})", where=url, hint="see `etl history`") from error
    _check_plain(url, delta)
    return delta


def _check_plain(url: str, delta: deltalake.DeltaTable) -> None:
    """Refuse what is read wrongly from the data files alone."""
    mode = delta.metadata().configuration.get("delta.columnMapping.mode", "none")
    found = {"deletionVectors"} & set(delta.protocol().reader_features or ())
    found |= set() if mode == "none" else {"columnMapping"}
    if found:
        raise TableError(
            f"its data files cannot be read by themselves ({', '.join(sorted(found))})",
            where=url,
            hint="write the table anew without deletion vectors and column mapping",
        )


def _place(url: str) -> str:
    """A table's URL as delta-rs takes it: of a local one the path, in which # and ? are letters."""
    if not storage.is_local(url):
        return url
    if re.search("%[0-9A-Fa-f]{2}", url):
        raise StorageError(
            "a local lake may not have an escape like %20 in its path", where=url, hint="rename it"
        )
    return str(storage.local_path(url))


def _said(error: BaseException) -> str:
    """What delta-rs says, in one line and without its colours."""
    return " ".join(re.sub(r"\x1b\[\d*m|↳", "", str(error)).split())


def _properties(
    lineage: Mapping[str, Any] | None, transactions: Mapping[str, int], *, commit: str = ""
) -> CommitProperties:
    return CommitProperties(
        custom_metadata=None if lineage is None else {"tokenlake": dict(lineage), "commit": commit},
        max_commit_retries=0,  # a commit on any other head than the one that was looked at fails
        app_transactions=[Transaction(name, version) for name, version in transactions.items()],
    )


def _check_written(url: str, fragments: Sequence[Fragment]) -> None:
    """Delta-rs commits whatever it is told: check that the files are there, as they were written."""
    with ThreadPoolExecutor(16) as pool:
        sizes = list(pool.map(lambda f: storage.size(storage.join(url, f.path)), fragments))
    for fragment, found in zip(fragments, sizes, strict=True):
        if found != fragment.size:
            raise StorageError(
                f"a fragment has {found} bytes where {fragment.size} were written",
                where=storage.join(url, fragment.path),
                hint="run again: its split is not done and will be written anew",
            )
