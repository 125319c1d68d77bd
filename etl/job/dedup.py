"""The one barrier: which kept documents are the same as another one, over the whole lake.

Only integers are shuffled: the 128-bit content hash as two of them, and the row's address as (number of
its data file, row). Text never moves. Rows that were decided by an earlier run win, so that what is
already in ``tokens`` stays; among new ones the first by address wins. The result does not depend on
partitioning or timing. Cost: 32 bytes a row through the shuffle, and the duplicates once more.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client

import schemas
from etl import storage
from etl.fragment import DUPLICATES, Fragment, FragmentWriter
from etl.job.decisions import Decisions, duplicate_rows
from etl.plan import Unit

_KEYS = pd.DataFrame(
    {n: pd.Series(dtype="int64") for n in ("high", "low", "file", "row", "decided")}
)
_PAIRS = pd.DataFrame(
    {n: pd.Series(dtype="int64") for n in ("file", "row", "keeper_file", "keeper_row", "bucket")}
)
_RESULT = pd.DataFrame({"result": pd.Series(dtype=object)})
_FILES_PER_FRAGMENT = 64  # a fragment of ``duplicates`` names rows of so many neighbouring files
_ROWS_PER_PARTITION = 4_000_000  # 160 MB of keys


@dataclass(frozen=True)
class DataFile:
    """One data file of ``documents`` with kept rows; its number orders it by address."""

    number: int
    source: str
    path: str
    rows: int
    decided: bool
    duplicates: tuple[str, ...]  # data files of ``duplicates`` that may name rows of it


def data_files(units: Sequence[Unit], decisions: Decisions) -> list[DataFile]:
    """The data files of units (in the order of their addresses), numbered in that order."""
    pairs = [(unit, path) for unit in units for path in unit.paths]
    return [
        DataFile(
            number,
            unit.source,
            path,
            unit.rows,
            decided=(decided := decisions.include(unit)),
            duplicates=decisions.files(unit.source) if decided else (),
        )
        for number, (unit, path) in enumerate(pairs)
    ]


def find_exact(
    client: Client, files: Sequence[DataFile], *, documents: str, duplicates: str, name: str
) -> list[Fragment]:
    """Write the exact duplicates among undecided rows to fragments of ``duplicates``; return these.

    ``documents`` and ``duplicates`` are table URLs, ``name`` the head of the new files' names.
    """
    partitions = 1 + sum(file.rows for file in files) // _ROWS_PER_PARTITION
    keys = dd.from_map(
        _read_keys,
        list(files),
        documents=documents,
        duplicates=duplicates,
        meta=_KEYS,
        label="dedup_exact-keys",
    )
    keys = _together(keys, "low", partitions)
    pairs = _together(keys.map_partitions(_pairs, meta=_PAIRS), "bucket", min(partitions, 64))
    writer = _WritePairs(tuple(files), documents, duplicates, name)
    written = pairs.map_partitions(writer, meta=_RESULT)
    found = client.compute(written).result()["result"]
    return [Fragment(**fragment) for text in found for fragment in json.loads(text)]


def _together(frame: dd.DataFrame, column: str, partitions: int) -> dd.DataFrame:
    """The frame with equal values of a column in one partition."""
    if partitions == 1:
        return frame.repartition(npartitions=1)
    return frame.shuffle(column, npartitions=partitions)


def _read_keys(file: DataFile, *, documents: str, duplicates: str) -> pd.DataFrame:
    """A row for each document that may be a keeper or a duplicate: hash, address, decided or not."""
    with storage.open_input(storage.join(documents, file.path)) as source:
        table = pq.read_table(source, columns=["content_hash", "row"], use_threads=False)
    if file.duplicates:  # what is one already is neither
        known = duplicate_rows(duplicates, file.duplicates, [file.path])
        table = table.filter(pa.array(~np.isin(np.asarray(table["row"].combine_chunks()), known)))
    hashes = table["content_hash"].combine_chunks().cast(pa.binary(16))
    words = np.frombuffer(hashes.buffers()[1], np.int64).reshape(-1, 2)[: len(hashes)]
    return pd.DataFrame(
        {
            "high": words[:, 0],
            "low": words[:, 1],
            "file": np.full(len(words), file.number, np.int64),
            "row": np.asarray(table["row"].combine_chunks()),
            "decided": np.full(len(words), int(file.decided), np.int64),
        }
    )


def _pairs(keys: pd.DataFrame) -> pd.DataFrame:
    """The undecided rows that are not the first of their hash, each with its keeper."""
    frame = pl.DataFrame({name: keys[name].to_numpy() for name in _KEYS.columns})
    found = (
        frame.filter(pl.len().over("high", "low") > 1)
        .sort("high", "low", -pl.col("decided"), "file", "row")
        .with_columns(
            keeper_file=pl.col("file").first().over("high", "low"),
            keeper_row=pl.col("row").first().over("high", "low"),
        )
        .filter(
            (pl.col("decided") == 0)
            & ((pl.col("file") != pl.col("keeper_file")) | (pl.col("row") != pl.col("keeper_row")))
        )
        .with_columns(bucket=pl.col("file") // _FILES_PER_FRAGMENT)
        .select(_PAIRS.columns.to_list())
    )
    return pd.DataFrame({name: found[name].to_numpy() for name in _PAIRS.columns})


@dataclass(frozen=True)
class _WritePairs:
    """Pairs -> rows of ``duplicates``, one fragment per group of neighbouring data files."""

    files: tuple[DataFile, ...]
    documents: str
    duplicates: str
    name: str

    def __call__(self, pairs: pd.DataFrame) -> pd.DataFrame:
        fragments: list[dict[str, Any]] = []
        for _, group in pairs.sort_values(["bucket", "file", "row"]).groupby("bucket"):
            writer = FragmentWriter(self.duplicates, schemas.DUPLICATES, DUPLICATES, name=self.name)
            for number, rows in group.groupby("file"):
                writer.append(self._rows(self.files[int(str(number))], rows))
            fragments.extend(asdict(fragment) for fragment in writer.close())
        return pd.DataFrame({"result": pd.Series([json.dumps(fragments)], dtype=object)})

    def _rows(self, file: DataFile, pairs: pd.DataFrame) -> pa.Table:
        with storage.open_input(storage.join(self.documents, file.path)) as source:
            ids = pq.read_table(source, columns=["row", "id"], use_threads=False)
        rows = pa.array(pairs["row"].to_numpy())
        keepers = [self.files[number].source for number in pairs["keeper_file"]]
        size = len(rows)
        return pa.table(
            {
                "source": pa.array([file.source] * size),
                "row": rows,
                "id": ids["id"].take(pa.compute.index_in(rows, ids["row"].combine_chunks())),
                "keeper_source": pa.array(keepers),
                "keeper_row": pa.array(pairs["keeper_row"].to_numpy()),
                "kind": pa.array(["exact"] * size),
                "similarity": pa.array(np.ones(size)),
                "file": pa.array([file.path] * size),
            },
            schema=schemas.DUPLICATES,
        )
