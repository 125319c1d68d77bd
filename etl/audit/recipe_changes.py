"""Find the change of a recipe that has struck a document."""

from collections.abc import Iterable
from typing import Any

from etl.audit.row_lookup import find_rows, is_struck
from etl.delta.table import Table
from etl.delta.vacuum_records import is_vacuumed
from etl.lake.table_versions import Version, read_versions


def count_changes(documents: Iterable[Version], *, until: int | None = None) -> int:
    """Return how often the recipe was changed, given versions of ``documents``, up to one of them."""
    records = (each.lineage for each in documents if until is None or each.version <= until)
    return sum(record is not None and record.action == "change" for record in records)


def find_strike(texts: Table, address: dict[str, Any], documents: Iterable[Version]) -> int | None:
    """Return the number of the last change that has struck the text at an address.

    None if the text is not struck, or if a vacuum has deleted the versions that had it.
    """
    if not is_struck(texts, address):
        return None
    for version in read_versions(texts):
        before, record = version.version - 1, version.lineage
        if record is None or record.action != "strike" or is_vacuumed(texts.url, before):
            continue
        if next(find_rows(Table.open(texts.url, before), address), None) is not None:
            read = {table.name: table.version for table in record.input_tables}
            return count_changes(documents, until=read.get("documents")) or None
    return None
