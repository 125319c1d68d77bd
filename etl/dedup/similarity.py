"""How alike the two documents of a pair are: each pair goes to the data files of its two documents.

A pair that was found takes the signature of its better document along to the worse one, and goes on if the
two agree in enough numbers; if the recipe asks for it, the shingles of the texts are counted then. Of a data
file only the row groups are read that hold a document of a pair.
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
from etl.stages import DedupMinhash

FILES_PER_BUCKET: Final = 8
"""Neighbouring data files, whose signatures are read by one task."""

_STANDARD_ERRORS = 3.0  # below the least likeness, an estimate is still worth an exact count


def empty_pairs(**kinds: str) -> pd.DataFrame:
    """A frame without rows; column -> dtype."""
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in kinds.items()})


ENDS: Final = {
    "better": "int64",
    "worse": "int64",
    "better_rank": "float64",
    "worse_rank": "float64",
}
"""Column -> dtype of a pair: two addresses, and how much they are preferred (the less, the better)."""

SIMILAR_PAIRS: Final = empty_pairs(**ENDS, similarity="float64", bucket="int64")
"""Pairs that are alike; all pairs of a bucket are judged by one task."""


def bucket_of(documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bucket of each document: all documents of a data file are in one."""
    return file_of(documents) // FILES_PER_BUCKET


@dataclass(frozen=True)
class SimilarityCheck:
    """What is done with pairs where the signatures or texts of one of the two are."""

    files: StoredFileList
    lake: DocumentReader

    @property
    def _stage(self) -> DedupMinhash:
        assert self.lake.stage is not None
        return self.lake.stage

    def meta(self) -> pd.DataFrame:
        """Pairs with the signature of the better one, two numbers a column."""
        width = (self._stage.permutations + 1) // 2
        return empty_pairs(**ENDS, bucket="int64", **{f"s{k}": "int64" for k in range(width)})

    def sign(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Each pair once, with the signature of the better one; the bucket is the worse one's."""
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
        """The pairs whose signatures are alike enough; the bucket is the better one's."""
        stage = self._stage
        least = stage.min_similarity
        if stage.verify == "exact":
            least -= _STANDARD_ERRORS * np.sqrt(least * (1 - least) / stage.permutations)
        columns = [name for name in signed.columns if name not in (*ENDS, "bucket")]
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
        return self._enough(pairs, similarity, self._stage.min_similarity)

    def _enough(
        self, pairs: pd.DataFrame, similarity: NDArray[np.float64], least: float
    ) -> pd.DataFrame:
        bucket = bucket_of(pairs["better"].to_numpy())
        pairs = pairs[[*ENDS]].assign(similarity=similarity, bucket=bucket)
        return pairs[similarity >= least]

    def _numbers(self, documents: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The signatures of documents without their lengths: uint32 (n, permutations)."""
        stage = self._stage
        out = np.empty((len(documents), stage.permutations), np.uint32)
        for places, column in self._columns(documents, "signature"):
            out[places] = stage.numbers(column)[:, 1:]
        return out

    def _sets(self, documents: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Each of some documents, in their order, with its set of shingles; one data file at a time."""
        for places, column in self._columns(documents, "text"):
            found = shingles(texts(column), self._stage.shingling)
            yield from zip(documents[places].tolist(), found, strict=True)

    def _columns(
        self, documents: NDArray[np.int64], column: str
    ) -> Iterator[tuple[NDArray[np.int64], pa.Array]]:
        """The values of a column, file by file, and which of the documents they are of."""
        numbers = file_of(documents)
        for file in self.files.take(np.unique(numbers)):
            places = np.flatnonzero(numbers == file.number)
            yield places, self.lake.read_rows(file, row_of(documents[places]), column)
