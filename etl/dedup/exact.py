"""Exact deduplication: pair documents whose texts have equal content hashes.

The hashes are shuffled by their last 8 bytes, so that all equal ones are in one partition, where the hashes
of documents kept by earlier runs are looked up (``etl.dedup.key_lookup``). Only numbers are shuffled: 32
bytes per new document.
"""

from dataclasses import dataclass
from functools import partial

import dask.dataframe as dd
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl import schemas
from etl.compute.frame_shuffles import partitions_for, shuffle_by_range, task_batches
from etl.compute.frame_tasks import map_frames
from etl.dedup.dedup_pass import PassInput, PassResult
from etl.dedup.document_reader import DocumentReader
from etl.dedup.equal_texts import HASHES, pair_with_best
from etl.dedup.key_lookup import StoredKeys, halves
from etl.dedup.numbered_files import NumberedFile, address, file_of
from etl.dedup.pair_rows import PAIRS
from etl.kernels.hashing.sorted_sets import among
from etl.stages.dedup_exact import DedupExact


def find_equal(inputs: PassInput, _stage: DedupExact, earlier: PassResult) -> PassResult:
    """Drop the undecided documents whose text equals a better document's."""
    return earlier.join(pair_equal(inputs, earlier, kind="exact"))


def pair_equal(inputs: PassInput, earlier: PassResult, *, kind: str) -> dd.DataFrame:
    """Return the undecided documents whose text equals a better document's, as pairs of a kind.

    Documents that earlier passes drop are left out.
    """
    task = "exact" if kind == "exact" else "minhash"
    stored = StoredKeys.of(inputs.keys, inputs.files, "exact", inputs.reader)
    numbers, rows = inputs.files.chosen(lambda f: "exact" in f.kinds and "exact" not in f.keyed)
    file_parts = task_batches(numbers, rows)
    hashes = inputs.files.frame(
        file_parts,
        read=partial(_read_hashes, reader=inputs.reader),
        meta=HASHES,
        label=f"{task}.hashes",
    )
    hashes = earlier.leave_out(hashes, file_parts, "document")
    hashes = shuffle_by_range(hashes, "low", partitions_for(int(rows.sum()), stored.rows))
    pair = PairEqual(stored, inputs.settled, schemas.WHOLE.index(kind))
    return map_frames(f"{task}.equal", pair, hashes, meta=PAIRS)


def _read_hashes(file: NumberedFile, *, reader: DocumentReader) -> pd.DataFrame:
    """Return the hash, address and rank of each document that may be a keeper or a duplicate."""
    table = reader.read_ranked(file, ["content_hash"])
    rows = np.asarray(table["row"].combine_chunks())
    words = halves(table["content_hash"].combine_chunks())
    return pd.DataFrame(
        {
            "high": words[:, 1],
            "low": words[:, 0],
            "document": address(np.int64(file.number), rows),
            "rank": np.asarray(table["rank"].combine_chunks()),
        }
    )


@dataclass(frozen=True)
class PairEqual:
    """Partition task that pairs undecided duplicates with their keepers, which may be decided."""

    stored: StoredKeys
    settled: NDArray[np.int64]  # numbers of decided files that did not arrive earlier, ascending
    kind: int  # index into ``schemas.WHOLE``

    def __call__(self, hashes: pd.DataFrame) -> pd.DataFrame:
        """Return the pairs of a partition, which has all hashes that may be equal."""
        matches = self.stored.matching(hashes["low"].to_numpy())
        decided = pd.DataFrame(
            {
                "high": matches["check"],
                "low": matches["key"],
                "document": matches["address"],
                "rank": np.full(len(matches), -np.inf),
            }
        )
        pairs = pair_with_best(pd.concat([hashes[HASHES.columns], decided]))
        if len(self.settled):
            pairs = pairs[~among(file_of(pairs["document"].to_numpy()), self.settled)]
        return pairs.assign(similarity=1.0, is_estimate=False, kind=self.kind)[list(PAIRS.columns)]
