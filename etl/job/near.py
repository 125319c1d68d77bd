"""Near-duplicates over the whole lake: from bands of signatures to documents and their keepers.

1. Of each signature each band becomes a key, and the keys are brought together: the documents of one
   key are compared with the best ones among them (all with all, up to 64).
2. Such a pair goes to the data file of its one document, takes the signature along to that of the other
   one, and stays if the two agree in enough numbers.
3. If the recipe asks for it, the shingles of the texts of these pairs are counted.
4. The driver chooses who stays (``etl.kernels.keepers``).

Only numbers are shuffled: 24 bytes a band of each document, and about 500 bytes for each pair that is
compared; the driver holds 40 bytes for each pair that is alike. A run that adds files reads all signatures
again. Its result is that of one run over all files, with ``keep: first`` and while no key has more than 64
documents, if the new files come after the old ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from distributed import Client
from numpy.typing import NDArray

from etl.job import shuffle
from etl.job.files import DataFile, Lake, address, file_of, row_of
from etl.job.shuffle import together
from etl.kernels import keepers
from etl.kernels.minhash import band_keys, jaccard, shingles
from etl.kernels.utf8 import texts
from etl.stages import DedupMinhash

_MAX_BEST = 64  # documents of one key that all others of it are compared with
_MAX_PAIRS = 1 << 16  # of one key, as long as each is compared with one
_FILES_PER_BUCKET = 8  # neighbouring data files, whose signatures are read by one task
_STANDARD_ERRORS = 3.0  # below the least likeness, an estimate is still worth an exact count


def _empty(**kinds: str) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})


_BANDS = _empty(key="int64", address="int64", rank="float64")
_ENDS = {"better": "int64", "worse": "int64", "better_rank": "float64", "worse_rank": "float64"}
_COMPARED = _empty(**_ENDS, bucket="int64")
_ALIKE = _empty(**_ENDS, similarity="float64", bucket="int64")


def find(
    client: Client,
    files: Sequence[DataFile],
    lake: Lake,
    *,
    equal: pd.DataFrame,
    has_exact: bool,
) -> pd.DataFrame:
    """The undecided duplicates, given ``equal``: those whose texts are those of better ones.

    Columns ``file``, ``row``, ``keeper_file``, ``keeper_row`` int64 (as ``equal``), ``similarity`` float64,
    ``is_near`` bool. Equal texts are near ones, too, if the recipe does not ask for exact duplicates.
    """
    alike = client.compute(_alike(files, lake, equal)).result()
    return _with_twins(_choose(alike), equal, has_exact=has_exact)


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


def _choose(alike: pd.DataFrame) -> pd.DataFrame:
    """The duplicates, their keepers, and how alike they are: document, keeper, similarity."""
    better, worse = alike["better"].to_numpy(), alike["worse"].to_numpy()
    ends = np.concatenate([better, worse])
    ranks = np.concatenate([alike["better_rank"].to_numpy(), alike["worse_rank"].to_numpy()])
    documents, first = np.unique(ends, return_index=True)
    order = np.lexsort((documents, ranks[first]))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    found = keepers.choose(
        len(documents),
        places[np.searchsorted(documents, better)],
        places[np.searchsorted(documents, worse)],
        alike["similarity"].to_numpy(),
    )
    keeper = documents[order][found.keeper[places]]
    goes = keeper != documents
    return pd.DataFrame(
        {
            "document": documents[goes],
            "keeper": keeper[goes],
            "similarity": found.similarity[places][goes],
        }
    )


def _alike(files: Sequence[DataFile], lake: Lake, equal: pd.DataFrame) -> dd.DataFrame:
    """The pairs that are alike, as ``_ALIKE``."""
    stage = _stage(lake)
    partitions = 1 + sum(f.rows for f in files) * stage.bands // shuffle.ROWS_PER_PARTITION
    left_out = dict(iter(equal.groupby("file")["row"]))
    bands = dd.from_map(
        _read_bands,
        list(files),
        [left_out[f.number].to_numpy() if f.number in left_out else None for f in files],
        lake=lake,
        meta=_BANDS,
        label="dedup_minhash-bands",
    )
    compared = together(bands, "key", partitions).map_partitions(candidates, meta=_COMPARED)
    buckets = 1 if partitions == 1 else min(4 * partitions, 1 + len(files) // _FILES_PER_BUCKET)
    verify = _Verify(tuple(files), lake)
    signed = together(compared, "bucket", buckets).map_partitions(verify.sign, meta=verify.meta())
    alike = together(signed, "bucket", buckets).map_partitions(verify.compare, meta=_ALIKE)
    if stage.verify == "exact":
        alike = together(alike, "bucket", buckets).map_partitions(verify.count, meta=_ALIKE)
    return alike


def _stage(lake: Lake) -> DedupMinhash:
    assert lake.stage is not None
    return lake.stage


def _read_bands(file: DataFile, left_out: NDArray[np.int64] | None, *, lake: Lake) -> pd.DataFrame:
    """The keys of the bands of each document that may be a keeper or a duplicate."""
    stage, table = _stage(lake), lake.read(file, ["signature"])
    table = table.filter(pc.is_valid(table["signature"]))
    if left_out is not None:
        is_in = np.isin(np.asarray(table["row"].combine_chunks()), left_out)
        table = table.filter(pa.array(~is_in))
    numbers = stage.numbers(table["signature"].combine_chunks())
    rows = address(np.int64(file.number), np.asarray(table["row"].combine_chunks()))
    return pd.DataFrame(
        {
            "key": band_keys(numbers[:, 1:], stage.bands).ravel(),
            "address": np.repeat(rows, stage.bands),
            "rank": np.repeat(np.asarray(table["rank"].combine_chunks()), stage.bands),
        }
    )


def candidates(bands: pd.DataFrame) -> pd.DataFrame:
    """The pairs that a key brings together, each once: undecided documents with better ones."""
    keys, rows, ranks = (bands[name].to_numpy() for name in _BANDS.columns)
    order = np.lexsort((rows, ranks, keys))
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
            "bucket": file_of(rows[better]) // _FILES_PER_BUCKET,
        }
    )
    return pairs.drop_duplicates(["better", "worse"])


@dataclass(frozen=True)
class _Verify:
    """What is done with pairs where the signatures or texts of one of the two are."""

    files: tuple[DataFile, ...]
    lake: Lake

    def meta(self) -> pd.DataFrame:
        """Pairs with the signature of the better one, two numbers a column."""
        width = (_stage(self.lake).permutations + 1) // 2
        return _empty(**_ENDS, bucket="int64", **{f"s{k}": "int64" for k in range(width)})

    def sign(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Each pair once, with the signature of the better one; the bucket is the worse one's."""
        pairs = pairs.drop_duplicates(["better", "worse"])
        numbers = self._numbers(pairs["better"].to_numpy())
        if numbers.shape[1] % 2:
            numbers = np.pad(numbers, ((0, 0), (0, 1)))
        words = np.ascontiguousarray(numbers).view(np.int64)
        bucket = file_of(pairs["worse"].to_numpy()) // _FILES_PER_BUCKET
        signed = pd.DataFrame(words, columns=[f"s{k}" for k in range(words.shape[1])])
        ends = pairs.assign(bucket=bucket).reset_index(drop=True)
        return pd.concat([ends[[*_ENDS, "bucket"]], signed], axis=1)

    def compare(self, signed: pd.DataFrame) -> pd.DataFrame:
        """The pairs whose signatures are alike enough; the bucket is the better one's."""
        stage = _stage(self.lake)
        least = stage.min_similarity
        if stage.verify == "exact":
            least -= _STANDARD_ERRORS * np.sqrt(least * (1 - least) / stage.permutations)
        columns = [name for name in signed.columns if name not in (*_ENDS, "bucket")]
        one = np.ascontiguousarray(signed[columns].to_numpy()).view(np.uint32)
        other = self._numbers(signed["worse"].to_numpy())
        similarity = (one[:, : stage.permutations] == other).mean(axis=1)
        return self._enough(signed, similarity, float(least))

    def count(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """The pairs whose sets of shingles are alike enough."""
        pairs = pairs.sort_values(["worse", "better"])
        better, worse = pairs["better"].to_numpy(), pairs["worse"].to_numpy()
        known = dict(self._sets(np.unique(better)))
        similarity = np.empty(len(pairs))
        for document, shingle_set in self._sets(np.unique(worse)):
            first, last = np.searchsorted(worse, [document, document + 1])
            for k in range(first, last):  # 30 us a kilobyte
                similarity[k] = jaccard(known[int(better[k])], shingle_set)
        return self._enough(pairs, similarity, _stage(self.lake).min_similarity)

    def _enough(
        self, pairs: pd.DataFrame, similarity: NDArray[np.float64], least: float
    ) -> pd.DataFrame:
        bucket = file_of(pairs["better"].to_numpy()) // _FILES_PER_BUCKET
        pairs = pairs[[*_ENDS]].assign(similarity=similarity, bucket=bucket)
        return pairs[similarity >= least]

    def _numbers(self, documents: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The signatures of documents without their lengths: uint32 (n, permutations)."""
        stage = _stage(self.lake)
        out = np.empty((len(documents), stage.permutations), np.uint32)
        for places, column in self._columns(documents, "signature"):
            out[places] = stage.numbers(column)[:, 1:]
        return out

    def _sets(self, documents: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Each of some documents, in their order, with its set of shingles; one data file at a time."""
        for places, column in self._columns(documents, "text"):
            found = shingles(texts(column), _stage(self.lake).shingling)
            yield from zip(documents[places].tolist(), found, strict=True)

    def _columns(
        self, documents: NDArray[np.int64], column: str
    ) -> Iterator[tuple[NDArray[np.int64], pa.Array]]:
        """The values of a column, file by file, and which of the documents they are of."""
        numbers = file_of(documents)
        for number in np.unique(numbers):
            places = np.flatnonzero(numbers == number)
            rows = row_of(documents[places])
            yield places, self.lake.read_rows(self.files[number], rows, column)
