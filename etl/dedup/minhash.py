"""Near-deduplication: find similar documents by the bands of their signatures.

1. Each band of a signature is hashed to a key, and the keys are shuffled. Each document is paired with the
   best of the documents that share a key with it and are better: with all of them, up to 64. After n better
   ones, it is paired with 65,536 / (n + 1), and at least with the best.
2. Each candidate pair is sent to the data file of its better document, carries that signature to the data
   file of the worse one, and is kept if the two signatures agree in enough numbers.
3. With ``verify: exact``, the shingles of the texts of these pairs are counted.
4. The documents that stay are chosen from the remaining pairs (``etl.dedup.choose_keepers``).

Only numbers are shuffled: 24 bytes per band of each new document, and about 500 bytes per candidate pair.
A run that adds files looks up the documents
kept by earlier runs by their keys (``etl.dedup.key_lookup``) and reads only the signatures of candidates.
A decision depends on better documents only, so worse ones never change it. The result equals the result of
one run over all files if ``keep`` is ``first``, no key has more than 64 documents, and the new files come
after the old ones. Decisions that are made again after a repair do not change if no key has more than 64
documents: among more, each is compared with the best that are left, which may not be the best of the first
time.
"""

from dataclasses import dataclass
from functools import partial
from operator import itemgetter

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow.compute as pc
from numpy.typing import NDArray

from etl import schemas
from etl.compute.frame_shuffles import (
    MAX_TASKS,
    partitions_for,
    shuffle_by_range,
    shuffle_by_value,
    task_batches,
)
from etl.compute.frame_tasks import map_frames
from etl.dedup.candidates import BANDS, pair_candidates
from etl.dedup.choose_keepers import choose_keepers
from etl.dedup.dedup_pass import PassInput, PassResult
from etl.dedup.document_reader import DocumentReader
from etl.dedup.exact import pair_equal
from etl.dedup.key_lookup import StoredKeys, keys_of_bands
from etl.dedup.numbered_files import NumberedFile, address, file_of
from etl.dedup.pair_rows import PAIRS
from etl.dedup.similarity import (
    ENDS,
    ESTIMATED_PAIRS,
    FILES_PER_BUCKET,
    SIMILAR_PAIRS,
    SimilarityCheck,
    empty_pairs,
)
from etl.kernels.hashing.sorted_sets import among
from etl.stages.dedup_minhash import DedupMinhash

_MAX_PARTS = 8  # tasks that compare the texts of a partition of pairs
_ROWS_PER_PART = 1 << 14  # chosen here: a second of work

_COMPARED = empty_pairs(**ENDS, bucket="int64")


def find_similar(inputs: PassInput, stage: DedupMinhash, earlier: PassResult) -> PassResult:
    """Drop the undecided documents that are similar to a better one.

    Without a stage that reports equal texts, these count as similar. Of equal texts only the best one enters
    the search.
    """
    if not inputs.has_kind("exact"):
        equal = pair_equal(inputs, earlier, kind="near")
        earlier = earlier.join(equal).hold(inputs.client)
    chosen = choose_keepers(inputs.client, _similar_pairs(inputs, stage, earlier))
    as_pairs = partial(pd.DataFrame.assign, kind=schemas.WHOLE.index("near"))
    return earlier.join(map_frames("minhash.keepers", as_pairs, chosen, meta=PAIRS))


def _similar_pairs(inputs: PassInput, stage: DedupMinhash, earlier: PassResult) -> dd.DataFrame:
    """Return the pairs of similar documents, with the columns of ``SIMILAR_PAIRS``.

    Documents that earlier passes drop are left out.
    """
    stored = StoredKeys.of(inputs.keys, inputs.files, "near", inputs.reader)
    numbers, rows = inputs.files.chosen(lambda f: "near" in f.kinds and "near" not in f.keyed)
    partitions = partitions_for(int(rows.sum()) * stage.bands, stored.rows)
    file_parts = task_batches(numbers, rows * stage.bands)
    bands = inputs.files.frame(
        file_parts,
        read=partial(_read_bands, reader=inputs.reader, stage=stage),
        meta=BANDS,
        label="minhash.bands",
    )
    bands = earlier.leave_out(bands, file_parts, "address")
    bands = shuffle_by_range(bands, "key", partitions)
    candidates = _PairCandidates(stored, inputs.settled)
    pairs = map_frames("minhash.pairs", candidates, bands, meta=_COMPARED)
    # Pairs are compared where the data files of their documents are read: buckets of neighbouring files,
    # several tasks for each.
    many = min(4 * partitions, 1 + len(inputs.files) // FILES_PER_BUCKET, MAX_TASKS)
    buckets = 1 if partitions == 1 else many
    parts = min(_MAX_PARTS, 1 + int(rows.sum()) // (_ROWS_PER_PART * buckets), MAX_TASKS // buckets)
    check = SimilarityCheck(inputs.files, inputs.reader, stage, parts, has_all=buckets == 1)
    # A pair visits the bucket of the better document, whose signature it takes along, and then the
    # bucket of the worse one, where the two are compared.
    pairs = shuffle_by_value(pairs, "bucket", buckets)
    signed = map_frames("minhash.sign", check.sign, pairs, meta=check.meta())
    signed = shuffle_by_value(signed, "bucket", buckets)
    estimated = map_frames("minhash.score", check.estimate, signed, meta=ESTIMATED_PAIRS)
    if stage.verify == "estimate":
        similar = itemgetter([*SIMILAR_PAIRS.columns])
        return map_frames("minhash.score", similar, estimated, meta=SIMILAR_PAIRS)
    compare = [partial(check.compare_texts, part=part) for part in range(parts)]
    compared = dd.concat(
        [map_frames("minhash.compare", each, estimated, meta=SIMILAR_PAIRS) for each in compare]
    )
    return compared.repartition(npartitions=1) if buckets == 1 else compared


def _read_bands(file: NumberedFile, *, reader: DocumentReader, stage: DedupMinhash) -> pd.DataFrame:
    """Return the band keys of each document that may be a keeper or a duplicate."""
    table = reader.read_ranked(file, ["signature"])
    table = table.filter(pc.is_valid(table["signature"]))
    rows = address(np.int64(file.number), np.asarray(table["row"].combine_chunks()))
    keys = keys_of_bands(stage, table["signature"].combine_chunks())
    return pd.DataFrame(
        {
            "key": keys.ravel(),
            "address": np.repeat(rows, keys.shape[1]),
            "rank": np.repeat(np.asarray(table["rank"].combine_chunks()), keys.shape[1]),
        }
    )


@dataclass(frozen=True)
class _PairCandidates:
    """Partition task that pairs documents that share a band key; one of them may be decided."""

    stored: StoredKeys
    settled: NDArray[np.int64]  # numbers of decided files that did not arrive earlier, ascending

    def __call__(self, bands: pd.DataFrame) -> pd.DataFrame:
        decided = self.stored.matching(bands["key"].to_numpy())[["key", "address"]]
        pairs = pair_candidates(pd.concat([bands[BANDS.columns], decided.assign(rank=-np.inf)]))
        if len(self.settled):
            pairs = pairs[~among(file_of(pairs["worse"].to_numpy()), self.settled)]
        return pairs
