"""Export lineage as OpenLineage run events for data catalogs.

The events follow spec 2-0-2 (https://openlineage.io). A run of a recipe writes up to four tables; each of
them becomes one OpenLineage job with a START and a COMPLETE event. Run ids are derived from Tokenlake's, so
exporting twice gives the same events.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from etl import schemas
from etl.audit.lineage_graph import Node
from etl.lake.table_versions import Version
from etl.storage.urls import is_local, local_path

_PRODUCER = "urn:tokenlake"
_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"


def run_events(node: Node) -> list[dict[str, Any]]:
    """Return the runs behind a table and its inputs as OpenLineage RunEvents, ordered by time."""
    events = [event for table in node.walk() for event in _table_events(table)]
    return sorted(events, key=lambda event: (event["eventTime"], event["eventType"] != "START"))


def _table_events(node: Node) -> Iterator[dict[str, Any]]:
    runs: dict[str, list[Version]] = {}
    for commit in node.commits:
        assert commit.lineage is not None
        runs.setdefault(commit.lineage.run_id, []).append(commit)
    for run_id, commits in runs.items():
        yield from _run_events(node, run_id, commits)


def _run_events(node: Node, run_id: str, commits: Sequence[Version]) -> Iterator[dict[str, Any]]:
    records = [commit.lineage for commit in commits if commit.lineage is not None]
    name = f"{records[0].recipe}.{records[0].step}"
    run = {"runId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{node.url}#{run_id}"))}
    common = {
        "run": run,
        "job": {"namespace": "tokenlake", "name": name},
        "producer": _PRODUCER,
        "schemaURL": _SCHEMA,
    }
    tables = {table.name: table.version for record in records for table in record.input_tables}
    urls = {table.name: table.url for table in node.tables}
    urls |= {other.name: other.url for other in node.others}
    inputs: list[dict[str, Any]] = [
        {**_dataset(urls[name]), "facets": _version_facet(version)}
        for name, version in tables.items()
    ]
    uris = dict.fromkeys(file.uri for record in records for file in record.input_files)
    inputs += [_dataset(uri) for uri in uris]
    fields = [{"name": name, "type": type_} for name, type_ in node.schema]
    output = {
        **_dataset(node.url),
        "facets": {
            **_version_facet(commits[-1].version),
            "schema": _facet("1-0-0/SchemaDatasetFacet", fields=fields),
        },
        "outputFacets": {
            "outputStatistics": _facet(
                "1-0-0/OutputStatisticsOutputDatasetFacet",
                rowCount=sum(map(_rows_written, records)),
            )
        },
    }
    yield {"eventType": "START", "eventTime": records[0].started, **common}
    yield {
        "eventType": "COMPLETE",
        "eventTime": records[-1].committed,
        **common,
        "inputs": inputs,
        "outputs": [output],
    }


def _rows_written(record: schemas.Lineage) -> int:
    counts, has_rejected = record.counts, record.canonical["rejected"]["text"]
    rows = {"documents": counts.rows, "duplicates": counts.duplicates}
    rows |= {"texts": counts.rows} if has_rejected else {}
    return rows.get(record.step, counts.kept)


def _dataset(url: str) -> dict[str, str]:
    """Return the OpenLineage name of a URL: the bucket is the namespace, ``file`` for local paths."""
    if is_local(url):
        return {"namespace": "file", "name": str(local_path(url))}
    scheme, rest = url.split("://", 1)
    bucket, _, path = rest.partition("/")
    return {"namespace": f"{scheme}://{bucket}", "name": path or "/"}


def _version_facet(version: int) -> dict[str, Any]:
    return {"version": _facet("1-0-0/DatasetVersionDatasetFacet", datasetVersion=str(version))}


def _facet(name: str, **fields: Any) -> dict[str, Any]:
    kind = name.rsplit("/", 1)[-1]
    return {"_producer": _PRODUCER, "_schemaURL": f"{_FACETS}/{name}.json#/$defs/{kind}", **fields}
