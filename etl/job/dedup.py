"""Document deduplication over the whole lake: exact duplicates, then near-duplicates.

Only numbers are shuffled: the 128-bit content hash as two integers, the row's address as (data file number,
row), and its rank. Text never moves. Rows decided by an earlier run win, so documents that are already in
``tokens`` stay; among new rows the one with the best rank wins, or the first by address. Documents kept by
another lake win over both. The result does not depend on partitioning or timing.

Cost: 40 bytes per new row through the shuffle, and the duplicates a second time; keys of old rows are looked
up in the table ``keys`` (``etl.job.keys``). Near-duplicates are searched for among the documents that exact
deduplication keeps (``etl.job.near``); the driver then holds 56 bytes per duplicate of either kind.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
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
from etl.job import near
from etl.job.files import FILES_PER_FRAGMENT, DataFile, Lake, file_of, row_of
from etl.job.keys import KeyFile, OldKeys, halves
from etl.job.listed import FileList, listed
from etl.job.shuffle import by_range, partitions_for, parts, together
from etl.job.waves import as_ours, compute, stream

_KEYS = pd.DataFrame(
    {n: pd.Series(dtype="int64") for n in ("high", "low", "file", "row")}
    | {"rank": pd.Series(dtype="float64")}
)
_PAIRS = pd.DataFrame(
    {n: pd.Series(dtype="int64") for n in ("file", "row", "keeper_file", "keeper_row", "bucket")}
)
_RESULT = pd.DataFrame({"result": pd.Series(dtype=object)})


def find(
    client: Client,
    files: Iterable[DataFile],
    lake: Lake,
    *,
    name: str,
    has_exact: bool = True,
    keys: Sequence[KeyFile] = (),
) -> list[Fragment]:
    """Write the duplicates among undecided rows to fragments of ``duplicates`` and return the fragments.

    ``name`` is the prefix of the new files' names. Near-duplicates are searched for if the lake has a stage
    for them; with ``has_exact``, equal texts are reported as exact duplicates instead of near ones. ``keys``
    are data files of the table ``keys`` with the keys of the ``files`` that are marked as keyed; the other
    files are read.
    """
    if lake.stage is None and not has_exact:
        return []
    with listed(files, lake.duplicates, name) as numbered:
        equal, partitions = _equal_texts(numbered, lake, keys)
        writer = _WritePairs(numbered, lake, name)
        if lake.stage is None:
            groups = 1 + len(numbered) // FILES_PER_FRAGMENT
            pairs = together(equal, "bucket", min(partitions, groups))
            results = pairs.map_partitions(writer.of, meta=_RESULT)
            written = compute(client, results, label="dedup_exact")["result"]
            return [Fragment(**fragment) for text in written for fragment in json.loads(text)]
        # Only the best of equal texts enters the near search, so no keeper is itself a duplicate.
        equal_pairs = compute(client, equal, label="dedup_exact")
        duplicates = near.find(
            client, numbered, lake, equal=equal_pairs, has_exact=has_exact, keys=keys
        )
        return _write_pairs(client, writer, duplicates)


def _write_pairs(client: Client, writer: "_WritePairs", pairs: pd.DataFrame) -> list[Fragment]:
    pairs["bucket"] = pairs["file"] // FILES_PER_FRAGMENT
    groups = [(group,) for _, group in pairs.groupby("bucket")]
    fragments: list[Fragment] = []
    with closing(stream(client, writer, groups, label="dedup_minhash-write")) as answers:
        for _, answer in answers:
            if isinstance(answer, BaseException):
                raise as_ours(answer, "dedup_minhash") from answer
            fragments.extend(Fragment(**fragment) for fragment in json.loads(answer))
    return fragments


def _equal_texts(files: FileList, lake: Lake, keys: Sequence[KeyFile]) -> tuple[dd.DataFrame, int]:
    """Return the undecided rows whose text equals that of a better row, and the number of partitions.

    The frame has the columns of ``_PAIRS``.
    """
    old = OldKeys.of(keys, files, "exact")
    numbers, rows = files.chosen(lambda f: "exact" in f.kinds and "exact" not in f.keyed)
    partitions = partitions_for(int(rows.sum()), old.rows)
    new = files.frame(
        parts(numbers, rows),
        read=partial(_read_keys, lake=lake),
        meta=_KEYS,
        label="dedup_exact-keys",
    )
    new = by_range(new, "low", partitions)
    return new.map_partitions(_PairEqual(old), meta=_PAIRS), partitions


def _read_keys(file: DataFile, *, lake: Lake) -> pd.DataFrame:
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

    old: OldKeys

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


@dataclass(frozen=True)
class _WritePairs:
    """Task that writes pairs to ``duplicates``, one fragment per group of neighbouring data files."""

    files: FileList
    lake: Lake
    name: str

    def of(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Write a partition of exact pairs and return the result as a one-row frame."""
        pairs = pairs.assign(similarity=1.0, is_near=False)
        return pd.DataFrame({"result": pd.Series([self(pairs)], dtype=object)})

    def __call__(self, pairs: pd.DataFrame) -> str:
        fragments: list[dict[str, Any]] = []
        keepers = self.files.fields(np.unique(pairs["keeper_file"].to_numpy()), ["source", "lake"])
        for _, group in pairs.sort_values(["bucket", "file", "row"]).groupby("bucket"):
            url = self.lake.duplicates
            writer = FragmentWriter(url, self.lake.schema, DUPLICATES, name=self.name)
            files = self.files.take(np.unique(group["file"].to_numpy()))
            for file, (_, rows) in zip(files, group.groupby("file"), strict=True):
                writer.append(self._rows(file, rows, keepers.loc[rows["keeper_file"]]))
            fragments.extend(asdict(fragment) for fragment in writer.close())
        return json.dumps(fragments)

    def _rows(self, file: DataFile, pairs: pd.DataFrame, keepers: pd.DataFrame) -> pa.Table:
        """Return the rows for the pairs of one file.

        ``keepers`` has, for each pair, the source and lake of its keeper's data file.
        """
        with storage.open_input(self.lake.uri(file)) as source:
            ids = pq.read_table(source, columns=["row", "id"], use_threads=False)
        rows = pa.array(pairs["row"].to_numpy())
        lakes = {"keeper_lake": pa.array(keepers["lake"])}
        size = len(rows)
        table = pa.table(
            {
                "source": pa.array([file.source] * size),
                "row": rows,
                "id": ids["id"].take(pa.compute.index_in(rows, ids["row"].combine_chunks())),
                "keeper_source": pa.array(keepers["source"]),
                "keeper_row": pa.array(pairs["keeper_row"].to_numpy()),
                "kind": pa.array(np.where(pairs["is_near"], "near", "exact").tolist()),
                "similarity": pa.array(pairs["similarity"].to_numpy()),
                "file": pa.array([file.path] * size),
                **(lakes if self.lake.has_references else {}),
            },
            schema=pa.schema([f for f in self.lake.schema if f.name not in schemas.CUTS.names]),
        )
        return pa.concat_tables([self.lake.schema.empty_table(), table], promote_options="default")
