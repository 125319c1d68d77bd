"""Compute the similarity of candidate pairs from their signatures or the shingles of their texts.

Each pair is sent to the data file of its better document, carries that signature to the data file of the
worse one, and is kept if the two signatures agree in enough numbers. With ``verify: exact``, the shingles of
the texts are then counted. Only the row groups that hold a document of a pair are read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import file_of, row_of
from etl.dedup.stored_file_list import StoredFileList
from etl.kernels.bytes.utf8 import texts
from etl.kernels.hashing.minhash import jaccard, shingles
from etl.stages.dedup_minhash import DedupMinhash

FILES_PER_BUCKET: Final = 8
"""Neighbouring data files whose signatures are read by one task."""

_STANDARD_ERRORS = 3.0  # an estimate this far below ``min_similarity`` still gets an exact count


def empty_pairs(**dtypes: str) -> pd.DataFrame:
    """Return a frame without rows, given the dtype of each column."""
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in dtypes.items()})


ENDS: Final = {
    "better": "int64",
    "worse": "int64",
    "better_rank": "float64",
    "worse_rank": "float64",
}
"""Columns of a pair and their dtypes: two addresses and their ranks (lower is better)."""

SIMILAR_PAIRS: Final = empty_pairs(**ENDS, similarity="float64", bucket="int64")
"""Pairs of similar documents; all pairs of a bucket are compared by one task."""


def bucket_of(documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bucket of each document; all documents of a data file are in the same one."""
    return file_of(documents) // FILES_PER_BUCKET


@dataclass(frozen=True)
class SimilarityCheck:
    """Partition tasks that compare pairs; each reads the signatures or texts that it needs."""

    files: StoredFileList
    lake: DocumentReader
    stage: DedupMinhash

    def meta(self) -> pd.DataFrame:
        """Return an empty frame of ``sign``: pairs and a signature, two of its numbers per column."""
        width = (self.stage.permutations + 1) // 2
        return empty_pairs(**ENDS, bucket="int64", **{f"s{k}": "int64" for k in range(width)})

    def sign(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Return each pair once, with the better document's signature and the worse one's bucket."""
        pairs = pairs.drop_duplicates(["better", "worse"])
        numbers = self._numbers(pairs["better"].to_numpy())
        if numbers.shape[1] % 2:
            numbers = np.pad(numbers, ((0, 0), (0, 1)))
        words = np.ascontiguousarray(numbers).view(np.int64)
        bucket = bucket_of(pairs["worse"].to_numpy())
        signed = pd.DataFrame(words, columns=[f"s{k}" for k in range(words.shape[1])])
        ends = pairs.assign(bucket=bucket).reset_index(drop=True)
        return pd.concat([ends[[*ENDS, "bucket"]], signed], axis=1)

    def compare(self, signed: pd.DataFrame) -> pd.DataFrame:
        """Return the pairs whose signatures are similar enough, with the better document's bucket."""
        stage = self.stage
        min_similarity = stage.min_similarity
        if stage.verify == "exact":
            variance = min_similarity * (1 - min_similarity) / stage.permutations
            min_similarity -= _STANDARD_ERRORS * np.sqrt(variance)
        columns = [name for name in signed.columns if name not in (*ENDS, "bucket")]
        better = np.ascontiguousarray(signed[columns].to_numpy()).view(np.uint32)
        worse = self._numbers(signed["worse"].to_numpy())
        similarity = (better[:, : stage.permutations] == worse).mean(axis=1)
        return self._similar(signed, similarity, float(min_similarity))

    def count(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Return the pairs whose shingle sets are similar enough, with the better document's bucket."""
        pairs = pairs.sort_values(["worse", "better"])
        better, worse = pairs["better"].to_numpy(), pairs["worse"].to_numpy()
        better_sets = dict(self._shingle_sets(np.unique(better)))
        similarity = np.empty(len(pairs))
        for document, shingle_set in self._shingle_sets(np.unique(worse)):
            first, last = np.searchsorted(worse, [document, document + 1])
            for k in range(first, last):  # 30 us per kilobyte
                similarity[k] = jaccard(better_sets[int(better[k])], shingle_set)
        return self._similar(pairs, similarity, self.stage.min_similarity)

    def _similar(
        self, pairs: pd.DataFrame, similarity: NDArray[np.float64], min_similarity: float
    ) -> pd.DataFrame:
        bucket = bucket_of(pairs["better"].to_numpy())
        pairs = pairs[[*ENDS]].assign(similarity=similarity, bucket=bucket)
        return pairs[similarity >= min_similarity]

    def _numbers(self, documents: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the signatures of documents without their lengths, as uint32 (n, permutations)."""
        stage = self.stage
        out = np.empty((len(documents), stage.permutations), np.uint32)
        for indices, column in self._columns(documents, "signature"):
            out[indices] = stage.numbers(column)[:, 1:]
        return out

    def _shingle_sets(
        self, documents: NDArray[np.int64]
    ) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield each document (ascending) with its set of shingles, reading one data file at a time."""
        for indices, column in self._columns(documents, "text"):
            sets = shingles(texts(column), self.stage.shingling)
            yield from zip(documents[indices].tolist(), sets, strict=True)

    def _columns(
        self, documents: NDArray[np.int64], column: str
    ) -> Iterator[tuple[NDArray[np.int64], pa.Array]]:
        """Yield the values of a column and the indices of their documents, file by file."""
        numbers = file_of(documents)
        for file in self.files.take(np.unique(numbers)):
            indices = np.flatnonzero(numbers == file.number)
            yield indices, self.lake.read_rows(file, row_of(documents[indices]), column)
