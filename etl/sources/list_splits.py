"""Splits of a source: list its files, cut the large ones, and number their records.

Files that are not in a Delta table are independent: a file that is no longer listed keeps its rows in a lake.
The data files of a Delta table belong to one version, and the lake's rows must be the rows of that version:
``list_source`` compares what the lake holds with the table and its log.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

from etl import storage
from etl.delta.moved_rows import Move
from etl.errors import SourceError, StorageError, nearest_names
from etl.sources.formats import FORMATS, delta
from etl.sources.formats.delta import ReadBefore
from etl.sources.limit_and_share import choose_part
from etl.sources.named_files import as_split, find_named_files
from etl.sources.owners import Owners
from etl.sources.parts import KnownPart, is_complete, part_of
from etl.sources.source_settings import Source
from etl.sources.split import Format, Split

_CONCURRENT_FOOTERS = 16
_FILES_PER_CHUNK = 1024
_MAX_SPLITS = 1_000_000  # about; chosen here: each takes 2 ms of the driver and its scheduler
# About, for the members at which files are cut; chosen here: a minute at 50 ms a request.
_MAX_SEARCHES = 20_000


@dataclass(frozen=True)
class SourceListing:
    """The files of a source, each as one split, and what became of files of Delta tables read before.

    ``removed`` has, by URI, what happened to each file whose rows are no longer in a table: "were removed
    from ...". ``moves`` has, by the id of a table, moves of rows to be kept for the next listing.
    ``problems`` are the errors of files and folders that cannot be listed: names that are not UTF-8, pipes,
    links that lead nowhere.
    """

    files: Sequence[Split]
    removed: Mapping[str, str]
    moves: Mapping[str, Sequence[Move]]
    problems: Sequence[StorageError] = ()


ReadParts = Callable[[Collection[int]], Mapping[int, Sequence[KnownPart]]]
"""A function that returns the known parts of files, given by identity; files never read have none."""


def _never_read(_identities: Collection[int]) -> Mapping[int, Sequence[KnownPart]]:
    return {}


def list_splits(source: Source) -> Iterator[Split]:
    """Return all splits of a source that no file was read from; see ``list_source`` and ``cut_files``.

    Without a lake, problems cannot be recorded: the first one is raised, too.
    """
    listing = list_source(source)
    if listing.problems:
        raise listing.problems[0]
    return cut_files(listing.files, source)


def list_source(
    source: Source, before: ReadBefore | None = None, *, lake: str | None = None
) -> SourceListing:
    """Return the files of a source, in the order of its paths, then by URI. No file is opened.

    A file that is reached by several names is listed once. Of a Delta table, these are its data files, or
    older files with the same rows if files read before were compacted since; files that were read completely
    may be left out. The files of lakes are left out, also of ``lake``, which is written and may not
    exist yet.

    Raises SourceError if a path matches no file, if the format of a file is unknown, if a Delta table cannot
    be read, or if a file is one of a Delta table; RecipeError if the lake is inside a Delta table;
    StorageError if a URL cannot be listed, or has nothing but problems.
    """
    owners = Owners(lake)
    owners.check_lake()
    if not source.path:
        problems: list[StorageError] = []
        return SourceListing(find_named_files(source, owners, problems), {}, {}, problems)
    files: dict[str, Split] = {}  # by real URI
    removed: dict[str, str] = {}
    moves: dict[str, Sequence[Move]] = {}
    problems = []
    tables = 0
    for path in source.paths:
        if source.format == "delta" or (source.format is None and _is_table(path)):
            owners.check_table(path)
            table, tables = delta.list_table(path, source, before), tables + 1
            listed: Iterable[Split] = table.files
            removed |= table.removed
            moves |= table.moves
        else:
            listed = _list_files(path, source, owners, problems)
        for split in listed:
            files.setdefault(split.real_uri, split)
    if source.version is not None and not tables:
        raise SourceError(
            "source.version is set, but the source is not a Delta table",
            where=source.paths[0],
            hint="remove source.version, or set source.path to the URL of a Delta table",
        )
    uris = {split.uri for split in files.values()} if removed else set()
    removed = {uri: what for uri, what in removed.items() if uri not in uris}
    return SourceListing([*files.values()], removed, moves, problems)


def cut_files(
    files: Sequence[Split], source: Source, parts: ReadParts = _never_read
) -> Iterator[Split]:
    """Yield the splits of files in order: their parts that were read before, and the rest cut to size.

    ``parts`` returns the known parts of files by identity; files that were read completely are not opened.
    The footers of files that may be cut are read as the splits are consumed.
    """
    work = sum(file.work for file in files)
    source, packed = (_coarser(source, work // most) for most in (_MAX_SPLITS, _MAX_SEARCHES))
    splits = _cut_files(iter(files), source, packed, parts)
    if source.limit is not None or source.share is not None:
        splits = choose_part(splits, source)
    return splits


def list_files(paths: Sequence[str], format_: Format | None = None) -> list[Split]:
    """Return the files that paths name, each as one split, without opening them.

    Unlike ``list_splits``, it needs no names of columns, and leaves out what cannot be listed. Raises the
    errors of ``list_source``.
    """
    files: dict[str, Split] = {}
    owners = Owners(lake=None)
    for path in paths:
        if format_ == "delta" or (format_ is None and _is_table(path)):
            listed: Iterable[Split] = delta.list_live_files(path)
        else:
            listed = _list_files(path, Source(path=path, format=format_), owners, [])
        files |= {split.uri: split for split in listed}
    return [*files.values()]


def number_splits(splits: Iterable[Split], counts: Iterable[int | None]) -> Iterator[Split]:
    """Yield the splits with ``first_row`` set, given the number of records in each.

    ``splits`` holds all pieces of each file in order, and ``counts`` one number per split (see
    ``count_records``). A count of None means that the piece could not be counted: the first rows of the
    pieces after it remain unknown, and reading those pieces raises SourceError.
    """
    uri, row = "", None
    for split, count in zip(splits, counts, strict=True):
        if split.uri != uri:
            assert split.start == 0, "the first piece of the file is missing"
            uri, row = split.uri, 0
        yield replace(split, first_row=row) if split.first_row is None else split
        row = None if row is None or count is None else row + count


def _coarser(source: Source, split_bytes: int) -> Source:
    """Return a source with splits of at least this size: 32 TB of text exceed the default at a million."""
    return source.model_copy(update={"split_bytes": max(source.split_bytes, split_bytes)})


def _cut_files(
    files: Iterator[Split], source: Source, packed: Source, parts: ReadParts
) -> Iterator[Split]:
    """Yield the pieces of files; files that were read completely cost no request.

    ``packed`` is the source with the split size of compressed files, of which each cut costs a request.
    """

    def cut(whole: Split, known: Sequence[KnownPart]) -> list[Split]:
        if is_complete(known):
            return [replace(part_of(whole, k.start, k.stop), first_row=None) for k in known]
        return FORMATS[whole.format].cut(
            whole, source if whole.compression is None else packed, known
        )

    with ThreadPoolExecutor(_CONCURRENT_FOOTERS) as pool:
        while chunk := list(islice(files, _FILES_PER_CHUNK)):
            known = parts({whole.identity for whole in chunk})
            read = (known.get(whole.identity, ()) for whole in chunk)
            for pieces in pool.map(cut, chunk, read):
                yield from pieces


def _list_files(
    path: str, source: Source, owners: Owners, problems: list[StorageError]
) -> Iterator[Split]:
    """Yield the files of a path, each as one split; add the errors of those that cannot be listed."""
    before = len(problems)
    listing = storage.list_pattern(path, problems.append)
    if not listing.files and len(problems) > before:
        raise problems[before]
    if not listing.files:
        raise SourceError("no files found", where=path, hint=_hint_for_missing(path))
    for file in owners.input_files(path, listing):
        yield as_split(file, source, listing)


def _is_table(path: str) -> bool:
    url = storage.normalize(path)
    log = storage.join(url, "_delta_log")
    return not storage.is_glob(url) and storage.is_folder(log)


def _hint_for_missing(path: str) -> str:
    """Return a hint with similar names near a local path; a bucket may be too long to list."""
    url = storage.normalize(path)
    if not storage.is_local(url):
        return f"{storage.access_hint(url)}; the credentials must allow listing it"
    missing = storage.local_path(url)
    folder = missing.parent
    while not folder.is_dir():
        missing, folder = folder, folder.parent
    if missing.is_dir():
        return "the folder has no files, except those ignored because their names start with _ or ."
    names = nearest_names(missing.name, sorted(entry.name for entry in folder.iterdir()))
    return f"in {folder}: {names or 'no files'}"
