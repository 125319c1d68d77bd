"""Reader for Delta tables: the data files of one version, each read as Parquet.

A table is a folder and is recognized by its ``_delta_log``, so the format has no extension.

Data files are immutable, so that the table's id and the path identify the content of a file. When files that
were read before are no longer in the table, the log says why. If their rows were moved to other files
(compaction), the new files are not read: the lake keeps the addresses of the old ones, and an old file that
was not read yet is read although it is no longer live. Otherwise the rows were removed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import unquote

from etl import storage
from etl.delta.delta_rs import ExternalTable, open_external
from etl.delta.moved_rows import FileHistory, Move, trace_moves, undo_moves
from etl.errors import SourceError, TableError, nearest_names
from etl.sources.formats import parquet
from etl.sources.source_settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = ()
COMPRESSIBLE: bool = False

cut = parquet.cut
count_records = parquet.count_records
read = parquet.read

_PARTITION = "partition."
_THREADS = 16  # I/O-bound

_REMOVED = "were removed from the Delta table, or rows of them were"
_OTHER_TABLE = "belong to an earlier Delta table at the same URL"
_UNKNOWN = "are no longer in the Delta table, whose log entries of that time were deleted"
_MERGED = "were merged in the Delta table with rows not read yet, whose files no longer exist"


@dataclass(frozen=True)
class ReadBefore:
    """What a lake holds of a source.

    ``rows_of`` returns the rows held of each known data file of a Delta table, given its URL and id, by the
    URI that the file has there. It is 0 for files whose rows must be read again, under the same name as long
    as the files exist. ``others_below`` returns the URIs of other files below a URL. ``moves`` returns the
    moves that earlier listings of a table relied on, by its id.
    """

    rows_of: Callable[[str, str], Mapping[str, int]]
    others_below: Callable[[str, str], Collection[str]]
    moves: Callable[[str], Sequence[Move]]


@dataclass(frozen=True)
class TableListing:
    """The files of a Delta table to read, some of them before, and those whose rows it lacks by now.

    ``removed`` has, by URI, what happened to each of these files. ``moves`` are new moves, by the table's id,
    to be kept for the next listing; empty if ``ReadBefore`` has them.
    """

    files: Iterable[Split]
    removed: Mapping[str, str] = field(default_factory=dict)
    moves: Mapping[str, Sequence[Move]] = field(default_factory=dict)


def list_table(url: str, source: Source, before: ReadBefore | None) -> TableListing:
    """Return the data files of the table, at the recipe's version or the newest, each as one split.

    Raises SourceError if the table, the version or a column does not exist, or if the rows cannot be read
    from the data files alone (deletion vectors, column mapping); StorageError if the log cannot be read.
    """
    try:
        table = open_external(url, source.version)
        _check_columns(table, source)
        live = {split.uri: split for split in _splits(table)}
        if before is None:
            return TableListing(live.values())
        same = before.rows_of(table.url, table.id)
        removed = dict.fromkeys(before.others_below(table.url, table.id), _OTHER_TABLE)
        if same.keys() <= live.keys():
            return TableListing(live.values(), removed)
        known = before.moves(table.id)
        history = trace_moves(table.url, table.version, live.keys(), same.keys(), known)
        listing = _OlderFiles(table, live, same, history).listing()
    except TableError as error:
        raise SourceError(error.what, where=error.where, hint=error.hint) from error
    moves = {} if listing.moves == {table.id: list(known)} else listing.moves
    return TableListing(listing.files, {**removed, **listing.removed}, moves)


def list_live_files(url: str) -> list[Split]:
    """Return the data files of a table's newest version, whatever its columns; raises as ``list_table``."""
    try:
        return [*_splits(open_external(url, None))]
    except TableError as error:
        raise SourceError(error.what, where=error.where, hint=error.hint) from error


class _OlderFiles:
    """Files with the same rows as the live files of a table, among them files that were read before."""

    def __init__(
        self,
        table: ExternalTable,
        live: Mapping[str, Split],
        rows: Mapping[str, int],
        history: FileHistory,
    ) -> None:
        """``rows`` are those read before, by file."""
        self._table, self._live, self._rows, self._history = table, live, rows, history
        self._unread: dict[tuple[Move, frozenset[str]], list[Split] | None] = {}

    def listing(self) -> TableListing:
        """Undo the moves of rows read before, except if rows moved with them cannot be read any more."""
        moves, lost = self._history.moves, set[Move]()
        while True:
            moves = [move for move in moves if move not in lost]
            files, undone = undo_moves(self._live.keys(), self._rows.keys(), moves)
            targets = {uri: rows for move in undone for uri, rows in move.targets.items()}
            older = {move: self._unread_origins(move, files, targets) for move in undone}
            lost = {move for move, splits in older.items() if splits is None}
            if not lost:
                break
        splits = [self._live[uri] for uri in files & self._live.keys()]
        splits += [split for each in older.values() for split in each or ()]
        was_lost = len(moves) < len(self._history.moves)
        gone = {uri for uri, rows in self._rows.items() if rows} - files
        return TableListing(
            sorted(splits, key=lambda split: split.uri),
            {uri: self._fate(uri, was_merged=was_lost) for uri in gone},
            {self._table.id: undone},
        )

    def _unread_origins(
        self, move: Move, files: AbstractSet[str], targets: Mapping[str, int | None]
    ) -> list[Split] | None:
        """Return the origins of a move that must still be read; None if one of them cannot be read.

        ``targets`` has the rows of those origins that are themselves represented by older files.
        """
        origins = frozenset(move.origins & files)
        counts = [*move.targets.values(), *(targets[uri] for uri in move.origins - files)]
        if None not in counts:
            moved = sum(rows or 0 for rows in move.targets.values())
            moved -= sum(targets[uri] or 0 for uri in move.origins - files)
            if moved == sum(self._rows.get(uri, 0) for uri in origins):
                return []  # the usual case costs no request
        if (move, origins) not in self._unread:
            self._unread[move, origins] = self._list_origins(move, origins)
        return self._unread[move, origins]

    def _list_origins(self, move: Move, origins: AbstractSet[str]) -> list[Split] | None:
        try:
            before = open_external(self._table.url, move.version - 1)
        except TableError:  # log entries were deleted
            return None
        rows = before.files["rows"].to_pylist()
        unread = [
            split
            for split, count in zip(_splits(before), rows, strict=True)
            if split.uri in origins and (count is None or count != self._rows.get(split.uri, 0))
        ]
        with ThreadPoolExecutor(_THREADS) as pool:
            sizes = list(pool.map(storage.file_size, (split.uri for split in unread)))
        exist = all(split.size == size for split, size in zip(unread, sizes, strict=True))
        return unread if exist else None

    def _fate(self, uri: str, *, was_merged: bool) -> str:
        """Return what happened to a file whose rows are no longer represented."""
        if uri in self._history.deleted:
            return _REMOVED
        if was_merged:
            return _MERGED
        is_explained = any(uri in move.origins for move in self._history.moves)
        return _REMOVED if is_explained or self._history.is_complete else _UNKNOWN


def name_in_table(table_id: str, path: str) -> str:
    """Return the name by which a data file is known, wherever its table is."""
    return f"delta:{table_id}/{path}"


def _splits(table: ExternalTable) -> Iterator[Split]:
    keys = [name for name in table.files.column_names if name.startswith(_PARTITION)]
    for file in table.files.to_pylist():
        yield Split(
            uri=storage.join(table.url, unquote(file["path"])),
            size=file["size"],
            fingerprint=table.id,  # the content is that of the path in this table
            real=name_in_table(table.id, unquote(file["path"])),
            format="delta",
            bytes=file["size"],
            partition=tuple((key.removeprefix(_PARTITION), file[key]) for key in keys),
            version=table.version,
        )


def _check_columns(table: ExternalTable, source: Source) -> None:
    names, wanted = table.schema.names, [*source.columns.known.values()]
    wanted += [] if source.metadata == "all" else source.metadata
    for name in wanted:
        if name not in names:
            hint = nearest_names(name, names)
            if name == "text" and {"reason", "content_hash", "verdict"} <= {*names}:
                lake = table.url.rpartition("/")[0]
                hint = f"this is the table documents of a lake: its texts are in {lake}/texts"
            raise SourceError(f"the table has no column {name!r}", where=table.url, hint=hint)
