"""List the versions of a table from its log, each with the lineage record of its commit.

No data file is read. Cost: one pass over the log entries of the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from etl import schemas, storage
from etl.delta.table import Table
from etl.errors import TableError
from etl.lake.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a table: the time of its commit and the commit's own record.

    ``lineage`` is None for the version that only created the table, and for commits not made by a recipe;
    ``note`` is the record of such a commit.
    """

    version: int
    time: datetime  # UTC
    operation: str  # Delta's name of the operation
    lineage: schemas.Lineage | None = None
    note: dict[str, Any] = field(default_factory=dict)


def history(table_url: str) -> list[Version]:
    """Return all versions of a table, newest first.

    Raises TableError if the table does not exist, or its log was written by a newer Tokenlake.
    """
    return versions_of(Table.open(table_url))


def versions_of(table: Table) -> list[Version]:
    """Return the versions of an open table up to its own, newest first."""
    return [_version(entry, table.url) for entry in table.history()]


def latest_record(versions: Sequence[Version]) -> schemas.Lineage | None:
    """Return the newest lineage record among versions, which are newest first."""
    return next((v.lineage for v in versions if v.lineage is not None), None)


def current_versions(versions: Sequence[Version]) -> list[Version]:
    """Return the versions that wrote the rows of the newest generation, oldest first."""
    last = latest_record(versions)
    if last is None:
        return []
    writers = [v for v in versions if v.lineage and v.lineage.generation == last.generation]
    return writers[::-1]


def find_table(lake: str, name: str) -> Table | None:
    """Open a table of a lake at its newest version; return None if the lake does not have it."""
    url = storage.join(lake, name)
    return Table.open(url) if Table.exists(url) else None


def find_ledger(table: Table) -> Ledger | None:
    """Open the ledger of a table for the recipe that made it; return None if no recipe did."""
    record = latest_record(versions_of(table))
    return Ledger(table.url, fingerprint=record.fingerprint) if record is not None else None


def live_inputs(versions: Sequence[Version]) -> dict[str, schemas.InputFile]:
    """Return the input files behind the rows of a table by URI, each with all rows read from it.

    ``versions`` are newest first. The rows of a file add up over the commits that added its splits; newer
    content of a file replaces the older.
    """
    inputs: dict[str, schemas.InputFile] = {}
    for version in current_versions(versions):
        assert version.lineage is not None
        for file in version.lineage.input_files:
            before = inputs.get(file.uri)
            is_same = before is not None and before.fingerprint == file.fingerprint
            rows = file.rows + (before.rows if before is not None and is_same else 0)
            inputs[file.uri] = file.model_copy(update={"rows": rows})
    return dict(sorted(inputs.items()))


def added_in(table: Table, path: str, candidates: Sequence[Version]) -> Version | None:
    """Return the version, among candidates in ascending order, whose commit added a live data file.

    A data file is added once, so a binary search finds the version. Cost: listing the files of O(log n)
    versions.
    """
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        version = candidates[middle].version
        files = Table.open(table.url, version).data_files()
        if path in files["path"].to_pylist():
            high = middle
        else:
            low = middle + 1
    return candidates[low] if candidates else None


def _version(entry: dict[str, Any], url: str) -> Version:
    fields = entry.get("tokenlake") or {}
    is_lineage = "format" in fields
    where = f"{url} version {entry['version']}"
    return Version(
        version=int(entry["version"]),
        time=datetime.fromtimestamp(int(entry["timestamp"]) / 1000, UTC),
        operation=str(entry.get("operation", "")),
        lineage=_record(fields, where) if is_lineage else None,
        note={} if is_lineage else dict(fields),
    )


def _record(fields: dict[str, Any], where: str) -> schemas.Lineage:
    try:
        return schemas.Lineage.model_validate(fields)
    except ValidationError as error:
        raise TableError(
            f"its lineage record has format {fields['format']}, but this version reads up to "
            f"{schemas.FORMAT_VERSION} (invalid fields: {error.error_count()})",
            where=where,
            hint="a newer Tokenlake may have written it: upgrade",
        ) from error
