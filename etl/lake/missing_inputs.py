"""The input files that the last run did not find in its source: ``LAKE/missing_inputs/files.json``."""

from collections.abc import Sequence
from typing import Any, Final

from etl import storage
from etl.errors import TableError
from etl.storage import checked_json

FOLDER: Final = "missing_inputs"

_MAX_FILES = 1000  # that the file names; chosen here


def write_missing(lake: str, addresses: Sequence[str]) -> None:
    """Record the files that are not listed any more; raises WriteError if that fails.

    A lake from which no file was ever missing has no such file.
    """
    if not are_recorded(lake, addresses):
        checked_json.write(_uri(lake), _content(addresses))


def are_recorded(lake: str, addresses: Sequence[str]) -> bool:
    """Return whether these are the files that a lake has recorded last."""
    try:
        before = checked_json.read(_uri(lake), hint="")
    except TableError:  # damaged
        return False
    return bool(before == _content(addresses)) or not (addresses or before is not None)


def read_missing(lake: str) -> tuple[int, list[str]]:
    """Return the number of files, and the first ones.

    Raises TableError if the record is damaged, StorageError if it cannot be read.
    """
    found = checked_json.read(
        _uri(lake), hint=f"`etl repair {lake} --yes` deletes it; the next run writes it again"
    )
    return (0, []) if found is None else (found["count"], found["files"])


def _content(addresses: Sequence[str]) -> dict[str, Any]:
    return {"count": len(addresses), "files": [*addresses[:_MAX_FILES]]}


def _uri(lake: str) -> str:
    return storage.join(storage.normalize(lake), FOLDER, "files.json")
