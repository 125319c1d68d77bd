"""Check the small JSON files of a lake: releases, leases, notes, moves, records of vacuums and versions."""

from collections.abc import Iterator

from etl import storage
from etl.audit.verify.file_checks import Problem
from etl.delta import vacuum_records
from etl.errors import TableError
from etl.lake import missing_inputs, releases
from etl.lake.finished_versions import FOLDER as FINISHED
from etl.lake.finished_versions import finished_uri
from etl.lake.table_names import table_names
from etl.storage import checked_json

REMOVABLE = ("leases", "quarantine", "source_moves", missing_inputs.FOLDER)
"""The folders whose files `etl repair` removes if they are damaged: they are written again if needed."""

_REMOVED = "`etl repair` removes it"


def check_small_files(lake: str) -> Iterator[Problem]:
    """Yield the small files that are damaged."""
    for damage, lost in releases.find_damage(lake):
        yield Problem(
            releases.FOLDER, _path(lake, releases.FOLDER, damage), _what(damage), release=lost
        )
    for damage in checked_json.find_damage(finished_uri(lake), hint=releases.RESTORED):
        yield Problem(FINISHED, _path(lake, FINISHED, damage), _what(damage))
    yield from check_removable_files(lake)
    for table in table_names(lake):
        url = storage.join(lake, table)
        for key in vacuum_records.record_keys(url):
            uri = vacuum_records.record_uri(url, key)
            for damage in checked_json.find_damage(uri, hint=releases.RESTORED):
                yield Problem(table, _path(lake, table, damage), _what(damage))


def check_removable_files(lake: str) -> Iterator[Problem]:
    """Yield the damaged files in the folders ``REMOVABLE``."""
    for folder in REMOVABLE:
        for file in storage.find_files(storage.join(lake, folder)):
            try:
                checked_json.read(file.uri, hint=_REMOVED)
            except TableError as error:
                yield Problem(folder, _path(lake, folder, error), _what(error))


def _path(lake: str, folder: str, error: TableError) -> str:
    return str(error.where).removeprefix(f"{storage.join(lake, folder)}/")


def _what(error: TableError) -> str:
    return f"{error.what}: {error.hint}"
