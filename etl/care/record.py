"""Write the lineage record of a maintenance commit: the newest record with the action added."""

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
    """Return the newest record of a table; raise TableError if no recipe made the table."""
    lineage = newest(versions_of(table))
    if lineage is None:
        raise TableError("this table was not made by a recipe", where=table.url)
    return lineage


def ledger_of(table: Table) -> Ledger:
    """Open the ledger of a table; raise TableError if no recipe made the table."""
    return Ledger(table.url, fingerprint=recipe_of(table).fingerprint)


def record(table: Table, action: Literal["repair", "optimize"], **fields: Any) -> dict[str, Any]:
    """Return the record as JSON data; ``fields`` override fields of ``schemas.Lineage``."""
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
