"""Data files of the table ``documents`` with chosen hashes."""

from typing import Any

import pyarrow as pa

from etl import schemas
from etl.lake.table_specs import DOCUMENTS
from etl.lake.work_units import WorkUnit
from etl.parquet.data_file import DataFileWriter


def write_documents(url: str, number: int, hashes: list[int], **columns: list[Any]) -> WorkUnit:
    """Write a data file of ``documents`` whose rows have the given hashes."""
    schema = schemas.documents([])
    size = len(hashes)
    values: dict[str, Any] = {name: [None] * size for name in schema.names}
    values |= {
        "id": [f"{number}-{row}" for row in range(size)],
        "source": [f"s3://raw/{number:03}"] * size,
        "row": list(range(size)),
        "text": [str(value) for value in hashes],
        "content_hash": [value.to_bytes(16, "little") for value in hashes],
        "verdict": ["kept"] * size,
        **columns,
    }
    writer = DataFileWriter(
        url, schema, DOCUMENTS.layout, name=f"{number:032}", partition={"verdict": "kept"}
    )
    writer.append(pa.table(values, schema=schema))
    (fragment,) = writer.close()
    return WorkUnit(f"{number:032}", f"s3://raw/{number:03}", (fragment.path,), size, fragment.size)
