"""Data files of the tables ``texts`` and ``documents`` with chosen hashes."""

from typing import Any

import pyarrow as pa

from etl import schemas, storage
from etl.delta.logical_file import LogicalFile
from etl.lake.table_specs import DOCUMENTS, TEXTS
from etl.lake.work_units import WorkUnit
from etl.parquet.data_file import DataFileWriter


def write_documents(lake: str, number: int, hashes: list[int], **columns: list[Any]) -> WorkUnit:
    """Write the data files of a unit of work whose documents have the given hashes."""
    size, key = len(hashes), f"{number:032}"
    source = f"s3://raw/{number:03}"
    values: dict[str, Any] = {
        "id": [f"{number}-{row}" for row in range(size)],
        "source": [source] * size,
        "row": list(range(size)),
        "text": [str(value) for value in hashes],
        "content_hash": [value.to_bytes(16, "little") for value in hashes],
        "verdict": ["kept"] * size,
        **columns,
    }
    files, sizes = [], []
    for spec, schema in ((DOCUMENTS, schemas.documents([])), (TEXTS, schemas.texts())):
        url = storage.join(lake, spec.name)
        columns = {name: values.get(name, [None] * size) for name in schema.names}
        partition = {"verdict": "kept"}
        writer = DataFileWriter(url, schema, spec.layout, name=key, partition=partition)
        writer.append(pa.table(columns, schema=schema))
        (data_file,) = writer.close()
        files.append(LogicalFile(data_file.path))
        sizes.append(data_file.size)
    return WorkUnit(
        key=key,
        source=source,
        files=(files[1],),
        rows=size,
        size=sizes[1],
        first_row=0,
        last_row=size - 1,
        judged=(files[0],),
    )
