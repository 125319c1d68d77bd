"""Check the small JSON files of a lake: releases, leases, quarantine notes, moves, vacuumed versions."""

from collections.abc import Iterator

from etl import storage
from etl.audit.verify.file_checks import Problem
from etl.delta.commit_history import vacuumed_versions
from etl.errors import TableError
from etl.lake import releases
from etl.lake.table_specs import SPECS
from etl.storage import checked_json

REMOVABLE = ("leases", "quarantine", "source_moves")
"""The folders whose files `etl repair` removes if they are damaged: they are written again if needed."""

_REMOVED = "`etl repair` removes it"


def check_small_files(lake: str) -> Iterator[Problem]:
    """Yield the small files that are damaged."""
    for error in releases.read_releases(lake)[1]:
        name = _name(str(error.where))
        release = name.removesuffix(".json")
        yield Problem("releases", name, f"{error.what}: {error.hint}", release=release)
    for folder in REMOVABLE:
        for file in storage.find_files(storage.join(lake, folder)):
            try:
                checked_json.read(file.uri, hint=_REMOVED)
            except TableError as error:
                yield Problem(folder, _name(file.uri), f"{error.what}: {error.hint}")
    for table in SPECS:
        try:
            vacuumed_versions(storage.join(lake, table))
        except TableError as error:
            what = f"{error.what}: `etl repair` writes it again"
            yield Problem(table, _name(str(error.where)), what)


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]
