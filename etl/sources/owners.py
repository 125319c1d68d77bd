"""Find out what the files of a source belong to: nothing, a Delta table, or a lake.

The files of a Delta table include removed ones, so that they are read through its log alone. The files of a
lake are made from input and are none: without this, a lake below its own source would double at each run.
"""

from collections.abc import Iterator

from etl import schemas, storage
from etl.errors import RecipeError, SourceError, StorageError
from etl.parquet.data_file import is_data_file
from etl.storage import FileInfo, Listing


class Owners:
    """What files belong to; safe to use for all paths of a source.

    ``lake`` is the lake that is written, which need not exist yet. Others are recognized by the names of
    their tables and files.
    """

    def __init__(self, lake: str | None) -> None:
        self._lake = None if lake is None else _location(lake)
        self._logs: dict[str, bool] = {}

    def check_lake(self) -> None:
        """Raise RecipeError if the lake is inside a Delta table, whose VACUUM would delete its files."""
        for folder in _with_parents(self._lake or ""):
            if self.has_log(folder):
                raise RecipeError(
                    f"the lake is inside the Delta table {folder}, whose VACUUM would delete its files",
                    where=self._lake,
                    hint="set lake to a folder outside of the table",
                )

    def check_table(self, url: str) -> None:
        """Raise SourceError if a Delta table that is to be read is in the lake that is written."""
        if self.is_own(_location(url)):
            raise SourceError(
                "the table is in the lake that is written",
                where=url,
                hint="set lake to another folder: a table cannot be made from itself",
            )

    def input_files(self, path: str, listing: Listing) -> list[FileInfo]:
        """Return the listed files of a path, except files of lakes.

        A folder below the listed one costs no request. Raises SourceError if a file belongs to another Delta
        table, or if all belong to lakes.
        """
        folders = _Folders(self, listing)
        files = []
        for file in listing.files:
            owner = folders.owner_of(file)
            if owner is None:
                files.append(file)
            elif not folders.is_lake(owner, file):
                raise SourceError(
                    f"the file belongs to the Delta table {owner}, which may have removed it",
                    where=file.uri,
                    hint=f"to read the table, set source.path to {owner} without source.format; to read "
                    "other files, set it to a glob that does not match those of the table",
                )
        if listing.files and not files:
            raise SourceError(
                f"all files belong to the lake or table {folders.owner_of(listing.files[0])}",
                where=path,
                hint="set source.path to a folder of raw files outside of the lake; to read a table of "
                "another lake, set it to the folder of the table, such as LAKE/documents",
            )
        return files

    def is_own(self, location: str) -> bool:
        """Return whether a location is in the lake that is written."""
        return self._lake is not None and _is_in(location, self._lake)

    def has_log(self, folder: str) -> bool:
        """Return whether a folder is a Delta table; False for a folder that may not be listed."""
        if folder not in self._logs:
            self._logs[folder] = _has_log(folder)
        return self._logs[folder]


class _Folders:
    """The lake or the table that each folder of a listing is in, by locations."""

    def __init__(self, owners: Owners, listing: Listing) -> None:
        self._owners = owners
        self._listing = listing
        self._location = listing.location(listing.root)
        self._tables = {listing.location(table) for table in listing.tables}
        self._known: dict[str, str | None] = {}

    def owner_of(self, file: FileInfo) -> str | None:
        """Return the location of the lake or of the innermost table that a file is in, if any."""
        folder = self._listing.location(file.uri).rpartition("/")[0]
        if folder not in self._known:
            self._known[folder] = next(filter(self._is_owner, _with_parents(folder)), None)
        return self._known[folder]

    def is_lake(self, owner: str, file: FileInfo) -> bool:
        """Return whether an owner is a lake, or a table of one."""
        lake, _, name = owner.rpartition("/")
        is_named = schemas.kind_of(name) in schemas.TABLES
        is_table = is_named and (is_data_file(file.uri) or self._is_lake(lake))
        return is_table or self._is_lake(owner) or self._owners.is_own(owner)

    def _is_owner(self, folder: str) -> bool:
        is_below = folder != self._location and _is_in(folder, self._location)
        is_table = folder in self._tables if is_below else self._owners.has_log(folder)
        return is_table or self._is_lake(folder) or self._owners.is_own(folder)

    def _is_lake(self, folder: str) -> bool:
        """Return whether the listing shows at least two tables of a lake in a folder."""
        return sum(f"{folder}/{name}" in self._tables for name in schemas.TABLES) > 1


def _has_log(folder: str) -> bool:
    if storage.get_protocol(folder) in ("http", "https"):  # no folders
        return False
    try:
        return storage.is_folder(storage.join(folder, "_delta_log"))
    except StorageError as error:
        if isinstance(error.__cause__, PermissionError):
            return False
        raise


def _location(url: str) -> str:
    return storage.location_of(storage.normalize(url))


def _is_in(location: str, folder: str) -> bool:
    return location == folder or location.startswith(f"{folder}/")


def _with_parents(folder: str) -> Iterator[str]:
    """Yield a folder and those that it is in, up to the bucket or the root."""
    while "://" in folder and not folder.endswith("://"):
        yield folder
        folder = folder.rpartition("/")[0]
