"""Pairs of a dropped document and its keeper, and their rows in ``duplicates``."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from etl import schemas
from etl.dedup.document_reader import DocumentReader
from etl.dedup.file_groups import group_of
from etl.dedup.numbered_files import FileList, NumberedFile, file_of, row_of
from etl.lake.table_specs import DUPLICATES
from etl.parquet.data_file import DataFile, DataFileWriter

PAIRS: Final = pd.DataFrame(
    {name: pd.Series(dtype="int64") for name in ("document", "keeper")}
    | {"similarity": pd.Series(dtype="float64"), "is_estimate": pd.Series(dtype="bool")}
    | {"kind": pd.Series(dtype="int64")}
)
"""Addresses of dropped documents, each with its keeper. ``kind`` is an index into ``schemas.WHOLE``."""


def replace_dropped_keepers(earlier: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """Return what ``join_pairs`` returns, for the pairs of one partition."""
    moved = later.set_index("document")
    positions = moved.index.get_indexer(pd.Index(earlier["keeper"]))
    is_moved = positions >= 0
    kept, moved = earlier[~is_moved], moved.iloc[positions[is_moved]]
    moved = moved.assign(document=earlier["document"].to_numpy()[is_moved])
    columns = list(PAIRS.columns)
    return pd.concat([later[columns], kept[columns], moved[columns]], ignore_index=True)


def write_pairs(
    pairs: pd.DataFrame, files: FileList, reader: DocumentReader, name: str
) -> Iterator[DataFile]:
    """Write pairs to ``duplicates``, and yield the data files: one for each group of neighbouring files.

    ``name`` is the prefix of their names.
    """
    if pairs.empty:
        return
    keeper_files = np.unique(file_of(pairs["keeper"].to_numpy()))
    keepers = files.fields(keeper_files, ["source", "lake"])
    pairs = pairs.sort_values("document")
    for _, group in pairs.groupby(group_of(pairs["document"].to_numpy())):
        url, schema = reader.duplicates, reader.duplicates_schema
        writer = DataFileWriter(url, schema, DUPLICATES.layout, name=name)
        numbers = file_of(group["document"].to_numpy())
        for file, (_, rows) in zip(
            files.take(np.unique(numbers)), group.groupby(numbers), strict=True
        ):
            of_keepers = keepers.loc[file_of(rows["keeper"].to_numpy())]
            writer.append(_rows(file, rows, of_keepers, reader))
        yield from writer.close()


def _rows(
    file: NumberedFile, pairs: pd.DataFrame, keepers: pd.DataFrame, reader: DocumentReader
) -> pa.Table:
    """Return the rows for the pairs of one file.

    ``keepers`` has, for each pair, the source and lake of its keeper.
    """
    rows = row_of(pairs["document"].to_numpy())
    size, schema = len(rows), reader.duplicates_schema
    columns = {
        "source": pa.array([file.source] * size),
        "row": pa.array(rows),
        "id": reader.read_rows(file, rows, "id"),
        "keeper_source": pa.array(keepers["source"]),
        "keeper_row": pa.array(row_of(pairs["keeper"].to_numpy())),
        "kind": pa.array(schemas.WHOLE).take(pa.array(pairs["kind"].to_numpy())),
        "similarity": pa.array(pairs["similarity"].to_numpy()),
        "unit": pa.array([file.unit] * size),
        "is_estimate": pa.array(pairs["is_estimate"].to_numpy()),
        "keeper_lake": pa.array(keepers["lake"]),
    }
    values = [columns.get(name, pa.nulls(size, schema.field(name).type)) for name in schema.names]
    return pa.table(values, schema=schema)
