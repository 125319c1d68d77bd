"""Releases: names for consistent versions of a lake's tables, which a vacuum keeps.

A release is one small file, ``LAKE/releases/NAME.json``, created only if it does not exist: if two writers
use the same name at once, one of them succeeds. There is a copy of it in ``LAKE/releases/_copies``: nothing
else says that a release exists, so that the loss of a single file would go unnoticed. A vacuum keeps the data
files of its versions. Its name can be used wherever a version number is expected.
"""

import re
import shlex
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from etl import schemas, storage
from etl.delta.table import Table
from etl.delta.vacuum_records import is_vacuumed
from etl.errors import StorageError, TableError
from etl.lake.commit_info import fields_of, input_versions
from etl.lake.leases import store_time
from etl.lake.missing_tables import no_lake_error, tables_of
from etl.lake.open_table import open_table
from etl.lake.table_names import last_table, table_names, token_tables
from etl.lake.table_specs import open_tables
from etl.lake.vacuums import check_kept, check_not_vacuumed
from etl.storage import checked_json

FOLDER = "releases"
"""The folder of releases in a lake."""

RESTORED = "`etl repair` writes it again"
"""The remedy for a damaged file of a release whose other file is sound."""

_DROPS = ("drop", "rebuild", "repair", "change")  # what commits do that remove rows
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class Release:
    """A name for one version of each table of a lake."""

    name: str
    versions: dict[str, int]
    created: str  # UTC, ISO 8601
    key: str  # distinguishes it from others of the same name


def create_release(lake: str, name: str, *, version: int | None = None) -> Release:
    """Create a release of the lake's newest state, or of the state at ``version`` of its last table.

    The last table is ``tokens``, else that of the first named tokenizer, else ``texts``. Without ``version``,
    it is that of the tokenizer that has seen the newest documents. Tables of other tokenizers are released
    without rows of later documents. Raises TableError if the name is invalid or taken, if the version does
    not exist, or if a vacuum has deleted files of it; ConflictError if a vacuum is about to.
    """
    url = storage.normalize(lake)
    if not _NAME.fullmatch(name):
        raise TableError(
            f"{name!r} is not a valid release name",
            where=url,
            hint="use up to 100 letters, digits, '.', '-' and '_'; begin with a letter or digit, "
            "and do not use only digits",
        )
    tables = _tables_of_version(url, version)
    for table in tables.values():
        check_not_vacuumed(table)
    versions = {table_name: table.version for table_name, table in tables.items()}
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    release = Release(name=name, versions=versions, created=now, key=uuid.uuid4().hex[:12])
    uri = _uri(url, name)
    content = checked_json.encode(uri, asdict(release))
    if not storage.create_if_absent(uri, content):
        raise TableError(f"release {name!r} already exists", where=url, hint="see `etl releases`")
    try:
        written = store_time(uri)
        for table in tables.values():
            check_kept(table, written)
        storage.write_bytes(checked_json.copy_of(uri), content)
    except BaseException:
        with suppress(StorageError):  # the first error matters more
            checked_json.remove_both(uri)
        raise
    return release


def read_release(lake: str, name: str) -> Release:
    """Return a release by its name; raises TableError if there is none."""
    url = storage.normalize(lake)
    release = _read(url, name) if _NAME.fullmatch(name) else None
    if release is None:
        known = ", ".join(release.name for release in list_releases(url)) or "none"
        raise TableError(
            f"no release {name!r} in this lake", where=url, hint=f"existing releases: {known}"
        )
    return release


def list_releases(lake: str) -> list[Release]:
    """Return the releases of a lake, oldest first; raise TableError if one is damaged and its copy too."""
    releases, damaged = read_releases(lake)
    if damaged:
        raise damaged[0]
    if not releases and not tables_of(storage.normalize(lake)):
        raise no_lake_error(storage.normalize(lake))
    return releases


def read_releases(lake: str) -> tuple[list[Release], list[TableError]]:
    """Return the releases of a lake, oldest first, and the errors of those without a sound file."""
    url = storage.normalize(lake)
    releases: list[Release] = []
    damaged: list[TableError] = []
    for name in checked_json.names(storage.join(url, FOLDER)):
        try:
            release = _read(url, name)
        except TableError as error:
            damaged.append(error)
        else:
            releases += [] if release is None else [release]  # it may just have been removed
    return sorted(releases, key=lambda release: (release.created, release.name)), damaged


def remove_release(lake: str, name: str) -> Release:
    """Remove a release; its versions remain until a vacuum. Raises TableError if there is none.

    A release that is damaged is removed too, and returned without versions.
    """
    url = storage.normalize(lake)
    try:
        release = read_release(lake, name)
    except TableError:  # names of copies, for example, are not names of releases
        if name not in checked_json.names(storage.join(url, FOLDER)):
            raise
        release = Release(name=name, versions={}, created="", key="")
    checked_json.remove_both(_uri(url, name))
    return release


def find_damage(lake: str) -> Iterator[tuple[TableError, str | None]]:
    """Yield the errors of files of releases; each with the name of the release if its copy is damaged too."""
    url = storage.normalize(lake)
    for name in checked_json.names(storage.join(url, FOLDER)):
        try:
            _read(url, name)
        except TableError as error:
            yield error, name
        else:
            for each in checked_json.find_damage(_uri(url, name), hint=RESTORED):
                yield each, None


def restore_release(lake: str, name: str) -> None:
    """Write the file of a release and its copy again, from whichever is sound."""
    url = storage.normalize(lake)
    release = _read(url, name)
    if release is not None:
        checked_json.write_both(_uri(url, name), asdict(release))


def removal_command(lake: str, name: str) -> str:
    """Return the command that removes a release."""
    return shlex.join(["etl", "release", lake, name, "--remove"])


def version_of(table_url: str, version: int | str) -> int:
    """Return the version number that a number, its text, or the name of a release refers to.

    Raises TableError if the lake has no such release, or if the release does not include the table.

    >>> version_of("s3://lake/web/tokens", 7), version_of("s3://lake/web/tokens", "7")
    (7, 7)
    """
    if isinstance(version, int) or version.isdecimal():
        return int(version)
    lake, _, name = storage.normalize(table_url).rpartition("/")
    release = read_release(lake, version)
    if name not in release.versions:
        raise TableError(f"release {version!r} does not include the table {name!r}", where=lake)
    return release.versions[name]


def open_version(table_url: str, version: int | str | None) -> Table:
    """Open a table of a lake at a version number, at a release, or, for None, at its newest version.

    Raises the errors of ``open_table``, ``version_of`` and ``check_not_vacuumed``.
    """
    if version is None:
        return open_table(table_url)
    table = open_table(table_url, version_of(table_url, version))
    check_not_vacuumed(table)
    return table


def _read(lake: str, name: str) -> Release | None:
    """Return a release, None if it does not exist; raise TableError if its file and the copy are damaged."""
    hint = f"`{removal_command(lake, name)}` removes it"
    content = checked_json.read_either(_uri(lake, name), hint=hint)
    return None if content is None else Release(**content)


def _uri(lake: str, name: str) -> str:
    return storage.join(lake, FOLDER, f"{name}.json")


def tables_at(lake: str, version: int | str | None) -> dict[str, Table]:
    """Open the tables of a lake at their newest versions, at a release, or at a version of the last table.

    The last table is ``tokens``, else that of the first named tokenizer, else ``texts``; the others are what
    it read, and the tables of other tokenizers without rows of later documents. Raises TableError if the
    version does not exist, or if a vacuum has deleted files of it.
    """
    url = storage.normalize(lake)
    if version is None:
        return open_tables(url)
    if isinstance(version, str) and not version.isdecimal():
        versions = read_release(url, version).versions
        tables = {
            name: open_table(storage.join(url, name), each) for name, each in versions.items()
        }
    else:
        tables = _tables_of_version(url, int(version))
    for table in tables.values():
        check_not_vacuumed(table)
    return tables


def _tables_of_version(lake: str, version: int | None) -> dict[str, Table]:
    """Open the last table of a lake at a version, and the others at the versions that it read."""
    released = (name for name in table_names(lake) if name not in schemas.UNRELEASED_TABLES)
    urls = {name: storage.join(lake, name) for name in released}
    existing = [name for name, url in urls.items() if Table.exists(url)]
    if not existing:
        raise no_lake_error(lake)
    tokens = token_tables(existing)
    last = last_table(existing)
    if (
        version is None and len(tokens) > 1
    ):  # the one with the newest documents: another may lag behind
        last = max(
            tokens, key=lambda name: _versions_read_by(open_table(urls[name])).get("texts", -1)
        )
    tables = {last: open_table(urls[last], version)}
    versions = _versions_read_by(tables[last])
    for name in existing:
        if (origin := schemas.shuffled_from(name)) is not None:
            made = None  # it may have the rows of a newer version, or none
            if origin in tables:
                made = _made_from(open_table(urls[name]), origin, tables[origin].version)
            tables |= {} if made is None else {name: open_table(urls[name], made)}
        elif name in tokens and name != last:  # without rows of newer documents, or none
            made = _as_of(open_table(urls[name]), versions)
            tables |= {} if made is None else {name: open_table(urls[name], made)}
        elif name != last:  # a table that no commit names was not read: open its newest version
            tables[name] = open_table(urls[name], versions.get(name))
            table = tables[name]
            if version is None and is_vacuumed(
                table.url, table.version
            ):  # newer files hold the same rows
                tables[name] = open_table(urls[name])
    return {name: tables[name] for name in existing if name in tables}


def _made_from(table: Table, name: str, version: int) -> int | None:
    """Return the newest version of a derived table that has no rows beyond a version of another table.

    None if there is none since the rows of the derived table were last dropped.
    """
    for info in table.history():
        action = fields_of(info).get("action")
        if action in _DROPS:
            return None
        if action == "append" and input_versions(info).get(name, version + 1) <= version:
            return int(info["version"])
    return None


def _as_of(table: Table, versions: Mapping[str, int]) -> int | None:
    """Return the newest version of a table that was made from these versions of others, or older ones."""
    for info in table.history():
        read = input_versions(info)
        if read and all(number <= versions.get(name, number) for name, number in read.items()):
            return int(info["version"])
    return None


def _versions_read_by(table: Table) -> dict[str, int]:
    """Return the newest version of each input table that a version of this table has read."""
    versions: dict[str, int] = {}
    for info in table.history():
        for name, version in input_versions(info).items():
            versions[name] = max(version, versions.get(name, 0))
    return versions
