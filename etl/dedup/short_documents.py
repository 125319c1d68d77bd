"""Leave out documents of which too little would remain when passages are cut a second time.

Passages are compared twice: of all documents, then without the short ones, because a passage must not be cut
when the document that keeps it is dropped. The frames of both times have the columns ``hash`` (their
partitions are by it), ``document`` and ``ordinal``.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import dask.dataframe as dd
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl import schemas
from etl.compute.frame_shuffles import range_of, shuffle_by_value
from etl.compute.frame_tasks import map_frames
from etl.dedup.document_reader import DocumentReader
from etl.dedup.file_groups import group_of
from etl.dedup.numbered_files import NumberedFile
from etl.kernels.hashing.sorted_sets import among, distinct

DECIDED: Final = -1
"""The ordinal of all passages of a decided document: they are kept, so their positions do not matter."""

DECIDED_SHORT: Final = -2
"""The ordinal of all passages of a decided document that was dropped as short."""


def decided_ordinals(
    file: NumberedFile, rows: NDArray[np.int64], reader: DocumentReader
) -> NDArray[np.int64]:
    """Return the ordinal of each passage of a decided file, given the row of its document."""
    is_short = among(rows, reader.listed_rows(file, [schemas.SHORT]))
    return np.where(is_short, DECIDED_SHORT, DECIDED)


def empty_numbers(*names: str) -> pd.DataFrame:
    """Return a frame of int64 columns without rows."""
    return pd.DataFrame({name: pd.Series(dtype="int64") for name in names})


_QUESTIONS = empty_numbers("document", "range", "bucket")
_ANSWERS = empty_numbers("document", "range")


def leave_out_short(passages: dd.DataFrame, short: dd.DataFrame) -> dd.DataFrame:
    """Return the passages of the documents that stay, in their partitions; see ``map_with_short``."""
    return map_with_short(without_short, passages, short, asks=undecided, meta=passages._meta)


def map_with_short(
    function: Callable[..., pd.DataFrame],
    passages: dd.DataFrame,
    short: dd.DataFrame,
    *,
    asks: Callable[[pd.DataFrame], NDArray[np.int64]],
    meta: pd.DataFrame,
) -> dd.DataFrame:
    """Return what a function returns for each partition of passages and the short documents in it.

    ``short`` has the documents that are dropped, in partitions by ``bucket``. If there are several of both,
    each partition of passages asks for its documents, which ``asks`` returns.
    """
    if passages.npartitions > 1 and short.npartitions > 1:
        ask = partial(questions, asks=asks, partitions=passages.npartitions)
        asked = map_frames("cuts.short", ask, passages, meta=_QUESTIONS)
        asked = shuffle_by_value(asked, "bucket", short.npartitions)
        answered = map_frames("cuts.short", answers, short, asked, meta=_ANSWERS)
        short = shuffle_by_value(answered, "range", passages.npartitions)
    else:
        short = short.repartition(npartitions=1)  # all partitions of passages get it
    return map_frames("cuts.short", function, passages, short, meta=meta)


def undecided(passages: pd.DataFrame) -> NDArray[np.int64]:
    """Return the documents of a partition of passages that are not decided."""
    return passages["document"].to_numpy()[passages["ordinal"].to_numpy() >= 0]


def questions(
    passages: pd.DataFrame,
    *,
    asks: Callable[[pd.DataFrame], NDArray[np.int64]],
    partitions: int,
) -> pd.DataFrame:
    """Return the documents that a partition asks for, with a range that leads back to it."""
    documents = distinct(asks(passages))
    # Any range of a partition leads back to it, so the first passage's is enough.
    own = range_of(passages["hash"].to_numpy()[:1], partitions)
    columns = {"document": documents, "range": np.resize(own, len(documents))}
    return pd.DataFrame(columns).assign(bucket=group_of(documents))


def answers(short: pd.DataFrame, asked: pd.DataFrame) -> pd.DataFrame:
    """Return the documents in ``asked`` that are short, for the partitions that asked."""
    is_short = among(asked["document"].to_numpy(), short["document"].to_numpy())
    return asked[is_short][["document", "range"]]


def without_short(passages: pd.DataFrame, short: pd.DataFrame) -> pd.DataFrame:
    """Return the passages of the documents that stay; ``short`` has those that are dropped."""
    goes = among(passages["document"].to_numpy(), short["document"].to_numpy())
    return passages[~goes & (passages["ordinal"] != DECIDED_SHORT)]
