"""Decide on a few documents in memory, as the passes do on all documents of a lake.

The arrivals are decided one after the other. A document is compared with the documents of earlier arrivals
that stay, and with all others of the same arrival.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl import schemas
from etl.dedup.affected import ComparedDocuments, DocumentSource
from etl.dedup.candidates import pair_candidates
from etl.dedup.equal_texts import pair_with_best
from etl.dedup.keeper_choice import choose_among
from etl.dedup.pair_rows import PAIRS, replace_dropped_keepers
from etl.dedup.similarity import SimilarityCheck, bucket_of
from etl.kernels.hashing.sorted_sets import among
from etl.stages.dedup_exact import DedupExact
from etl.stages.dedup_minhash import DedupMinhash


def decide_again(
    documents: ComparedDocuments, arrivals: NDArray[np.int64], source: DocumentSource
) -> pd.DataFrame:
    """Return the duplicates among documents with their keepers, with the columns of ``PAIRS``.

    ``arrivals`` has the arrival of each document. Their texts are read if the recipe compares texts.
    """
    dropped = [PAIRS]
    for arrival in np.unique(arrivals):
        gone = np.concatenate([pairs["document"].to_numpy() for pairs in dropped])
        earlier = (arrivals < arrival) & ~among(documents.addresses, gone)
        is_new = arrivals == arrival
        ranks = np.where(is_new, documents.ranks, -np.inf)
        dropped.append(_Arrival(documents, ranks, earlier | is_new, source).decide())
    return pd.concat(dropped, ignore_index=True)


@dataclass(frozen=True, eq=False)
class _Arrival:
    """The documents that an arrival is compared with, and those that it consists of."""

    documents: ComparedDocuments
    ranks: NDArray[np.float64]  # -inf for documents of earlier arrivals
    takes_part: NDArray[np.bool_]
    source: DocumentSource

    def decide(self) -> pd.DataFrame:
        stages, pairs = self.source.reader.stages, PAIRS
        has_exact = any(isinstance(stage, DedupExact) for stage in stages)
        for stage in stages:
            if isinstance(stage, DedupExact):
                pairs = replace_dropped_keepers(pairs, self._equal(pairs, "exact"))
            elif isinstance(stage, DedupMinhash):
                if not has_exact:
                    pairs = replace_dropped_keepers(pairs, self._equal(pairs, "near"))
                pairs = replace_dropped_keepers(pairs, self._similar(pairs, stage))
        return pairs

    def _left(self, pairs: pd.DataFrame) -> NDArray[np.bool_]:
        """Return which documents earlier passes have not dropped."""
        dropped = among(self.documents.addresses, pairs["document"].to_numpy())
        return self.takes_part & ~dropped

    def _equal(self, earlier: pd.DataFrame, kind: str) -> pd.DataFrame:
        left = self._left(earlier)
        hashes = self.documents.hashes[left]
        frame = pd.DataFrame(
            {
                "high": hashes[:, 1],
                "low": hashes[:, 0],
                "document": self.documents.addresses[left],
                "rank": self.ranks[left],
            }
        )
        return pair_with_best(frame).assign(
            similarity=1.0, is_estimate=False, kind=schemas.WHOLE.index(kind)
        )

    def _similar(self, earlier: pd.DataFrame, stage: DedupMinhash) -> pd.DataFrame:
        chosen = np.flatnonzero(self._left(earlier)[self.documents.signed])
        addresses = self.documents.addresses[self.documents.signed]
        ranks, bands = self.ranks[self.documents.signed], self.documents.bands[chosen]
        frame = pd.DataFrame(
            {
                "key": bands.ravel(),
                "address": np.repeat(addresses[chosen], bands.shape[1]),
                "rank": np.repeat(ranks[chosen], bands.shape[1]),
            }
        )
        pairs = pair_candidates(frame)
        pairs = pairs.assign(bucket=bucket_of(pairs["worse"].to_numpy()))
        check = SimilarityCheck(self.source.files, self.source.reader, stage, 1, has_all=True)
        better, worse = (
            self.documents.signatures[np.searchsorted(addresses, pairs[end].to_numpy())]
            for end in ("better", "worse")
        )
        similar = check.estimate_by(pairs, better, worse)
        if stage.verify != "estimate":
            similar = check.compare_texts(similar, 0)
        return choose_among(similar).assign(kind=schemas.WHOLE.index("near"))
