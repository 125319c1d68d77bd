"""Choose the documents to keep among similar pairs: in one task or, for many pairs, in rounds.

If there are more pairs than a partition may have, they stay on the workers, in memory or spilled to disk.
Each document has a home partition, which holds all pairs in which it is the worse document. In each round, a
partition asks the home partitions of the better documents whether these stay, decides its own documents in
order of preference, and drops each pair that no longer counts: the better document goes, or the worse one
has a better keeper (``independent_set.thin_pairs`` of the kernels). A document that is the worse one in no
pair stays. This is the parallel greedy algorithm of Blelloch, Fineman and Shun (SPAA 2012, arXiv
1202.3205). Its result equals the result of a single task, which decides the remaining documents as soon as
their pairs fit in one partition.

Cost of a round: 24 bytes for each document that a partition asks for, and for each answer; pairs do not move.
A task that decides holds 48 bytes for each pair, and 128 more while it decides (measured; a million pairs
take a second). The driver holds none; its scheduler holds 4 kB for each partition and round.

A round decides every document that depends only on decided ones, along any chain that stays within a
partition; a partition holds neighbouring files. So the number of rounds is bounded by how often a chain of
documents, each similar to and worse than the one before, crosses partitions: O(log n) times with high
probability if the order of preference is random (Fischer and Noever, SODA 2018, arXiv 1707.05124), and at
every document in the worst case. Such a chain fails the run only if it leaves too many pairs for one task.
"""

from typing import Final

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from etl.compute.compute_frames import compute_frame, hold_frame
from etl.compute.frame_shuffles import MAX_TASKS, partitions_for, shuffle_by_value
from etl.compute.frame_tasks import map_frames
from etl.dedup.keeper_choice import CHOSEN, as_chosen, choose_among, numbered
from etl.dedup.similarity import SIMILAR_PAIRS, bucket_of, empty_pairs
from etl.errors import StageError
from etl.kernels.hashing import independent_set
from etl.kernels.hashing.sorted_sets import among, distinct
from etl.plural import many

MAX_ROUNDS: Final = 100
"""Chosen here: about three times log2 of a billion documents."""

_MAX_HOMES = MAX_TASKS // 8  # Dask's scheduler keeps four tasks of each for every round
_TASK = "minhash.keepers"
_OPEN = SIMILAR_PAIRS.assign(stays=pd.Series(dtype="bool"))  # stays: the better document does
_MARKED = _OPEN.assign(is_open=pd.Series(dtype="bool"))
_QUESTION = empty_pairs(document="int64", asker="int64", bucket="int64")
_ANSWER = empty_pairs(document="int64", stays="bool", bucket="int64")
_COUNT = empty_pairs(pairs="int64")


def choose_keepers(client: Client, similar: dd.DataFrame) -> dd.DataFrame:
    """Return the duplicates among similar pairs, each with its keeper.

    ``similar`` has the columns of ``SIMILAR_PAIRS``; the result has ``document`` and ``keeper`` (int64,
    addresses), ``similarity`` (float64) and ``is_estimate`` (bool). Pairs in one partition are decided when
    the result is computed, others at once. Raises StageError if the pairs of the documents that are undecided
    after ``MAX_ROUNDS`` do not fit in one partition.
    """
    if similar.npartitions == 1:
        return _choose_in_one_task(similar)
    # The pairs are counted, and then read again in each round, so they must not be computed twice.
    pairs = hold_frame(client, similar, label=_TASK)
    num_open, rounds = _count(client, pairs), 0
    partitions = _partitions_for(num_open)
    if partitions == 1:
        return _choose_in_one_task(pairs)
    # From here on, pairs stay in their home partitions: each round moves only questions and answers.
    pairs = map_frames(_TASK, _at_home, pairs, meta=_OPEN)
    pairs = shuffle_by_value(pairs, "bucket", min(partitions, _MAX_HOMES))
    while _partitions_for(num_open) > 1:
        if rounds == MAX_ROUNDS:
            raise StageError(
                f"{num_open:,} pairs of similar documents are undecided after {many(rounds, 'round')}: "
                "more than one task decides",
                where="dedup_minhash",
                hint="the lake has long chains of similar documents: raise min_similarity of dedup_minhash",
            )
        marked = map_frames(_TASK, mark_open, _round(pairs), meta=_MARKED)
        pairs = hold_frame(client, marked, label=_TASK)  # releases the previous frame
        num_open, rounds = _count(client, pairs), rounds + 1
    if not num_open:
        return map_frames(_TASK, as_chosen, pairs, meta=CHOSEN)
    # The open pairs fit in one task, once another round has asked for the states that they depend on.
    pairs = hold_frame(client, _round(pairs), label=_TASK)
    settled = map_frames(_TASK, _settled, pairs, meta=CHOSEN)
    return dd.concat([settled, _choose_in_one_task(map_frames(_TASK, _open, pairs, meta=_MARKED))])


def _partitions_for(pairs: int) -> int:
    return partitions_for(2 * pairs)  # a pair and its work take the memory of two keys


def _choose_in_one_task(pairs: dd.DataFrame) -> dd.DataFrame:
    return map_frames(_TASK, choose_among, pairs.repartition(npartitions=1), meta=CHOSEN)


def mark_open(pairs: pd.DataFrame) -> pd.DataFrame:
    """Mark the pairs of documents that have an undecided pair; the other documents have one pair each.

    After one more round, the marked pairs decide their documents on their own: a better document is in them,
    or its state has been asked for.
    """
    worse = pairs["worse"].to_numpy()
    return pairs.assign(is_open=among(worse, worse[~pairs["stays"].to_numpy()]))


def _round(pairs: dd.DataFrame) -> dd.DataFrame:
    """Return the pairs that still count after one more round, in their home partitions."""
    partitions = pairs.npartitions
    asked = map_frames(_TASK, questions, pairs, meta=_QUESTION)
    asked = shuffle_by_value(asked, "bucket", partitions)
    answered = map_frames(_TASK, answers, pairs, asked, meta=_ANSWER)
    answered = shuffle_by_value(answered, "bucket", partitions)
    return map_frames(_TASK, drop_settled_pairs, pairs, answered, meta=pairs._meta)


def _count(client: Client, pairs: dd.DataFrame) -> int:
    """Return the number of pairs, or of the open ones if they are marked."""
    counts = map_frames(_TASK, _count_open, pairs, meta=_COUNT)
    return int(compute_frame(client, counts, label=_TASK)["pairs"].sum())


def _count_open(pairs: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"pairs": [len(_open(pairs) if "is_open" in pairs else pairs)]})


def _open(pairs: pd.DataFrame) -> pd.DataFrame:
    return pairs[pairs["is_open"]]


def _settled(pairs: pd.DataFrame) -> pd.DataFrame:
    return as_chosen(pairs[~pairs["is_open"]])


def _at_home(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs with the bucket of their worse document, for the shuffle to its partition."""
    return pairs.assign(bucket=bucket_of(pairs["worse"].to_numpy()), stays=False)


def questions(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the better documents of undecided pairs that this partition does not decide."""
    is_open = ~pairs["stays"].to_numpy()
    documents = distinct(pairs["better"].to_numpy()[is_open])
    # This partition is the home of its worse documents: it decides these itself.
    documents = documents[~among(documents, pairs["worse"].to_numpy())]
    own = pairs["bucket"].iloc[0] if len(pairs) else 0  # any bucket of a partition leads back to it
    asker = np.full(len(documents), own, np.int64)
    return pd.DataFrame({"document": documents, "asker": asker, "bucket": bucket_of(documents)})


def answers(pairs: pd.DataFrame, asked: pd.DataFrame) -> pd.DataFrame:
    """Return the decided ones among the documents in ``asked``, and whether they stay.

    This is the home partition of these documents; each bucket is a partition that asked.
    """
    stays, worse = pairs["stays"].to_numpy(), pairs["worse"].to_numpy()
    documents = asked["document"].to_numpy()
    # All pairs of a document in which it is the worse one are here. If a better document stays, it goes;
    # if no pair is left, it stays; else it is not decided yet, and nothing is answered.
    goes = among(documents, worse[stays])
    is_decided = goes | ~among(documents, worse)
    columns = {"document": documents, "stays": ~goes, "bucket": asked["asker"].to_numpy()}
    return pd.DataFrame(columns)[is_decided]


def drop_settled_pairs(pairs: pd.DataFrame, answered: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of a home partition that still count, given the answers of the others."""
    documents, better, worse = numbered(pairs)
    # Documents that are only the better one here are decided elsewhere: they are open unless a pair has
    # noted earlier that they stay, or an answer says so.
    state = np.full(len(documents), independent_set.OPEN, np.int8)
    state[worse] = independent_set.STAYS  # until a pair shows otherwise
    state[better[pairs["stays"].to_numpy()]] = independent_set.STAYS
    # Documents are numbered by preference, answers name addresses: a sorted view finds their numbers.
    by_address = np.argsort(documents)
    indices = np.searchsorted(documents, answered["document"].to_numpy(), sorter=by_address)
    state[by_address[indices]] = np.where(
        answered["stays"], independent_set.STAYS, independent_set.GOES
    )
    counts = independent_set.thin_pairs(better, worse, state)
    return pairs.assign(stays=state[better] == independent_set.STAYS)[counts]
