"""The newest versions of a lake's tables when a job last ended, in ``LAKE/finished/versions.json``.

A recorded version must never disappear. A table that has an older version now was restored from a backup,
or has lost its newest log entries; without this file it would look like one whose last run was interrupted.
"""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from etl import storage
from etl.delta.log_segment import newest_version
from etl.errors import DamagedLogError, TableError
from etl.lake.table_names import table_names
from etl.lake.table_specs import spec_of
from etl.storage import checked_json

FOLDER: Final = "finished"
"""The folder of the file in a lake."""

_NONE: Mapping[str, int] = MappingProxyType({})
_HINT = "`etl repair` writes it again"


def finished_uri(lake: str) -> str:
    """Return the URI of the file of a lake."""
    return storage.join(storage.normalize(lake), FOLDER, "versions.json")


def finished_versions(lake: str) -> dict[str, int]:
    """Return the versions by table; empty if no job has ended yet.

    Raises TableError if the file is damaged and its copy too.
    """
    return dict(checked_json.read_either(finished_uri(lake), hint=_HINT) or {})


def record_finished(lake: str) -> None:
    """Record the newest versions of all tables.

    Versions never decrease, except the version of an index, which a run may have created again. Raises
    StorageError if the store fails.
    """
    url = storage.normalize(lake)
    before: Mapping[str, int] = {}
    with suppress(TableError):  # damaged: replaced
        before = finished_versions(url)
    newest = {
        name: newest_version(storage.join(url, name)) for name in {*table_names(url), *before}
    }
    versions = {
        name: version if spec_of(name).is_index else max(version, before.get(name, -1))
        for name, version in newest.items()
    }
    known = {name: version for name, version in versions.items() if version >= 0}
    if known != before:
        checked_json.write_both(finished_uri(url), known)


def forget_finished(lake: str) -> None:
    """Remove the file: the lake starts again."""
    checked_json.remove_both(finished_uri(lake))


def forget_table(lake: str, name: str) -> None:
    """Forget the versions of a table, which is about to be removed."""
    versions = finished_versions(lake)
    if versions.pop(name, None) is not None:
        checked_json.write_both(finished_uri(lake), versions)


def restore_finished(lake: str) -> None:
    """Write the file and its copy again, from whichever is sound; remove both if neither is."""
    try:
        versions = finished_versions(lake)
    except TableError:
        forget_finished(lake)
    else:
        checked_json.write_both(finished_uri(lake), versions)


def check_finished(lake: str, versions: Mapping[str, int] = _NONE) -> None:
    """Raise DamagedLogError if a table, other than an index, has an older version than when a job last ended.

    ``versions`` are those that tables are known to have; the logs of others are listed.
    """
    url = storage.normalize(lake)
    for name, finished in finished_versions(url).items():
        if spec_of(name).is_index or versions.get(name, -1) >= finished:
            continue
        table = storage.join(url, name)
        version = newest_version(table)  # it may be newer than the table that was opened
        if version < finished:
            newest = "the table is missing" if version < 0 else f"the newest version is {version}"
            raise DamagedLogError(
                f"{newest}, but a job has ended with version {finished}",
                where=table,
                hint="restore it from a backup, or give the lost versions up: "
                f"`etl repair {url} --yes` does so, and `etl run` then does their work again",
            )
