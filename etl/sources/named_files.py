"""Find the files that a list, or an index of records, names; each is below a prefix.

Nothing is listed: the store is asked for each file, several at a time, since few may list the buckets of
public archives. A line, row or file that is wrong is a problem of the listing; the others are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt

from etl import storage
from etl.errors import SourceError, StorageError
from etl.sources.formats import FORMATS, detect_format, warc_index
from etl.sources.owners import Owners
from etl.sources.record_ranges import with_records
from etl.sources.source_settings import Source
from etl.sources.split import Split
from etl.storage import FileInfo, Listing
from etl.storage.referenced_files import find_referenced_files, read_list_entries

_THREADS: Final = 32  # they wait for storage

_Records = npt.NDArray[np.int64]


def find_named_files(source: Source, owners: Owners, problems: list[StorageError]) -> list[Split]:
    """Return the files that a list or an index names, by URI; add the errors of those that are left out.

    Raises SourceError if an index cannot be read, if the format of a file is unknown, or if a file is one of
    a Delta table; RecipeError if a list cannot be read; the first problem if there is nothing else.
    """
    records: dict[str, list[_Records]] = {}
    if source.index is None:
        named = _read_lists(source, problems)
    else:
        named, records = _read_index(source, problems)
    files: dict[str, Split] = {}  # by real URI
    for root, found in _by_root(_find(named, problems), source).items():
        links = frozenset(file.uri for file in found if storage.is_local(file.uri))
        listing = Listing(root, found, frozenset(), links)
        for file in owners.input_files(root, listing):
            whole = as_split(file, source, listing)
            first = files.setdefault(whole.real_uri, whole)
            if first is not whole and records:
                records[first.uri] += records[whole.uri]
    if not files and problems:
        raise problems[0]
    splits = sorted(files.values(), key=lambda split: split.uri)
    if source.index is None:
        return splits
    return [with_records(split, np.concatenate(records[split.uri])) for split in splits]


def is_list(path: str) -> bool:
    """Return whether a path has the usual name of a list of paths.

    >>> is_list("s3://commoncrawl/crawl-data/CC-MAIN-2026-04/warc.paths.gz")
    True
    """
    return path.removesuffix(".gz").endswith(".paths")


def as_split(file: FileInfo, source: Source, listing: Listing) -> Split:
    """Return a file of a listing as one split; raise SourceError if its format is unknown."""
    name = source.format or ("warc" if source.index is not None else detect_format(file.uri))
    if name is None:
        hint = (
            "to read the files that it lists, set source.list instead of source.path"
            if is_list(file.uri)
            else f"set source.format to one of {', '.join(FORMATS)}, or source.path to a glob of the data"
            " files, such as **/*.parquet"
        )
        what = "the format of the file cannot be determined from its extension"
        raise SourceError(what, where=file.uri, hint=hint)
    return Split(
        uri=file.uri,
        size=file.size,
        fingerprint=file.fingerprint,
        format=name,
        bytes=file.size,
        real=None if (real := listing.location(file.uri)) == file.uri else real,
    )


def _read_lists(source: Source, problems: list[StorageError]) -> dict[str, str]:
    """Return where each file is named, by its URI."""
    named: dict[str, str] = {}
    for file in _files_of(source.list):
        for line, name in read_list_entries(file):
            where = f"{file.uri}:{line}"
            if (uri := _uri_of(name, file, source, where, problems)) is not None:
                named.setdefault(uri, where)
    return named


def _read_index(
    source: Source, problems: list[StorageError]
) -> tuple[dict[str, str], dict[str, list[_Records]]]:
    """Return where each file is named, and its records, by its URI."""
    files = _files_of(source.index)
    found = warc_index.read_index([file.uri for file in files], problems)
    named: dict[str, str] = {}
    records: dict[str, list[_Records]] = {}
    for name, own in found.items():
        uri = _uri_of(name, files[0], source, files[0].uri, problems)
        if uri is not None:
            named.setdefault(uri, files[0].uri)
            records.setdefault(uri, []).append(own)
    return named, records


def _files_of(paths: str | Sequence[str] | None) -> list[FileInfo]:
    given = (paths,) if isinstance(paths, str) else paths or ()
    return [file for path in given for file in find_referenced_files(path)]


def _uri_of(
    name: str, file: FileInfo, source: Source, where: str, problems: list[StorageError]
) -> str | None:
    """Return the URI of a named file; None if it cannot be one, which is a problem."""
    is_absolute = "://" in name or (source.prefix is None and name.startswith("/"))
    url = name if is_absolute else storage.join(_prefix(file, source), name)
    try:
        uri = storage.normalize(url)
    except StorageError as error:
        problems.append(StorageError(error.what, where=where, hint=error.hint))
        return None
    if ".." not in name.split("/"):
        return uri
    what = f"the name {name!r} may be outside of the prefix"
    problems.append(StorageError(what, where=where, hint="write names without .."))
    return None


def _prefix(file: FileInfo, source: Source) -> str:
    """Return what names are below: by default the folder of a local list, else its bucket or host.

    The names in lists of Common Crawl begin at the top of its bucket.
    """
    if source.prefix is not None:
        return storage.normalize(source.prefix)
    if storage.is_local(file.uri):
        return file.uri.rpartition("/")[0]
    return storage.split_authority(file.uri)[0]


def _find(named: Mapping[str, str], problems: list[StorageError]) -> Iterator[FileInfo]:
    """Yield the named files that exist, and add a problem for each of the others."""

    def find(uri: str) -> FileInfo | StorageError:
        try:
            file = storage.file_info(uri)
        except StorageError as error:
            return error
        hint = f"it is named in {named[uri]}: correct that, or source.prefix"
        return file or StorageError("the file does not exist", where=uri, hint=hint)

    with ThreadPoolExecutor(_THREADS) as pool:
        for found in pool.map(find, named):
            if isinstance(found, StorageError):
                problems.append(found)
            else:
                yield found


def _by_root(files: Iterator[FileInfo], source: Source) -> dict[str, list[FileInfo]]:
    """Return the files by the prefix or the folder that they are below."""
    prefix = None if source.prefix is None else storage.normalize(source.prefix)
    by_root: dict[str, list[FileInfo]] = {}
    for file in files:
        is_below = prefix is not None and file.uri.startswith(f"{prefix}/")
        root = prefix if is_below and prefix else file.uri.rpartition("/")[0]
        by_root.setdefault(root, []).append(file)
    return by_root
