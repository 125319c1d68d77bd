"""What the log of a table says: its versions, each with the lineage record of its commit.

Nothing here reads a data file. Cost: the log entries of the table, once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

import schemas
from etl import storage
from etl.errors import TableError
from etl.ledger import Ledger
from etl.table import Table


@dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a table: when it came, and what its commit says of itself.

    ``lineage`` is None for the version that only created the table, and for commits that were not made
    by a recipe; what such a commit noted of itself is in ``note``.
    """

    version: int
    time: datetime  # UTC
    operation: str  # Delta's own name of what was done
    lineage: schemas.Lineage | None = None
    note: dict[str, Any] = field(default_factory=dict)


def history(table_url: str) -> list[Version]:
    """All versions of a table, newest first.

    Raises TableError if there is no table, or its log was written by a newer Tokenlake.
    """
    return versions_of(Table.open(table_url))


def versions_of(table: Table) -> list[Version]:
    """The versions of an open table up to its own, newest first."""
    return [_version(entry, table.url) for entry in table.history()]


def newest(versions: Sequence[Version]) -> schemas.Lineage | None:
    """The newest lineage record among versions (newest first)."""
    return next((v.lineage for v in versions if v.lineage is not None), None)


def current(versions: Sequence[Version]) -> list[Version]:
    """The versions of the newest generation that have a record, oldest first: what made its rows."""
    last = newest(versions)
    found = [v for v in versions if v.lineage and last and v.lineage.generation == last.generation]
    return found[::-1]


def table_of(lake: str, name: str) -> Table | None:
    """One of a lake's tables, as it is now; None if the lake does not have it."""
    url = storage.join(lake, name)
    return Table.open(url) if Table.exists(url) else None


def ledger_of(table: Table) -> Ledger | None:
    """Which units of work a table holds, for the recipe that made it; None if no recipe did."""
    record = newest(versions_of(table))
    return Ledger(table.url, fingerprint=record.fingerprint) if record is not None else None


def live_inputs(versions: Sequence[Version]) -> dict[str, schemas.InputFile]:
    """The input files behind the rows of a table, by URI, each with all the rows read of it.

    ``versions`` are newest first. A file's rows add up over the commits that brought its splits; its
    next content takes the place of the one before.
    """
    found: dict[str, schemas.InputFile] = {}
    for version in current(versions):
        assert version.lineage is not None
        for file in version.lineage.input_files:
            before = found.get(file.uri)
            same = before is not None and before.fingerprint == file.fingerprint
            rows = file.rows + (before.rows if before is not None and same else 0)
            found[file.uri] = file.model_copy(update={"rows": rows})
    return dict(sorted(found.items()))


def added_in(table: Table, path: str, candidates: Sequence[Version]) -> Version | None:
    """The version whose commit brought a live data file: one of the candidates (oldest first).

    A data file is added once, so that it can be found by halving: the cost is the logarithm of the
    number of candidates in look-ups of a version's files.
    """
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        version = candidates[middle].version
        files = Table.open(table.url, version).fragments()
        if path in files["path"].to_pylist():
            high = middle
        else:
            low = middle + 1
    return candidates[low] if candidates else None


def _version(entry: dict[str, Any], url: str) -> Version:
    found = entry.get("tokenlake") or {}
    return Version(
        version=int(entry["version"]),
        time=datetime.fromtimestamp(int(entry["timestamp"]) / 1000, UTC),
        operation=str(entry.get("operation", "")),
        lineage=_record(found, f"{url} version {entry['version']}") if "format" in found else None,
        note={} if "format" in found else dict(found),
    )


def _record(found: dict[str, Any], where: str) -> schemas.Lineage:
    try:
        return schemas.Lineage.model_validate(found)
    except ValidationError as error:
        raise TableError(
            f"its lineage record has format {found['format']}, known here is "
            f"{schemas.FORMAT_VERSION} ({error.error_count()} fields do not fit)",
            where=where,
            hint="a newer Tokenlake may have written it: upgrade",
        ) from error
