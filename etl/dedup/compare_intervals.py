"""Compare intervals of windows: which are repeats, and of which the bytes must be read."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from etl.dedup.file_groups import group_of
from etl.dedup.numbered_files import file_of
from etl.dedup.short_documents import DECIDED_SHORT, empty_numbers
from etl.dedup.snippets import INTERVALS, REQUESTS, snippet_texts
from etl.kernels.bytes.cut_ranges import CutRanges, merge_ranges
from etl.kernels.hashing.equal_chunks import (
    ChunkMatches,
    Intervals,
    are_repeats,
    compare_chunks,
    may_share_windows,
)
from etl.kernels.hashing.repeated_windows import find_repeats
from etl.kernels.hashing.sorted_sets import among, distinct
from etl.kernels.hashing.window_anchors import LOCAL

CUT_MESSAGES: Final = empty_numbers("document", "start", "end", "keeper", "bucket")
"""Ranges of bytes to cut from documents."""

WINDOW_CUTS: Final = empty_numbers("hash", *CUT_MESSAGES.columns, "is_lost")
"""Ranges of windows that are repeats, with the key of their interval; not merged.

``is_lost`` is 1 if the document that keeps them is short."""

KEYS: Final = empty_numbers("hash")
"""Keys of intervals."""

MARKED: Final = INTERVALS.assign(state=pd.Series(dtype="int64"))
"""Intervals, and what short documents mean for each: one of the states below."""

UNTOUCHED: Final = 0
"""The state of an interval whose decision stays valid: short documents keep nothing that has its key."""

TOUCHED: Final = 1
"""The state of an interval whose key must be compared again."""

GOES: Final = 2
"""The state of an interval of a short document."""


def documents_of_cuts(cuts: pd.DataFrame) -> NDArray[np.int64]:
    """Return the documents that lose windows, and the keepers of these that may be short."""
    keepers = cuts["keeper"].to_numpy()[cuts["is_lost"].to_numpy() == 0]
    return np.concatenate([cuts["document"].to_numpy(), keepers])


def cuts_that_stay(cuts: pd.DataFrame, short: pd.DataFrame) -> pd.DataFrame:
    """Return the ranges of windows of documents that are not short, marked if a short one keeps them."""
    dropped = short["document"].to_numpy()
    is_lost = among(cuts["keeper"].to_numpy(), dropped) | (cuts["is_lost"].to_numpy() > 0)
    stays = ~among(cuts["document"].to_numpy(), dropped)
    return cuts.assign(is_lost=is_lost.astype(np.int64))[stays][WINDOW_CUTS.columns]


def lost_keys(cuts: pd.DataFrame) -> pd.DataFrame:
    """Return the keys, as ``hash``, of ranges that short documents keep."""
    return pd.DataFrame({"hash": _lost_keys(cuts)})


def _lost_keys(cuts: pd.DataFrame) -> NDArray[np.int64]:
    return distinct(cuts["hash"].to_numpy()[cuts["is_lost"].to_numpy() > 0])


def untouched(cuts: pd.DataFrame, touched: pd.DataFrame) -> pd.DataFrame:
    """Return the ranges of windows that stay valid: short documents keep none with these keys."""
    hashes = cuts["hash"].to_numpy()
    again = np.concatenate([_lost_keys(cuts), touched["hash"].to_numpy()])
    return cuts[~among(hashes, distinct(again))]


def touched_keys(marked: pd.DataFrame) -> pd.DataFrame:
    """Return the keys, as ``hash``, of touched intervals."""
    return pd.DataFrame({"hash": distinct(marked["hash"].to_numpy()[marked["state"] == TOUCHED])})


def that_stay(marked: pd.DataFrame, lost: pd.DataFrame) -> pd.DataFrame:
    """Return the intervals of documents that are not short; those with ``lost`` keys are touched, too."""
    stay = marked[marked["state"] != GOES]
    is_lost = among(stay["hash"].to_numpy(), distinct(lost["hash"].to_numpy()))
    return stay.assign(state=np.where(is_lost, TOUCHED, stay["state"]))[MARKED.columns]


class _Compared(NamedTuple):
    """Intervals of a partition, compared by their chunks."""

    columns: dict[str, NDArray[Any]]  # of ``INTERVALS``
    matches: ChunkMatches
    are_repeats: NDArray[np.bool_]  # (n,) of undecided documents


@dataclass(frozen=True)
class CompareIntervals:
    """Partition tasks that compare intervals and windows."""

    min_bytes: int
    chunks_per_key: int

    def cuts(self, intervals: pd.DataFrame) -> pd.DataFrame:
        """Return the ranges of repeats: local intervals, and all but the first of equal chunks."""
        found = self._compare(intervals)
        is_local = found.columns["chunk"] == LOCAL
        is_cut = found.are_repeats | (is_local & (found.columns["ordinal"] >= 0))
        starts = found.columns["ordinal"][is_cut].astype(np.int64)
        ends = starts + found.columns["windows"][is_cut] - 1 + self.min_bytes
        documents = found.columns["document"]
        return _merged(documents[is_cut], starts, ends, documents[found.matches.firsts][is_cut])

    def mark_short(self, intervals: pd.DataFrame, short: pd.DataFrame) -> pd.DataFrame:
        """Return all intervals with their states; ``short`` has the documents that are dropped.

        A key is touched where a short document has the first of the equal intervals of other documents.
        Elsewhere all firsts stay the same when it goes, and so do all repeats.
        """
        found = self._compare(intervals)
        hashes, ordinals = found.columns["hash"], found.columns["ordinal"]
        goes = among(found.columns["document"], short["document"].to_numpy())
        goes |= ordinals == DECIDED_SHORT
        # Without it, a key may have few enough chunks for their bytes, which were not compared before.
        changes = goes & (found.matches.chunks_of_key > self.chunks_per_key)
        changes |= goes[found.matches.firsts] & ~goes & (ordinals >= 0)
        touched = among(hashes, distinct(hashes[changes]))
        state = np.where(goes, GOES, touched * TOUCHED)
        return intervals[INTERVALS.columns].assign(state=state)

    def requests(self, intervals: pd.DataFrame) -> pd.DataFrame:
        """Return the intervals whose windows must be compared, with the columns of ``REQUESTS``.

        If they have states, only intervals of touched keys and of keys with very many chunks.
        """
        found = self._compare(intervals)
        columns, matches = found.columns, found.matches
        is_local, is_decided = columns["chunk"] == LOCAL, columns["ordinal"] < 0
        # Of a decided document, the first interval with a chunk is enough.
        is_other = is_decided & (matches.firsts != np.arange(len(is_decided)))
        wanted = may_share_windows(columns["hash"], columns["cores"], matches)
        wanted &= ~found.are_repeats & ~is_local & ~is_other
        hashed = matches.chunks_of_key > self.chunks_per_key
        if "state" in intervals:
            wanted &= hashed | (intervals["state"].to_numpy() == TOUCHED)
        columns = {name: values[wanted] for name, values in columns.items()}
        columns["hashed"] = hashed[wanted].astype(np.int64)
        columns["bucket"] = file_of(columns["document"])
        return pd.DataFrame(columns)[REQUESTS.columns]

    def sizes(self, requests: pd.DataFrame) -> pd.DataFrame:
        """Return the bytes and hashes about to be read; the sizes in decided documents are guessed."""
        windows = np.maximum(requests["windows"].to_numpy(), self.min_bytes // 4)
        hashed = requests["hashed"].to_numpy() > 0
        texts = int((windows + self.min_bytes)[~hashed].sum())
        return pd.DataFrame({"bytes": [texts], "hashed": [int(windows[hashed].sum())]})

    def window_cuts(self, snippets: pd.DataFrame) -> pd.DataFrame:
        """Return the ranges of repeated windows, with the columns of ``WINDOW_CUTS``."""
        keys, intervals, states, texts = snippet_texts(snippets)
        found = find_repeats(keys, texts, intervals, self.min_bytes)
        is_cut = states[found.intervals] == 0
        owners, firsts = found.intervals[is_cut], found.firsts[is_cut]
        documents = intervals.documents[owners]
        columns = {
            "hash": keys[owners],
            "document": documents,
            "start": found.starts[is_cut],
            "end": found.ends[is_cut],
            "keeper": intervals.documents[firsts],
            "bucket": group_of(documents),
            "is_lost": (states[firsts] == -DECIDED_SHORT).astype(np.int64),
        }
        return pd.DataFrame(columns)

    def merged(self, cuts: pd.DataFrame) -> pd.DataFrame:
        """Return the same bytes in fewer ranges, with the columns of ``CUT_MESSAGES``."""
        names = ("document", "start", "end", "keeper")
        return _merged(*(np.array(cuts[name]) for name in names))

    def _compare(self, intervals: pd.DataFrame) -> _Compared:
        columns = {name: np.array(intervals[name]) for name in INTERVALS.columns}
        some = Intervals(columns["document"], columns["ordinal"], columns["windows"])
        matches = compare_chunks(columns["hash"], columns["chunk"], some)
        is_compared = (columns["chunk"] != LOCAL) & (columns["ordinal"] >= 0)
        return _Compared(
            columns, matches, are_repeats(some, matches.firsts, self.min_bytes) & is_compared
        )


def _merged(
    documents: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    keepers: NDArray[np.int64],
) -> pd.DataFrame:
    """Return disjoint ranges with the columns of ``CUT_MESSAGES``: fewer rows for the shuffle."""
    ranges = merge_ranges(CutRanges(documents, starts, ends, keepers))
    columns = dict(zip(("document", "start", "end", "keeper"), ranges, strict=True))
    return pd.DataFrame(columns).assign(bucket=group_of(ranges.documents))[CUT_MESSAGES.columns]
