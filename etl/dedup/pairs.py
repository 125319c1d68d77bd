"""Join the pairs (dropped document, keeper) of two passes, and write them to `duplicates`."""

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Final

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from distributed import Client

from etl import schemas, storage
from etl.compute.shuffle import shuffle_by_value
from etl.compute.submit import compute_frame, map_unordered, to_tokenlake_error
from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import (
    FILES_PER_DUPLICATES_FILE,
    NumberedFile,
    address,
    file_of,
    row_of,
)
from etl.dedup.stored_file_list import StoredFileList
from etl.delta.data_file import DataFile, DataFileWriter
from etl.lake.table_specs import DUPLICATES

PAIRS: Final = pd.DataFrame(
    {name: pd.Series(dtype="int64") for name in ("file", "row", "keeper_file", "keeper_row")}
    | {"similarity": pd.Series(dtype="float64"), "is_estimate": pd.Series(dtype="bool")}
    | {"kind": pd.Series(dtype="int64")}
)
"""Dropped documents, each with its keeper. ``kind`` is an index into ``schemas.WHOLE``."""

Pairs = dd.DataFrame | pd.DataFrame
"""Pairs with the columns of ``PAIRS``, on the workers or on the driver."""

_BUCKETS = PAIRS.assign(bucket=pd.Series(dtype="int64"))
_RESULT = pd.DataFrame({"result": pd.Series(dtype=object)})


def collect_pairs(client: Client, pairs: Pairs) -> pd.DataFrame:
    """Return pairs on the driver."""
    if not isinstance(pairs, dd.DataFrame):
        return pairs
    collected: pd.DataFrame = compute_frame(client, pairs, label="duplicates-collect")
    return collected


def join_pairs(earlier: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of two passes; ``later`` leaves out the documents that ``earlier`` drops.

    If the later pass drops the keeper of an earlier pair, its document gets the keeper, similarity and kind
    of that later pair: its text is that of the dropped keeper. So no keeper is a duplicate itself.
    """
    moved = pd.DataFrame(
        {
            "keeper": address(later["file"].to_numpy(), later["row"].to_numpy()),
            "new_keeper": address(later["keeper_file"].to_numpy(), later["keeper_row"].to_numpy()),
            "new_similarity": later["similarity"].to_numpy(),
            "new_is_estimate": later["is_estimate"].to_numpy(),
            "new_kind": later["kind"].to_numpy(),
        }
    ).astype({"new_keeper": "Int64", "new_kind": "Int64", "new_is_estimate": "boolean"})
    # Int64 has nulls, as float64 has, but is exact beyond 2^53.
    keepers = address(earlier["keeper_file"].to_numpy(), earlier["keeper_row"].to_numpy())
    pairs = earlier.assign(keeper=keepers).merge(moved, on="keeper", how="left")
    new_keepers = pairs["new_keeper"].fillna(pairs["keeper"]).to_numpy(np.int64)
    kept = pairs.assign(
        keeper_file=file_of(new_keepers),
        keeper_row=row_of(new_keepers),
        similarity=pairs["new_similarity"].fillna(pairs["similarity"]),
        is_estimate=pairs["new_is_estimate"].fillna(pairs["is_estimate"]).astype("bool"),
        kind=pairs["new_kind"].fillna(pairs["kind"]).astype("int64"),
    )
    columns = list(PAIRS.columns)
    return pd.concat([later[columns], kept[columns]], ignore_index=True)


@dataclass(frozen=True)
class PairWriter:
    """Task that writes pairs to ``duplicates``, one data file per group of neighbouring data files."""

    files: StoredFileList
    lake: DocumentReader
    name: str  # prefix of the names of new data files

    def write(self, client: Client, pairs: Pairs) -> list[DataFile]:
        """Write all pairs on the workers and return the new data files."""
        results: Iterable[str]
        if isinstance(pairs, dd.DataFrame):
            results = self._write_shuffled(client, pairs)
        else:
            results = self._write_groups(client, pairs)
        return [DataFile(**fields) for text in results for fields in json.loads(text)]

    def _write_shuffled(self, client: Client, pairs: dd.DataFrame) -> list[str]:
        """Write pairs that are on the workers."""
        groups = 1 + len(self.files) // FILES_PER_DUPLICATES_FILE
        pairs = pairs.map_partitions(_with_buckets, meta=_BUCKETS)
        pairs = shuffle_by_value(pairs, "bucket", min(pairs.npartitions, groups))
        results = pairs.map_partitions(self._write_partition, meta=_RESULT)
        written: list[str] = compute_frame(client, results, label="duplicates-write")["result"]
        return written

    def _write_partition(self, pairs: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"result": pd.Series([self(pairs)], dtype=object)})

    def _write_groups(self, client: Client, pairs: pd.DataFrame) -> Iterator[str]:
        """Write pairs that are on the driver."""
        groups = [(group,) for _, group in _with_buckets(pairs).groupby("bucket")]
        with closing(map_unordered(client, self, groups, label="duplicates-write")) as answers:
            for _, answer in answers:
                if isinstance(answer, BaseException):
                    raise to_tokenlake_error(answer, "duplicates") from answer
                yield answer

    def __call__(self, pairs: pd.DataFrame) -> str:
        """Write the pairs of some buckets and return the fields of the new data files as JSON."""
        written: list[dict[str, Any]] = []
        keepers = self.files.fields(np.unique(pairs["keeper_file"].to_numpy()), ["source", "lake"])
        for _, group in pairs.sort_values(["bucket", "file", "row"]).groupby("bucket"):
            url, schema = self.lake.duplicates, self.lake.duplicates_schema
            writer = DataFileWriter(url, schema, DUPLICATES.layout, name=self.name)
            files = self.files.take(np.unique(group["file"].to_numpy()))
            for file, (_, rows) in zip(files, group.groupby("file"), strict=True):
                writer.append(self._rows(file, rows, keepers.loc[rows["keeper_file"]]))
            written.extend(asdict(data_file) for data_file in writer.close())
        return json.dumps(written)

    def _rows(self, file: NumberedFile, pairs: pd.DataFrame, keepers: pd.DataFrame) -> pa.Table:
        """Return the rows for the pairs of one file.

        ``keepers`` has, for each pair, the source and lake of its keeper's data file.
        """
        with storage.open_input(self.lake.uri(file)) as source:
            ids = pq.read_table(source, columns=["row", "id"], use_threads=False)
        rows = pa.array(pairs["row"].to_numpy())
        size, schema = len(rows), self.lake.duplicates_schema
        columns = {
            "source": pa.array([file.source] * size),
            "row": rows,
            "id": ids["id"].take(pc.index_in(rows, ids["row"].combine_chunks())),
            "keeper_source": pa.array(keepers["source"]),
            "keeper_row": pa.array(pairs["keeper_row"].to_numpy()),
            "kind": pa.array(schemas.WHOLE).take(pa.array(pairs["kind"].to_numpy())),
            "similarity": pa.array(pairs["similarity"].to_numpy()),
            "file": pa.array([file.path] * size),
            "is_estimate": pa.array(pairs["is_estimate"].to_numpy()),
            "keeper_lake": pa.array(keepers["lake"]),
        }
        values = [
            columns.get(name, pa.nulls(size, schema.field(name).type)) for name in schema.names
        ]
        return pa.table(values, schema=schema)


def _with_buckets(pairs: pd.DataFrame) -> pd.DataFrame:
    return pairs.assign(bucket=pairs["file"] // FILES_PER_DUPLICATES_FILE)
