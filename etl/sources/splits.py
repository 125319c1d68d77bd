"""From a source to its splits: list the files, cut the large ones, number their records."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

from etl import storage
from etl.errors import SourceError
from etl.sources import arrow, delta, parquet
from etl.sources.source import Source, Split, format_of, nearest

_FOOTERS_AT_ONCE = 16
_FILES_AT_ONCE = 1024


def list_splits(source: Source) -> Iterator[Split]:
    """All splits of a source, in the order of its paths, then by URI and place in the file.

    Every path is listed before the first split comes; footers of files larger than ``split_bytes``
    are read as the splits are taken. Raises SourceError if a path matches no file, if a format cannot
    be told from the ending, or if a Delta table cannot be read; StorageError if a place cannot be
    listed.
    """
    files: dict[str, Split] = {}  # by URI: a file that two paths name is read once
    tables = 0
    for path in source.paths:
        if source.format == "delta" or (source.format is None and _is_table(path)):
            found, tables = delta.whole_files(path, source), tables + 1
        else:
            found = _whole_files(path, source)
        files |= {split.uri: split for split in found}
    if source.version is not None and not tables:
        raise SourceError(
            "a version is asked of what is no Delta table",
            where=source.paths[0],
            hint="leave out source.version, or give the URL of the table",
        )
    return _cut(iter(files.values()), source.split_bytes)


def number(splits: Iterable[Split], counts: Iterable[int | None]) -> Iterator[Split]:
    """The splits with ``first_row`` filled in, from the records counted in each.

    ``splits`` holds all pieces of each of its files in their order, and ``counts`` a number for each
    (see ``count_records``). None says that a piece could not be counted: where the pieces after it
    begin stays unknown, and reading them is refused.
    """
    uri, row = "", None
    for split, count in zip(splits, counts, strict=True):
        row = row if split.uri == uri else 0
        assert row != 0 or split.start == 0, "the first piece of the file is missing"
        uri = split.uri
        yield replace(split, first_row=row) if split.first_row is None else split
        row = None if row is None or count is None else row + count


def _cut(files: Iterator[Split], split_bytes: int) -> Iterator[Split]:
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        while some := list(islice(files, _FILES_AT_ONCE)):
            for pieces in pool.map(lambda whole: _pieces(whole, split_bytes), some):
                yield from pieces


def _pieces(whole: Split, split_bytes: int) -> list[Split]:
    match whole.format:
        case "parquet" | "delta":
            return parquet.cut(whole, split_bytes)
        case "arrow":
            return arrow.cut(whole, split_bytes)
        case "jsonl" if whole.compression is None and whole.size > split_bytes:
            return [
                replace(
                    whole,
                    start=start,
                    stop=min(start + split_bytes, whole.size),
                    first_row=0 if start == 0 else None,
                    bytes=min(split_bytes, whole.size - start),
                )
                for start in range(0, whole.size, split_bytes)
            ]
    return [whole]


def _whole_files(path: str, source: Source) -> Iterator[Split]:
    found = storage.find(path)
    if not found:
        raise SourceError("no file is there", where=path, hint=_what_is_there(path))
    for file in found:
        kind = source.format or format_of(file.uri)
        if kind is None:
            raise SourceError(
                "the format cannot be told from the ending",
                where=file.uri,
                hint="give source.format, or a glob of the data files, such as **/*.parquet",
            )
        yield Split(
            uri=file.uri,
            size=file.size,
            fingerprint=file.fingerprint,
            format=kind,
            bytes=file.size,
        )


def _is_table(path: str) -> bool:
    url = storage.normalize(path)
    log = storage.join(url, "_delta_log")
    return not storage.is_glob(url) and bool(storage.filesystem(url).isdir(log))


def _what_is_there(path: str) -> str:
    """Near-miss names beside a local path; a bucket may be too long to list for a hint."""
    url = storage.normalize(path)
    if not storage.is_local(url):
        return "check the URL, and that the credentials may list it"
    place = storage.local_path(url)
    folder = place.parent
    while not folder.is_dir():
        place, folder = folder, folder.parent
    if place.is_dir():
        return "the folder holds no file whose name begins otherwise than with _ or ."
    return f"in {folder} {nearest(place.name, sorted(entry.name for entry in folder.iterdir()))}"
