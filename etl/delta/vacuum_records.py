"""Records of the versions whose data files vacuums delete: the intent before, and the proof after.

Each vacuum writes its own record, ``TABLE/_vacuumed/TABLE-KEY.json``, and no other vacuum changes it, so
that a vacuum suspended for hours cannot overwrite what others have recorded. A record is announced first,
and decided before the first file is deleted. What is decided is never taken back: nothing may need these
versions again, whether their files are deleted yet or not.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

from etl import storage
from etl.storage import checked_json

FOLDER: Final = "_vacuumed"
"""The folder of the records in a table; other readers of Delta tables ignore it."""

_KEY = re.compile(r"[0-9a-f]{12}")
_HINT = "it lists the versions of which data files are missing; a repair writes it again"

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class VacuumRecord:
    """The files of one table that a vacuum deletes: by whom, since when, and the versions that need them."""

    key: str  # of the vacuum's lease
    host: str
    process: int
    since: str  # UTC, ISO 8601, by the store's clock
    files: int
    versions: (
        Ranges  # (first, last); also those that earlier vacuums have recorded, once it is decided
    )
    is_decided: bool = False

    def includes(self, version: int) -> bool:
        """Return whether files of a version are deleted."""
        return any(first <= version <= last for first, last in self.versions)


def read_records(url: str) -> list[VacuumRecord]:
    """Return the records of a table; raise TableError if one is damaged and its copy too."""
    while True:
        records = [read_record(url, key) for key in record_keys(url)]
        if None not in records:
            return [record for record in records if record is not None]
        # A vacuum has just merged a record into its own, which it has written first: list them again.


def read_record(url: str, key: str) -> VacuumRecord | None:
    """Return a record, or None if it does not exist; raise as ``read_records`` does."""
    fields = checked_json.read_either(record_uri(url, key), hint=_HINT)
    if fields is None:
        return None
    versions = tuple((first, last) for first, last in fields.pop("versions"))
    return VacuumRecord(**fields, versions=versions)


def record_keys(url: str) -> list[str]:
    """Return the keys of all records, also of those that are damaged."""
    names = (name.rpartition("-") for name in checked_json.names(_folder(url)))
    return [key for name, _, key in names if name == _name(url) and _KEY.fullmatch(key)]


def write_record(url: str, record: VacuumRecord) -> None:
    """Write a record, or replace it with its next state."""
    versions = merge_ranges(record.versions)
    checked_json.write_both(record_uri(url, record.key), {**asdict(record), "versions": versions})


def remove_record(url: str, key: str) -> None:
    """Remove a record that another one includes, or whose vacuum has deleted nothing."""
    checked_json.remove_both(record_uri(url, key))


def record_uri(url: str, key: str) -> str:
    """Return the URI of a record; the name says of which table, since a vacuum has one key for all."""
    return storage.join(_folder(url), f"{_name(url)}-{key}.json")


def vacuumed_versions(url: str) -> Ranges:
    """Return the ranges (first, last) of versions whose data files vacuums have deleted or will delete.

    Raises TableError as ``read_records`` does.
    """
    decided = (record.versions for record in read_records(url) if record.is_decided)
    return merge_ranges(each for versions in decided for each in versions)


def is_vacuumed(url: str, version: int) -> bool:
    """Return whether a vacuum has deleted data files of an (old) version of a table, or will do so."""
    return any(first <= version <= last for first, last in vacuumed_versions(url))


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges in order, with those that overlap or touch as one.

    >>> merge_ranges([(5, 6), (1, 2), (3, 3)])
    ((1, 3), (5, 6))
    """
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def _name(url: str) -> str:
    return storage.normalize(url).rpartition("/")[2]


def _folder(url: str) -> str:
    return storage.join(storage.normalize(url), FOLDER)
