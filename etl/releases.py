"""Releases: a name for the versions that the tables of a lake had together, kept for good.

A release is one small file, ``LAKE/releases/NAME.json``, which is created only if it is not there: of two
who take a name at once one wins. Vacuum keeps the data files of its versions. What reads a version takes
the name in place of the number.
"""

import json
import re
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from etl import storage
from etl.errors import TableError
from etl.lease import leases
from etl.table import Table

TABLES = ("documents", "duplicates", "tokens")
_FOLDER = "releases"
_NAME = re.compile(r"(?!\d+$)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class Release:
    """A name, and the version of each table of the lake that it stands for."""

    name: str
    versions: dict[str, int]
    created: str  # UTC, ISO 8601
    key: str  # tells it from one of the same name


def create(lake: str, name: str, *, version: int | None = None) -> Release:
    """Name what the lake holds now, or what its last table held at ``version``.

    That table is ``tokens``, or ``documents`` where there is none. Raises TableError if the name is taken
    or none, if there is no such version, or if a vacuum has taken files of it.
    """
    url = storage.normalize(lake)
    if not _NAME.fullmatch(name):
        raise TableError(
            f"{name!r} is no name for a release",
            where=url,
            hint="letters, digits, dots, dashes and underscores, and not digits alone",
        )
    tables = _tables_at(url, version)
    for table in tables.values():
        table.check_files()
    versions = {kind: table.version for kind, table in tables.items()}
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    release = Release(name=name, versions=versions, created=now, key=uuid.uuid4().hex[:12])
    if not storage.create(_uri(url, name), json.dumps(asdict(release), indent=1).encode()):
        raise TableError(
            f"there is a release {name!r} already", where=url, hint="see `etl releases`"
        )
    # A vacuum that began before may not know of it: it announces itself before it lists the releases.
    if any(lease.kind == "vacuum" for lease in leases(url)):
        storage.remove(_uri(url, name))
        raise TableError(
            "a vacuum of this lake is under way", where=url, hint="try again when it is done"
        )
    return release


def read(lake: str, name: str) -> Release:
    """One release; raises TableError if there is none of this name."""
    url = storage.normalize(lake)
    content = storage.read(_uri(url, name)) if _NAME.fullmatch(name) else None
    if content is None:
        known = ", ".join(release.name for release in list_all(url)) or "none"
        raise TableError(f"there is no release {name!r}", where=url, hint=f"its releases: {known}")
    return Release(**json.loads(content))


def list_all(lake: str) -> list[Release]:
    """The releases of a lake, oldest first."""
    found = []
    for file in storage.find(storage.join(storage.normalize(lake), _FOLDER)):
        content = storage.read(file.uri)
        if content is not None:  # removed meanwhile
            found.append(Release(**json.loads(content)))
    return sorted(found, key=lambda release: (release.created, release.name))


def remove(lake: str, name: str) -> Release:
    """Take a name away; the versions stay until a vacuum. Raises TableError if there is none."""
    release = read(lake, name)
    storage.remove(_uri(storage.normalize(lake), name))
    return release


def version_of(table_url: str, version: int | str) -> int:
    """The number of a table's version: itself, a number as text, or what a release of its lake says.

    Raises TableError if there is no such release, or if it has no such table.

    >>> version_of("s3://lake/web/tokens", 7), version_of("s3://lake/web/tokens", "7")
    (7, 7)
    """
    if isinstance(version, int) or version.isdecimal():
        return int(version)
    lake, _, kind = storage.normalize(table_url).rpartition("/")
    release = read(lake, version)
    if kind not in release.versions:
        raise TableError(f"the release {version!r} has no table {kind!r}", where=lake)
    return release.versions[kind]


def _uri(lake: str, name: str) -> str:
    return storage.join(lake, _FOLDER, f"{name}.json")


def _tables_at(lake: str, version: int | None) -> dict[str, Table]:
    """The last table of a lake at a version, or now, and the others as they were when that was made."""
    urls = {kind: storage.join(lake, kind) for kind in TABLES}
    there = [kind for kind in TABLES if Table.exists(urls[kind])]
    if not there:
        raise TableError("there is no lake", where=lake, hint="`etl run` makes it; check the URL")
    last = "tokens" if "tokens" in there else there[0]
    tables = {last: Table.open(urls[last], version)}
    versions = _read_by(tables[last])
    for kind in there:
        if kind != last:  # what no record names was not read
            tables[kind] = Table.open(urls[kind], versions.get(kind))
            if version is None and tables[kind].is_vacuumed:  # the same rows stand in other files
                tables[kind] = Table.open(urls[kind])
    return {kind: tables[kind] for kind in there}


def _read_by(table: Table) -> dict[str, int]:
    """The newest version of each other table that went into a version of this one."""
    found: dict[str, int] = {}
    for entry in table.entries():
        for kind, version in entry.reads.items():
            found[kind] = max(version, found.get(kind, 0))
    return found
