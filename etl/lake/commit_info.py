"""The lineage record in the Delta log: one JSON string in ``commitInfo``; refuses other format versions.

It is a string because some readers infer one schema for ``commitInfo`` from all entries of a log, and fail if
a value is a string in one entry and a list in another. The settings of a recipe are such values.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from etl import schemas
from etl.delta.table import Table
from etl.errors import TableError

_ENGINE = "tokenlake"
_FIELD = "tokenlake"  # of commitInfo
_FOREIGN = "another program may have written it"


def to_commit_info(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a commit adds to ``commitInfo``: the writer, and the record of the commit as JSON data."""
    return {"engineInfo": _ENGINE, _FIELD: json.dumps(dict(record), separators=(",", ":"))}


def is_ours(info: Mapping[str, Any]) -> bool:
    """Return whether Tokenlake wrote the commit with this ``commitInfo``."""
    return info.get("engineInfo") == _ENGINE


def fields_of(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the record in a ``commitInfo`` as JSON data; empty for the commits of other programs.

    Raises TableError if the record is not JSON.
    """
    fields = info.get(_FIELD)
    if isinstance(fields, str):
        try:
            fields = json.loads(fields)
        except ValueError as error:
            raise TableError(
                f"the lineage record of version {info.get('version')} is not valid JSON",
                hint=_FOREIGN,
            ) from error
    # Earlier format versions stored an object instead of a string; ``parse_record`` refuses them.
    return fields if isinstance(fields, dict) else {}


def input_versions(info: Mapping[str, Any]) -> dict[str, int]:
    """Return the version of each input table that a commit was made from, by the table's name."""
    tables = fields_of(info).get("input_tables", ())
    return {table["name"]: int(table["version"]) for table in tables}


def parse_record(info: Mapping[str, Any], url: str) -> schemas.Lineage | None:
    """Parse the lineage record in a ``commitInfo`` of the table at a URL; None if it has none.

    Raises TableError if the record has another format version, or is damaged.
    """
    fields = fields_of(info)
    if "format" not in fields:
        return None
    if fields["format"] != schemas.FORMAT_VERSION:
        raise TableError(
            f"the lake has format version {fields['format']}, "
            f"but this release reads format version {schemas.FORMAT_VERSION}",
            where=url,
            hint="build a new lake with this release: `etl run RECIPE --lake NEW`, "
            "or use the release that wrote this one",
        )
    try:
        return schemas.Lineage.model_validate(fields)
    except ValidationError as error:
        raise TableError(
            f"the lineage record of version {info['version']} has {error.error_count()} invalid fields",
            where=url,
            hint=_FOREIGN,
        ) from error


def find_record(table: Table) -> schemas.Lineage | None:
    """Return the newest lineage record of a table; None if no recipe made the table.

    Reads the log only as far back as that record, which is the newest entry as a rule.
    """
    records = (parse_record(info, table.url) for info in table.history())
    return next((record for record in records if record is not None), None)


def read_record(table: Table) -> schemas.Lineage:
    """Return the newest lineage record of a table; raise TableError if no recipe made the table."""
    record = find_record(table)
    if record is None:
        raise TableError("this table was not made by a recipe", where=table.url)
    return record


def check_format(table: Table) -> None:
    """Raise TableError if the table was written in another format version."""
    find_record(table)
