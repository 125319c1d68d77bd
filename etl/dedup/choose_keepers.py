"""Who stays, given the pairs of documents that are alike: on the driver, or, of too many pairs, in rounds.

Pairs that are more than the driver is to hold stay with the workers, in memory and beyond it on their disks.
Each document has a home, the partition that has all pairs in which it is the worse one. In each round a
home asks the homes of the better ones what became of these, decides what follows in the order of preference,
and forgets the pairs that do not count any more (``etl.kernels.hashing.independent_set.thin``): those whose better document
goes, and those of a document that has a better keeper. Whoever is in no pair as the worse one stays. This is
the parallel greedy algorithm of Blelloch, Fineman and Shun (SPAA 2012, arXiv 1202.3205), and its result is
that of the driver, which decides what is left as soon as it can hold that.

Cost of a round: 24 bytes for each document that a home asks for, and for each answer; pairs do not move.
The driver holds 48 bytes for each pair that is open, of which there are ``PAIRS_ON_DRIVER`` at most, and for
each duplicate, and 128 more while it decides (measured, as the time: a second for a million).

A round decides whatever hangs on decided documents alone, along any chain that does not leave a home; the
files of a home are neighbours. So the rounds are bounded by how often a chain of documents, each like the
next and worse, changes its home: in graphs whose order of preference is random O(log n) times with high
probability (Fischer and Noever, SODA 2018, arXiv 1707.05124), in the worst case as often as it has documents.
Such a chain needs more pairs than the driver holds to come to an end in an error.
"""

from typing import Any, Final

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client
from numpy.typing import NDArray

from etl.compute.shuffle import partitions_for, shuffle_by_value
from etl.compute.submit import compute_frame
from etl.dedup.similarity import SIMILAR_PAIRS, bucket_of, empty_pairs
from etl.errors import StageError
from etl.kernels.hashing import independent_set
from etl.kernels.hashing.sorted_sets import among, distinct

PAIRS_ON_DRIVER: Final = 1 << 23
"""More pairs that are alike are not for the driver to decide; chosen here: 1.5 GB of memory."""

MAX_ROUNDS: Final = 100
"""Chosen here: the logarithm of a billion documents, three times."""

_LABEL = "dedup_minhash-keepers"
_OPEN = SIMILAR_PAIRS.assign(stays=pd.Series(dtype="bool"))  # stays: the better one does
_QUESTION = empty_pairs(document="int64", asker="int64", bucket="int64")
_ANSWER = empty_pairs(document="int64", stays="bool", bucket="int64")


def choose_keepers(client: Client, alike: dd.DataFrame) -> pd.DataFrame:
    """The duplicates among pairs as ``SIMILAR_PAIRS``, their keepers, and how alike they are.

    Columns ``document``, ``keeper`` int64 (addresses), ``similarity`` float64. Raises StageError if
    ``MAX_ROUNDS`` leave more pairs undecided than the driver is to hold.
    """
    pairs = client.persist(alike)
    left, rounds = _count(client, pairs["worse"].count()), 0
    if left > PAIRS_ON_DRIVER:
        homes = partitions_for(2 * left)  # a pair with its work takes the room of two keys
        pairs = shuffle_by_value(pairs.map_partitions(_at_home, meta=_OPEN), "bucket", homes)
    while left > PAIRS_ON_DRIVER:
        if rounds == MAX_ROUNDS:
            raise StageError(
                f"after {rounds} rounds {left:,} pairs of documents that are alike are undecided",
                where=_LABEL,
                hint="many documents are each like the next: a greater min_similarity parts them",
            )
        pairs = client.persist(_round(pairs))  # the frame before is given up
        left, rounds = _count(client, (~pairs["stays"]).sum()), rounds + 1
    return choose_among(compute_frame(client, pairs, label=_LABEL))


def choose_among(alike: pd.DataFrame) -> pd.DataFrame:
    """The same of all pairs at once."""
    documents, better, worse = _numbered(alike)
    found = independent_set.choose(len(documents), better, worse, alike["similarity"].to_numpy())
    goes = found.keeper != np.arange(len(documents))
    return pd.DataFrame(
        {
            "document": documents[goes],
            "keeper": documents[found.keeper[goes]],
            "similarity": found.similarity[goes],
        }
    )


def _round(pairs: dd.DataFrame) -> dd.DataFrame:
    """The pairs at their homes that still count after one round."""
    homes = pairs.npartitions
    asked = shuffle_by_value(pairs.map_partitions(questions, meta=_QUESTION), "bucket", homes)
    told = dd.map_partitions(answers, pairs, asked, meta=_ANSWER, align_dataframes=False)
    told = shuffle_by_value(told, "bucket", homes)
    return dd.map_partitions(drop_settled_pairs, pairs, told, meta=_OPEN, align_dataframes=False)


def _count(client: Client, number: Any) -> int:
    return int(compute_frame(client, number, label=_LABEL))


def _at_home(alike: pd.DataFrame) -> pd.DataFrame:
    """The pairs on the way to their worse documents' homes."""
    return alike.assign(bucket=bucket_of(alike["worse"].to_numpy()), stays=False)


def questions(pairs: pd.DataFrame) -> pd.DataFrame:
    """The better documents that a home does not know of, on the way to theirs."""
    is_open = ~pairs["stays"].to_numpy()
    documents = distinct(pairs["better"].to_numpy()[is_open])
    documents = documents[~among(documents, pairs["worse"].to_numpy())]
    own = pairs["bucket"].iloc[0] if len(pairs) else 0  # any of a home's buckets leads back to it
    asker = np.full(len(documents), own, np.int64)
    return pd.DataFrame({"document": documents, "asker": asker, "bucket": bucket_of(documents)})


def answers(pairs: pd.DataFrame, asked: pd.DataFrame) -> pd.DataFrame:
    """What became of documents that are at home here, if it is decided, on the way to who asks."""
    stays, worse = pairs["stays"].to_numpy(), pairs["worse"].to_numpy()
    documents = asked["document"].to_numpy()
    goes = among(documents, worse[stays])
    is_decided = goes | ~among(documents, worse)
    told = {"document": documents, "stays": ~goes, "bucket": asked["asker"].to_numpy()}
    return pd.DataFrame(told)[is_decided]


def drop_settled_pairs(pairs: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    """The pairs of a home that still count, after these answers."""
    documents, better, worse = _numbered(pairs)
    state = np.full(len(documents), independent_set.OPEN, np.int8)
    state[worse] = independent_set.STAYS  # unless a pair speaks against it
    state[better[pairs["stays"].to_numpy()]] = independent_set.STAYS
    by_address = np.argsort(documents)
    places = np.searchsorted(documents, told["document"].to_numpy(), sorter=by_address)
    state[by_address[places]] = np.where(told["stays"], independent_set.STAYS, independent_set.GOES)
    counts = independent_set.thin(better, worse, state)
    return pairs.assign(stays=state[better] == independent_set.STAYS)[counts]


def _numbered(
    pairs: pd.DataFrame,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The documents in the order of preference, and the numbers in it of each pair's two."""
    better, worse = pairs["better"].to_numpy(), pairs["worse"].to_numpy()
    ranks = np.concatenate([pairs["better_rank"].to_numpy(), pairs["worse_rank"].to_numpy()])
    documents, first, numbers = np.unique(
        np.concatenate([better, worse]), return_index=True, return_inverse=True
    )
    order = np.lexsort((documents, ranks[first]))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return documents[order], places[numbers[: len(better)]], places[numbers[len(better) :]]
