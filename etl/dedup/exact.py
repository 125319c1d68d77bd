"""Pair documents whose texts have equal content hashes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl

from etl.compute.shuffle import partitions_for, shuffle_by_range, task_batches
from etl.dedup.document_reader import DocumentReader
from etl.dedup.key_lookup import StoredKeys, halves
from etl.dedup.numbered_files import FILES_PER_FRAGMENT, NumberedFile, file_of, row_of
from etl.dedup.stored_file_list import StoredFileList
from etl.lake.keys_table import KeyFile

_KEYS = pd.DataFrame(
    {n: pd.Series(dtype="int64") for n in ("high", "low", "file", "row")}
    | {"rank": pd.Series(dtype="float64")}
)


_PAIRS = pd.DataFrame(
    {n: pd.Series(dtype="int64") for n in ("file", "row", "keeper_file", "keeper_row", "bucket")}
)


def find_equal(
    files: StoredFileList, lake: DocumentReader, keys: Sequence[KeyFile]
) -> tuple[dd.DataFrame, int]:
    """Return the undecided rows whose text equals that of a better row, and the number of partitions.

    The frame has the columns of ``_PAIRS``.
    """
    old = StoredKeys.of(keys, files, "exact")
    numbers, rows = files.chosen(lambda f: "exact" in f.kinds and "exact" not in f.keyed)
    partitions = partitions_for(int(rows.sum()), old.rows)
    new = files.frame(
        task_batches(numbers, rows),
        read=partial(_read_keys, lake=lake),
        meta=_KEYS,
        label="dedup_exact-keys",
    )
    new = shuffle_by_range(new, "low", partitions)
    return new.map_partitions(_PairEqual(old), meta=_PAIRS), partitions


def _read_keys(file: NumberedFile, *, lake: DocumentReader) -> pd.DataFrame:
    """Return the hash, address and rank of each document that may be a keeper or a duplicate."""
    table = lake.read(file, ["content_hash"])
    words = halves(table["content_hash"].combine_chunks())
    return pd.DataFrame(
        {
            "high": words[:, 1],
            "low": words[:, 0],
            "file": np.full(len(words), file.number, np.int64),
            "row": np.asarray(table["row"].combine_chunks()),
            "rank": np.asarray(table["rank"].combine_chunks()),
        }
    )


@dataclass(frozen=True)
class _PairEqual:
    """Partition task that pairs undecided duplicates with their keepers, old rows included."""

    old: StoredKeys

    def __call__(self, keys: pd.DataFrame) -> pd.DataFrame:
        matches = self.old.matching(keys["low"].to_numpy())
        old = pd.DataFrame(
            {
                "high": matches["check"],
                "low": matches["key"],
                "file": file_of(matches["address"].to_numpy()),
                "row": row_of(matches["address"].to_numpy()),
                "rank": np.full(len(matches), -np.inf),
            }
        )
        return _pairs(pd.concat([keys[_KEYS.columns], old]))


def _pairs(keys: pd.DataFrame) -> pd.DataFrame:
    """Return the undecided rows that are not the best of their hash, each with its keeper."""
    frame = pl.DataFrame({name: keys[name].to_numpy() for name in _KEYS.columns})
    pairs = (
        frame.filter(pl.len().over("high", "low") > 1)
        .sort("high", "low", "rank", "file", "row")
        .with_columns(
            keeper_file=pl.col("file").first().over("high", "low"),
            keeper_row=pl.col("row").first().over("high", "low"),
        )
        .filter(
            (pl.col("rank") > -np.inf)
            & ((pl.col("file") != pl.col("keeper_file")) | (pl.col("row") != pl.col("keeper_row")))
        )
        .with_columns(bucket=pl.col("file") // FILES_PER_FRAGMENT)
        .select(_PAIRS.columns.to_list())
    )
    return pd.DataFrame({name: pairs[name].to_numpy() for name in _PAIRS.columns})
