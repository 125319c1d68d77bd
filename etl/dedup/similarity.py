"""Compute the similarity of candidate pairs from their signatures or the shingles of their texts.

Each pair is sent to the data file of its better document, carries that signature to the data file of the
worse one, and is kept if the two signatures agree in enough numbers. Pairs that this does not settle
(``verify`` of the stage) are then decided by the shingles of their texts, all pairs of a worse document in
one task. Only the row groups that hold a document of a pair are read.

Memory of that task: 8 bytes for each of ``WORDS_AT_ONCE`` words, or of the words of one document and of those
that it is compared with if these are more, and one row group. Time: 4 s per gigabyte of text to compute the
shingles, once in each task and group of pairs, and 2 ns per shingle of a pair. A pair no longer matters,
and is skipped, if its better document is removed, or if its worse document has a better keeper.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl.dedup.document_reader import DocumentReader
from etl.dedup.numbered_files import FileList, file_of, row_of
from etl.kernels.bytes.utf8 import texts
from etl.kernels.hashing.independent_set import OPEN, STAYS
from etl.kernels.hashing.shingle_sets import (
    Pairs,
    ShingleSets,
    fill_sets,
    find_similar,
    group_pairs,
)
from etl.kernels.hashing.sorted_sets import among, distinct
from etl.stages.dedup_minhash import DedupMinhash

FILES_PER_BUCKET: Final = 8
"""Neighbouring data files whose signatures are read by one task."""

WORDS_AT_ONCE: Final = 1 << 24
"""Words or characters whose shingles a task holds at once; chosen here: 128 MB."""


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

SIMILAR_PAIRS: Final = empty_pairs(**ENDS, similarity="float64", is_estimate="bool", bucket="int64")
"""Pairs of similar documents; all pairs of a bucket are compared by one task."""

ESTIMATED_PAIRS: Final = SIMILAR_PAIRS.assign(
    better_size=pd.Series(dtype="int64"), worse_size=pd.Series(dtype="int64")
)
"""Pairs whose ``similarity`` is NaN if their texts must be compared; sizes are in words or characters."""


def bucket_of(documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bucket of each document; all documents of a data file are in the same one."""
    return file_of(documents) // FILES_PER_BUCKET


@dataclass(frozen=True)
class SimilarityCheck:
    """Partition tasks that compare pairs; each reads the signatures or texts that it needs."""

    files: FileList
    reader: DocumentReader
    stage: DedupMinhash
    parts: int  # tasks that compare the texts of a partition of pairs
    has_all: bool  # whether there is only one partition of pairs

    def meta(self) -> pd.DataFrame:
        """Return an empty frame of ``sign``: pairs and a signature, two of its numbers per column."""
        width = (1 + self.stage.permutations + 1) // 2
        return empty_pairs(**ENDS, bucket="int64", **{f"s{k}": "int64" for k in range(width)})

    def sign(self, pairs: pd.DataFrame) -> pd.DataFrame:
        """Return each pair once, with the better document's signature and the worse one's bucket."""
        pairs = pairs.drop_duplicates(["better", "worse"])
        numbers = self._numbers(pairs["better"].to_numpy())
        if numbers.shape[1] % 2:
            numbers = np.pad(numbers, ((0, 0), (0, 1)))
        # Two numbers share a column: a shuffle costs time for each column.
        words = np.ascontiguousarray(numbers).view(np.int64)
        bucket = bucket_of(pairs["worse"].to_numpy())
        signed = pd.DataFrame(words, columns=[f"s{k}" for k in range(words.shape[1])])
        ends = pairs.assign(bucket=bucket).reset_index(drop=True)
        return pd.concat([ends[[*ENDS, "bucket"]], signed], axis=1)

    def estimate(self, signed: pd.DataFrame) -> pd.DataFrame:
        """Return the pairs that may be similar by their signatures, with the worse document's bucket."""
        columns = [name for name in signed.columns if name not in (*ENDS, "bucket")]
        better = np.ascontiguousarray(signed[columns].to_numpy()).view(np.uint32)
        return self.estimate_by(signed, better, self._numbers(signed["worse"].to_numpy()))

    def estimate_by(
        self, pairs: pd.DataFrame, better: NDArray[np.uint32], worse: NDArray[np.uint32]
    ) -> pd.DataFrame:
        """Return what ``estimate`` does, for pairs with the signatures of both documents."""
        least, enough = self.stage.agreement_limits()
        agreeing = (better[:, 1 : worse.shape[1]] == worse[:, 1:]).sum(axis=1)
        is_estimate = agreeing >= enough
        estimated = pairs[[*ENDS]].assign(
            similarity=np.where(is_estimate, agreeing / self.stage.permutations, np.nan),
            is_estimate=is_estimate,
            bucket=pairs["bucket"],
            better_size=better[:, 0].astype(np.int64),
            worse_size=worse[:, 0].astype(np.int64),
        )
        return estimated[agreeing >= least]

    def compare_texts(self, pairs: pd.DataFrame, part: int) -> pd.DataFrame:
        """Return the pairs that are similar and can matter, for one part of the worse documents.

        ``pairs`` has all pairs of each worse document. The parts take about the same time.
        """
        pairs = pairs.sort_values(["worse", "better_rank", "better"])
        documents, numbers = np.unique(pairs[["better", "worse"]].to_numpy(), return_inverse=True)
        better, worse = np.ascontiguousarray(numbers.T)
        sizes = np.zeros(len(documents), np.int64)
        sizes[better], sizes[worse] = pairs["better_size"], pairs["worse_size"]
        state = self._states(documents, better, worse, pairs["better_rank"].to_numpy())
        is_worse = np.zeros(len(documents), np.bool_)
        is_worse[worse] = True
        # Worse documents of 100, 300 and 400 words end at 100, 400 and 800. In two parts, the first has
        # those that end up to 400.
        ends = np.cumsum(sizes * is_worse)  # of each document, in words of worse documents
        in_part = (ends[worse] - 1) * self.parts // max(1, ends.max(initial=0)) == part
        pairs, better, worse = pairs[in_part], better[in_part], worse[in_part]
        ordered = Pairs(better, worse, pairs["similarity"].to_numpy())
        similarity = np.zeros(len(pairs))
        for start, stop in pairwise(group_pairs(ordered, sizes, WORDS_AT_ONCE).tolist()):
            group = Pairs(better[start:stop], worse[start:stop], ordered.similarity[start:stop])
            sets = self._shingle_sets(documents, _compared(group), sizes)
            similarity[start:stop] = find_similar(
                sets,
                group,
                state,
                self.stage.min_similarity,
                is_containment=self.stage.is_containment,
            )
        is_similar = similarity > 0
        return pairs.assign(similarity=similarity)[is_similar][list(SIMILAR_PAIRS.columns)]

    def _states(
        self,
        documents: NDArray[np.int64],
        better: NDArray[np.int64],
        worse: NDArray[np.int64],
        better_rank: NDArray[np.float64],
    ) -> NDArray[np.int8]:
        """Return which documents stay for certain: decided ones, and those without better ones."""
        stays = np.ones(len(documents), np.bool_)
        if not self.has_all:  # all pairs of the worse documents in a bucket are here, if any are
            stays = among(bucket_of(documents), bucket_of(documents[worse]))
        stays[worse] = False
        stays[better[better_rank == -np.inf]] = True
        return np.where(stays, STAYS, OPEN).astype(np.int8)

    def _numbers(self, documents: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the signatures of documents as uint32 (n, 1 + permutations); the length comes first."""
        stage = self.stage
        out = np.empty((len(documents), 1 + stage.permutations), np.uint32)
        numbers = file_of(documents)
        for file in self.files.take(np.unique(numbers)):
            indices = np.flatnonzero(numbers == file.number)
            column = self.reader.read_rows(file, row_of(documents[indices]), "signature")
            out[indices] = stage.numbers(column)
        return out

    def _shingle_sets(
        self, documents: NDArray[np.int64], wanted: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> ShingleSets:
        """Return the sets of the documents with the numbers ``wanted``, and empty sets for the others.

        Reads one row group at a time. ``sizes`` has the sizes of all documents.
        """
        hashes = np.empty(int(sizes[wanted].sum()), np.int64)
        starts, stops = np.zeros((2, len(documents)), np.int64)
        numbers, used = file_of(documents[wanted]), 0
        for file in self.files.take(np.unique(numbers)):
            of_file = wanted[numbers == file.number]
            rows = row_of(documents[of_file])
            for table in self.reader.read_row_groups(file, rows, "text"):
                stored = np.asarray(table["row"].combine_chunks())
                # Which of the stored rows are wanted: each is compared with its place among the wanted
                # ones.
                indices = np.minimum(np.searchsorted(rows, stored), len(rows) - 1)
                chosen = np.flatnonzero(rows[indices] == stored)
                found = of_file[indices[chosen]]
                ends = used + fill_sets(
                    texts(table["text"]), chosen, self.stage.shingling, hashes[used:]
                )
                starts[found], stops[found], used = ends[:-1], ends[1:], int(ends[-1])
        return ShingleSets(hashes, starts, stops)


def _compared(pairs: Pairs) -> NDArray[np.int64]:
    """Return the documents of the pairs whose texts must be compared, ascending."""
    is_open = np.isnan(pairs.similarity)
    return distinct(np.concatenate([pairs.better[is_open], pairs.worse[is_open]]))
