"""The lineage record of a commit: of a run, or of lake maintenance."""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from etl import schemas
from etl.compute.versions import library_versions
from etl.delta.table import Table
from etl.lake.commit_info import find_record
from etl.lake.work_units import WorkResult
from etl.recipe.recipe import Recipe
from etl.schemas import TableName
from etl.sources import Split


def count_results(results: Iterable[WorkResult]) -> schemas.Counts:
    """Return the sums of the counts of results."""
    total: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    costs: Counter[str] = Counter()
    for result in results:
        rejected.update(result.rejected)
        costs.update(result.costs)
        for name in ("rows", "kept", "duplicates", "tokens", "special_texts", "text_bytes"):
            total[name] += getattr(result, name)
    seconds = {name: round(costs[name], 3) for name in sorted(costs)}
    return schemas.Counts(**total, rejected=dict(sorted(rejected.items())), costs=seconds)


def input_files(
    results: Iterable[WorkResult], splits: Mapping[str, Split]
) -> list[schemas.InputFile]:
    """Return the input files of results with the rows read from each; ``splits`` are by key."""
    rows: Counter[str] = Counter()
    files: dict[str, Split] = {}
    for result in results:
        rows[result.source] += result.rows
        files[result.source] = splits[result.key]
    return [
        schemas.InputFile(
            uri=uri,
            size=split.size,
            fingerprint=split.fingerprint,
            rows=rows[uri],
            version=split.version,
        )
        for uri, split in sorted(files.items())
    ]


def name_record(split: Split, address: str | None) -> schemas.InputFile:
    """Return the record of a file whose rows the lake holds under an address, perhaps that of the file."""
    return schemas.InputFile(
        uri=split.uri,
        size=split.size,
        fingerprint=split.fingerprint,
        rows=0,
        version=split.version,
        same_as=split.uri if address is None else address,
    )


def run_record(recipe: Recipe, step: TableName, **fields: Any) -> dict[str, Any]:
    """Return the record as JSON data; ``fields`` are the other fields of ``schemas.Lineage``."""
    lineage = schemas.Lineage(
        recipe=recipe.name,
        step=step,
        versions=dict(library_versions()),
        seed=recipe.seed,
        **fields,
    )
    return lineage.model_dump(mode="json")


def maintenance_record(
    table: Table,
    action: Literal["drop", "epoch", "repair", "optimize"],
    *,
    default: schemas.Lineage | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return the record as JSON data; ``fields`` override fields of ``schemas.Lineage``.

    For a table without a record, which has no rows yet, ``default`` is the record to start from; without it,
    the result is empty.
    """
    newest = find_record(table) or default
    if newest is None:
        return {}
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    update = {
        "format": schemas.FORMAT_VERSION,
        "run_id": uuid.uuid4().hex[:12],
        "action": action,
        "versions": dict(library_versions()),
        "input_files": [],
        "num_data_files": 0,
        "counts": schemas.Counts(),
        "started": now,
        "committed": now,
        **fields,
    }
    return newest.model_copy(update=update).model_dump(mode="json")
