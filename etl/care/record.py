"""The lineage record of a commit that takes care of a table: the newest one's, with what was done."""

import uuid
from datetime import UTC, datetime
from typing import Any, Literal

import schemas
from etl.audit.versions import newest, versions_of
from etl.errors import TableError
from etl.job.record import library_versions
from etl.ledger import Ledger
from etl.table import Table


def recipe_of(table: Table) -> schemas.Lineage:
    """The newest record of a table, which names its recipe; raises TableError if no recipe made it."""
    found = newest(versions_of(table))
    if found is None:
        raise TableError("no recipe made this table", where=table.url)
    return found


def ledger_of(table: Table) -> Ledger:
    """Which units of work a table holds; raises TableError if no recipe made it."""
    return Ledger(table.url, fingerprint=recipe_of(table).fingerprint)


def record(table: Table, action: Literal["repair", "optimize"], **fields: Any) -> dict[str, Any]:
    """The record as JSON data; ``fields`` are those of ``schemas.Lineage`` that are not as before."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    update = {
        "format": schemas.FORMAT_VERSION,
        "run_id": uuid.uuid4().hex[:12],
        "action": action,
        "versions": library_versions(),
        "input_files": [],
        "num_fragments": 0,
        "counts": schemas.Counts(),
        "started": now,
        "committed": now,
        **fields,
    }
    return recipe_of(table).model_copy(update=update).model_dump(mode="json")
