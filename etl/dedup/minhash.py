"""Near-duplicates over the whole lake: from bands of signatures to documents and their keepers.

1. Of each signature each band becomes a key, and the keys are brought together: the documents of one
   key are compared with the best ones among them (all with all, up to 64).
2. Such a pair goes to the data file of its one document, takes the signature along to that of the other
   one, and stays if the two agree in enough numbers.
3. If the recipe asks for it, the shingles of the texts of these pairs are counted.
4. Of the documents of these pairs those that stay are chosen (``etl.dedup.choose_keepers``).

Only numbers are shuffled: 24 bytes a band of each new document, and about 500 bytes for each pair that is
compared; the driver's share is bounded (``etl.dedup.choose_keepers``). A run that adds files finds the documents
that stay by their keys (``etl.dedup.key_writer``), and reads of them the signatures of candidates alone. Its result
is that of one run over all files, with ``keep: first`` and while no key has more than 64 documents, if the
new files come after the old ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from distributed import Client
from numpy.typing import NDArray

from etl.compute.shuffle import partitions_for, shuffle_by_range, shuffle_by_value, task_batches
from etl.dedup import choose_keepers
from etl.dedup.document_reader import DocumentReader
from etl.dedup.key_lookup import StoredKeys, keys_of_bands
from etl.dedup.numbered_files import NumberedFile, address, file_of, of_files, row_of
from etl.dedup.similarity import (
    ENDS,
    FILES_PER_BUCKET,
    SIMILAR_PAIRS,
    SimilarityCheck,
    bucket_of,
    empty_pairs,
)
from etl.dedup.stored_file_list import StoredFileList
from etl.kernels.hashing.sorted_sets import repeated
from etl.lake.keys_table import KeyFile

_MAX_BEST = 64  # documents of one key that all others of it are compared with
_MAX_PAIRS = 1 << 16  # of one key, as long as each is compared with one

_BANDS = empty_pairs(key="int64", address="int64", rank="float64")
_COMPARED = empty_pairs(**ENDS, bucket="int64")


def find_similar(
    client: Client,
    files: StoredFileList,
    lake: DocumentReader,
    *,
    equal: pd.DataFrame,
    has_exact: bool,
    keys: Sequence[KeyFile] = (),
) -> pd.DataFrame:
    """The undecided duplicates, given ``equal``: those whose texts are those of better ones.

    Columns ``file``, ``row``, ``keeper_file``, ``keeper_row`` int64 (as ``equal``), ``similarity`` float64,
    ``is_near`` bool. Equal texts are near ones, too, if the recipe does not ask for exact duplicates.
    ``keys`` are data files with the keys of those ``files`` that say so; the others are read.
    """
    chosen = choose_keepers.choose_keepers(client, _alike(files, lake, equal, keys))
    return _with_twins(chosen, equal, has_exact=has_exact)


def _with_twins(near: pd.DataFrame, equal: pd.DataFrame, *, has_exact: bool) -> pd.DataFrame:
    """The near-duplicates and the equal texts: a twin of a near-duplicate is one of the same keeper."""
    twins = pd.DataFrame(
        {
            "document": address(equal["file"].to_numpy(), equal["row"].to_numpy()),
            "twin": address(equal["keeper_file"].to_numpy(), equal["keeper_row"].to_numpy()),
        }
    )
    nullable = near.rename(columns={"document": "twin"}).astype({"keeper": "Int64"})
    twins = twins.merge(nullable, on="twin", how="left")
    twins["is_near"] = twins["keeper"].notna() | (not has_exact)
    twins["keeper"] = twins["keeper"].fillna(twins["twin"]).astype("int64")
    twins["similarity"] = twins["similarity"].fillna(1.0)
    found = pd.concat([near.assign(is_near=True), twins], ignore_index=True)
    documents, kept_by = found["document"].to_numpy(), found["keeper"].to_numpy()
    return pd.DataFrame(
        {
            "file": file_of(documents),
            "row": row_of(documents),
            "keeper_file": file_of(kept_by),
            "keeper_row": row_of(kept_by),
            "similarity": found["similarity"].to_numpy(),
            "is_near": found["is_near"].to_numpy(),
        }
    )


def _alike(
    files: StoredFileList, lake: DocumentReader, equal: pd.DataFrame, keys: Sequence[KeyFile]
) -> dd.DataFrame:
    """The pairs that are alike, as ``SIMILAR_PAIRS``."""
    assert lake.stage is not None
    old = StoredKeys.of(keys, files, "near")
    numbers, rows = files.chosen(lambda f: "near" in f.kinds and "near" not in f.keyed)
    partitions = partitions_for(int(rows.sum()) * lake.stage.bands, old.rows)
    read = task_batches(numbers, rows * lake.stage.bands)
    left_out = np.sort(address(equal["file"].to_numpy(), equal["row"].to_numpy()))
    bands = files.frame(
        read,
        [of_files(left_out, part) for part in read],
        read=partial(_read_bands, lake=lake),
        meta=_BANDS,
        label="dedup_minhash-bands",
    )
    compared = shuffle_by_range(bands, "key", partitions).map_partitions(
        _Compare(old), meta=_COMPARED
    )
    buckets = 1 if partitions == 1 else min(4 * partitions, 1 + len(files) // FILES_PER_BUCKET)
    likeness = SimilarityCheck(files, lake)
    signed = shuffle_by_value(compared, "bucket", buckets).map_partitions(
        likeness.sign, meta=likeness.meta()
    )
    alike = shuffle_by_value(signed, "bucket", buckets).map_partitions(
        likeness.compare, meta=SIMILAR_PAIRS
    )
    if lake.stage.verify == "exact":
        alike = shuffle_by_value(alike, "bucket", buckets).map_partitions(
            likeness.count, meta=SIMILAR_PAIRS
        )
    return alike


def _read_bands(
    file: NumberedFile, left_out: NDArray[np.int64], *, lake: DocumentReader
) -> pd.DataFrame:
    """The keys of the bands of each document that may be a keeper or a duplicate."""
    assert lake.stage is not None
    table = lake.read(file, ["signature"])
    table = table.filter(pc.is_valid(table["signature"]))
    rows = address(np.int64(file.number), np.asarray(table["row"].combine_chunks()))
    stays = ~np.isin(rows, left_out)
    table, rows = table.filter(pa.array(stays)), rows[stays]
    keys = keys_of_bands(lake.stage, table["signature"].combine_chunks())
    return pd.DataFrame(
        {
            "key": keys.ravel(),
            "address": np.repeat(rows, keys.shape[1]),
            "rank": np.repeat(np.asarray(table["rank"].combine_chunks()), keys.shape[1]),
        }
    )


@dataclass(frozen=True)
class _Compare:
    """New bands of a range -> the pairs that these and the old ones of equal keys make."""

    old: StoredKeys

    def __call__(self, bands: pd.DataFrame) -> pd.DataFrame:
        known = self.old.matching(bands["key"].to_numpy())[["key", "address"]]
        return candidates(pd.concat([bands[_BANDS.columns], known.assign(rank=-np.inf)]))


def candidates(bands: pd.DataFrame) -> pd.DataFrame:
    """The pairs that a key brings together, each once: undecided documents with better ones."""
    keys, rows, ranks = (bands[name].to_numpy() for name in _BANDS.columns)
    order = repeated(keys)  # few of them, mostly
    order = order[np.lexsort((rows[order], ranks[order], keys[order]))]
    keys, rows, ranks = keys[order], rows[order], ranks[order]
    size = len(keys)
    is_first = np.ones(size, np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    starts = np.flatnonzero(is_first)
    sizes = np.diff(starts, append=size)
    group = np.cumsum(is_first) - 1
    place = np.arange(size) - starts[group]
    best = np.clip(_MAX_PAIRS // np.maximum(sizes, 1), 1, _MAX_BEST)[group]
    counts = np.where(ranks == -np.inf, 0, np.minimum(place, best))
    worse = np.repeat(np.arange(size), counts)
    nth = np.arange(len(worse)) - np.repeat(np.cumsum(counts) - counts, counts)
    better = starts[group[worse]] + nth
    pairs = pd.DataFrame(
        {
            "better": rows[better],
            "worse": rows[worse],
            "better_rank": ranks[better],
            "worse_rank": ranks[worse],
            "bucket": bucket_of(rows[better]),
        }
    )
    return pairs.drop_duplicates(["better", "worse"])
