"""Join the pairs (dropped document, keeper) of two passes, and write them to `duplicates`, on the workers."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from distributed import Client

from etl import schemas
from etl.compute.compute_frames import compute_frame
from etl.compute.frame_shuffles import shuffle_by_value
from etl.compute.frame_tasks import map_frames
from etl.dedup.document_reader import DocumentReader
from etl.dedup.file_groups import group_of, shuffle_by_group
from etl.dedup.numbered_files import NumberedFile, file_of, row_of
from etl.dedup.stored_file_list import StoredFileList
from etl.lake.table_specs import DUPLICATES
from etl.parquet.data_file import DataFile, DataFileWriter

PAIRS: Final = pd.DataFrame(
    {name: pd.Series(dtype="int64") for name in ("document", "keeper")}
    | {"similarity": pd.Series(dtype="float64"), "is_estimate": pd.Series(dtype="bool")}
    | {"kind": pd.Series(dtype="int64")}
)
"""Addresses of dropped documents, each with its keeper. ``kind`` is an index into ``schemas.WHOLE``."""

_BUCKETS = PAIRS.assign(bucket=pd.Series(dtype="int64"))
_WRITTEN = pd.DataFrame({"data_files": pd.Series(dtype=object)})


def join_pairs(earlier: dd.DataFrame, later: dd.DataFrame) -> dd.DataFrame:
    """Return the pairs of two passes; ``later`` leaves out the documents that ``earlier`` drops.

    If the later pass drops the keeper of an earlier pair, its document gets the keeper, similarity and kind
    of that later pair: its text is that of the dropped keeper. So no keeper is a duplicate itself. Both are
    shuffled by the document that a pair of each may share: the earlier keeper, which the later pass drops.
    """
    partitions = max(earlier.npartitions, later.npartitions)
    earlier = shuffle_by_value(earlier, "keeper", partitions)
    later = shuffle_by_value(later, "document", partitions)
    return map_frames("pairs.join", replace_dropped_keepers, earlier, later, meta=PAIRS)


def replace_dropped_keepers(earlier: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """Return what ``join_pairs`` returns, for the pairs of one partition."""
    moved = later.set_index("document")
    positions = moved.index.get_indexer(pd.Index(earlier["keeper"]))
    is_moved = positions >= 0
    kept, moved = earlier[~is_moved], moved.iloc[positions[is_moved]]
    moved = moved.assign(document=earlier["document"].to_numpy()[is_moved])
    columns = list(PAIRS.columns)
    return pd.concat([later[columns], kept[columns], moved[columns]], ignore_index=True)


@dataclass(frozen=True)
class PairWriter:
    """Partition task that writes pairs, one data file per group of neighbouring files."""

    files: StoredFileList
    reader: DocumentReader
    name: str  # prefix of the names of new data files

    def write(self, client: Client, pairs: dd.DataFrame) -> list[DataFile]:
        """Write all pairs on the workers and return the new data files."""
        pairs = map_frames("pairs.group", _with_buckets, pairs, meta=_BUCKETS)
        pairs = shuffle_by_group(pairs, self.files)
        results = map_frames("pairs.write", self, pairs, meta=_WRITTEN)
        written = compute_frame(client, results, label="duplicates")
        return [DataFile(**fields) for text in written["data_files"] for fields in json.loads(text)]

    def __call__(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Write the pairs of some buckets and return the fields of the new data files as JSON."""
        return pd.DataFrame({"data_files": [json.dumps(self._write(pairs))]})

    def _write(self, pairs: pd.DataFrame) -> list[dict[str, Any]]:
        written: list[dict[str, Any]] = []
        if pairs.empty:
            return written
        keeper_files = np.unique(file_of(pairs["keeper"].to_numpy()))
        keepers = self.files.fields(keeper_files, ["source", "lake"])
        for _, group in pairs.sort_values(["bucket", "document"]).groupby("bucket"):
            url, schema = self.reader.duplicates, self.reader.duplicates_schema
            writer = DataFileWriter(url, schema, DUPLICATES.layout, name=self.name)
            numbers = file_of(group["document"].to_numpy())
            files = self.files.take(np.unique(numbers))
            for file, (_, rows) in zip(files, group.groupby(numbers), strict=True):
                writer.append(
                    self._rows(file, rows, keepers.loc[file_of(rows["keeper"].to_numpy())])
                )
            written.extend(asdict(data_file) for data_file in writer.close())
        return written

    def _rows(self, file: NumberedFile, pairs: pd.DataFrame, keepers: pd.DataFrame) -> pa.Table:
        """Return the rows for the pairs of one file.

        ``keepers`` has, for each pair, the source and lake of its keeper.
        """
        ids = self.reader.read_all(file, ["row", "id"])
        rows = pa.array(row_of(pairs["document"].to_numpy()))
        size, schema = len(rows), self.reader.duplicates_schema
        columns = {
            "source": pa.array([file.source] * size),
            "row": rows,
            "id": ids["id"].take(pc.index_in(rows, ids["row"].combine_chunks())),
            "keeper_source": pa.array(keepers["source"]),
            "keeper_row": pa.array(row_of(pairs["keeper"].to_numpy())),
            "kind": pa.array(schemas.WHOLE).take(pa.array(pairs["kind"].to_numpy())),
            "similarity": pa.array(pairs["similarity"].to_numpy()),
            "unit": pa.array([file.unit] * size),
            "is_estimate": pa.array(pairs["is_estimate"].to_numpy()),
            "keeper_lake": pa.array(keepers["lake"]),
        }
        values = [
            columns.get(name, pa.nulls(size, schema.field(name).type)) for name in schema.names
        ]
        return pa.table(values, schema=schema)


def _with_buckets(pairs: pd.DataFrame) -> pd.DataFrame:
    return pairs.assign(bucket=group_of(pairs["document"].to_numpy()))
