"""Read which documents a lake keeps, by unit of work."""

from collections.abc import Mapping
from typing import Final

import polars as pl
import pyarrow as pa

from etl import schemas
from etl.change.changed_units import files_by_unit
from etl.delta.live_rows import read_live_rows
from etl.delta.table import Table

_ADDRESS: Final = [*schemas.ADDRESS]


def kept_documents(documents: Table) -> dict[str, pa.Table]:
    """Return the addresses and content hashes of the kept documents by unit."""
    columns = [*_ADDRESS, "content_hash"]
    by_unit: dict[str, pa.Table] = {}
    for unit, files in files_by_unit(documents).items():
        kept = [file for file in files if file["partition.verdict"] == "kept" and file["rows"]]
        if parts := [read_live_rows(documents.url, file, columns) for file in kept]:
            by_unit[unit] = pa.concat_tables(parts)
    return by_unit


def rows_by_unit(kept: Mapping[str, pa.Table], chosen: pa.Table) -> dict[str, set[int]]:
    """Return the row numbers of chosen documents by unit, given the addresses of the kept ones and of these.

    >>> first, second = (pa.table({"source": [name] * 2, "row": [0, 1]}) for name in "ab")
    >>> rows_by_unit({"unit 1": first, "unit 2": second}, first[1:])
    {'unit 1': {1}}
    """
    if not chosen.num_rows:
        return {}
    addresses = pl.DataFrame(chosen.select(_ADDRESS))
    frames = {unit: pl.DataFrame(rows.select(_ADDRESS)) for unit, rows in kept.items()}
    found = {u: rows.join(addresses, on=_ADDRESS, how="semi")["row"] for u, rows in frames.items()}
    return {unit: {*rows} for unit, rows in found.items() if len(rows)}
