"""Deduplicate substrings: cut every passage of a least size that occurs earlier, in whichever document.

Windows, anchors, intervals and chunks are defined in ``etl.kernels.hashing.window_anchors``; which intervals
and windows are repeats, in ``equal_chunks`` and ``repeated_windows`` of the same package.

1. The intervals of all documents are shuffled by key: 36 bytes each, 7 to 8 for each kilobyte of text. Of
   intervals with equal keys and chunks, all but the first are repeats.
2. Where one key has different chunks (the ends of repeated passages) with equal cores, the bytes of their
   first intervals are read and shuffled by key, and their windows are compared. If a key has very many
   chunks, such as that of a notice on a million pages, two hashes of each window are shuffled instead, by
   the first hash, so that no partition must hold all of them.
3. The ranges of repeats are merged and sent to their documents. Documents that would become too short are
   dropped, as in ``etl.dedup.paragraphs``, and the keys of which they keep passages are compared again.

Decided documents take part by their stored keys; their bytes are read only where 2. needs them. As each
window belongs to one interval, and intervals of different keys share no window, partitions of keys are
decided independently, and decisions do not depend on their number.

Equal chunks are trusted to be equal bytes: key and chunk have 127 bits together. Windows are compared by
their bytes, except for those keys with very many chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from etl import schemas
from etl.compute.compute_frames import compute_frame, hold_frame
from etl.compute.frame_shuffles import (
    MAX_TASKS,
    partitions_for,
    shuffle_by_range,
    shuffle_by_value,
)
from etl.compute.frame_tasks import map_frames
from etl.dedup.compare_intervals import (
    CUT_MESSAGES,
    KEYS,
    MARKED,
    WINDOW_CUTS,
    CompareIntervals,
    cuts_that_stay,
    documents_of_cuts,
    lost_keys,
    that_stay,
    touched_keys,
    untouched,
)
from etl.dedup.cut_rows import CutDocuments, CutRowWriter
from etl.dedup.dedup_pass import PassInput, PassResult
from etl.dedup.document_reader import DocumentReader
from etl.dedup.group_shuffle import shuffle_by_group
from etl.dedup.key_lookup import SHORT_CHECK, StoredKeys
from etl.dedup.numbered_files import NumberedFile, address, row_of
from etl.dedup.shared_passages import Passages, shared_passages
from etl.dedup.short_documents import (
    DECIDED,
    DECIDED_SHORT,
    decided_ordinals,
    empty_numbers,
    map_with_short,
    undecided,
)
from etl.dedup.snippets import INTERVALS, REQUESTS, SNIPPETS, SnippetReader, intervals_of
from etl.kernels.bytes.cut_ranges import (
    CutRanges,
    count_range_chars,
    merge_ranges,
    snap_ranges,
)
from etl.kernels.bytes.utf8 import count_chars
from etl.kernels.bytes.utf8 import texts as buffers
from etl.kernels.hashing.window_anchors import ALL_CORES, LOCAL
from etl.stages.dedup_substrings import DedupSubstrings

CHUNKS_PER_KEY: Final = 1 << 14
"""The most chunks of a key whose bytes are compared in one task; chosen here: 10 MB of text."""

_SNIPPET_BYTES: Final = 1 << 25  # in a partition; with 50 bytes for each window, 0.3 GB of memory
_READERS: Final = 8  # per partition of intervals: each task reads 20 to 50 MB of snippets
_SPREAD: Final = np.int64(-7046029254386353131)  # odd
_SIZES = empty_numbers("bytes", "hashed")


def find_repeated_substrings(
    inputs: PassInput, stage: DedupSubstrings, earlier: PassResult
) -> PassResult:
    """Cut the passages that occur earlier; drop documents that become too short.

    Of several new documents, the first by address keeps a passage. Documents that other stages drop are not
    compared.
    """
    client = inputs.client
    intervals = shared_passages(inputs, _intervals(inputs.reader), earlier)
    intervals = hold_frame(client, intervals, label=stage.kind)
    earlier = earlier.write(inputs)
    describe = _DescribeRanges(inputs.reader, stage)
    writer = CutRowWriter(inputs.files, inputs.reader, inputs.name, stage.min_chars, describe)
    comparison = _Comparison(inputs, stage)
    windows = comparison.window_cuts(intervals)
    short = writer.write_short(client, comparison.cuts(intervals, [*windows]), stage.kind)
    # Where short documents keep nothing, decisions stay valid: keys are decided independently.
    marked = comparison.mark_short(intervals, short.short())
    marked = hold_frame(client, marked, label=stage.kind)
    staying = map_with_short(
        cuts_that_stay, windows.texts, short.short(), asks=documents_of_cuts, meta=WINDOW_CUTS
    )
    staying = hold_frame(client, staying, label=stage.kind)
    touched = map_frames("cuts.touched", touched_keys, marked, meta=KEYS)
    touched = shuffle_by_range(touched, "hash", staying.npartitions)
    known = map_frames("cuts.known", untouched, staying, touched, meta=WINDOW_CUTS)
    lost = map_frames("cuts.lost", lost_keys, staying, meta=KEYS)
    lost = shuffle_by_range(lost, "hash", marked.npartitions)
    remaining = map_frames("cuts.remaining", that_stay, marked, lost, meta=MARKED)
    again = comparison.window_cuts(remaining)
    cut = writer.write_cut(client, comparison.cuts(remaining, [known, *again]), stage.kind)
    new = (*short.data_files(), *cut.data_files())
    return replace(earlier, data_files=(*earlier.data_files, *new))


def _intervals(reader: DocumentReader) -> Passages:
    """Return how the intervals of documents are read, with the columns of ``INTERVALS``."""
    return Passages(
        meta=INTERVALS,
        column="anchor_keys",
        per_row=48,
        label="cuts.intervals",
        read=partial(read_intervals, reader=reader),
        share=ShareIntervals,
    )


def read_intervals(file: NumberedFile, *, reader: DocumentReader) -> pd.DataFrame:
    """Return the intervals of a file, with the columns of ``INTERVALS``."""
    found = intervals_of(reader.read(file, schemas.ANCHORS.names))
    columns = {name: found[name].to_numpy() for name in found.columns}
    rows, chunks = columns["row"], columns["chunk"]
    documents = address(np.int64(file.number), rows)
    # Local intervals are compared with none, and all have the key 0: the document decides their partition.
    columns["hash"] = np.where(chunks == LOCAL, documents * _SPREAD, columns["hash"])
    columns["document"], columns["ordinal"] = documents, columns["start"]
    if file.decided:
        columns["ordinal"] = decided_ordinals(file, rows, reader)
    frame = pd.DataFrame(columns)[INTERVALS.columns].astype(INTERVALS.dtypes)
    return frame[frame["chunk"] != LOCAL] if file.decided else frame


@dataclass(frozen=True)
class ShareIntervals:
    """Partition task that adds the intervals of decided documents, and returns those that may matter."""

    stored: StoredKeys

    def __call__(self, intervals: pd.DataFrame) -> pd.DataFrame:
        """Return the intervals whose key occurs more than once, once in an undecided document."""
        is_local = intervals["chunk"].to_numpy() == LOCAL
        matches = self.stored.matching(intervals["hash"].to_numpy()[~is_local])
        checks = matches["check"].to_numpy()
        decided = pd.DataFrame(
            {
                "hash": matches["key"],
                "chunk": checks & ~SHORT_CHECK,
                "document": matches["address"],
                "ordinal": np.where(checks & SHORT_CHECK, DECIDED_SHORT, DECIDED),
                "windows": np.int32(0),
                "cores": np.int32(ALL_CORES),
            }
        ).astype(INTERVALS.dtypes)
        both = pd.concat([intervals[INTERVALS.columns], decided], ignore_index=True)
        frame = pl.DataFrame({name: both[name].to_numpy() for name in INTERVALS.columns})
        compared = frame.filter(pl.col("chunk") != LOCAL)
        several, new = pl.len().over("hash") > 1, pl.col("ordinal").max().over("hash") >= 0
        shared = pl.concat([compared.filter(several, new), frame.filter(pl.col("chunk") == LOCAL)])
        return pd.DataFrame({name: shared[name].to_numpy() for name in INTERVALS.columns})


class _WindowCuts(NamedTuple):
    """Ranges of repeated windows, found by their bytes and by their hashes."""

    texts: dd.DataFrame  # with the columns of ``WINDOW_CUTS``, by ranges of keys
    hashed: dd.DataFrame  # with the columns of ``CUT_MESSAGES``


@dataclass(frozen=True)
class _Comparison:
    """The two kinds of comparison: of intervals, and of windows where one key has different chunks."""

    inputs: PassInput
    stage: DedupSubstrings

    @property
    def _tasks(self) -> CompareIntervals:
        return CompareIntervals(self.stage.min_bytes, CHUNKS_PER_KEY)

    def cuts(self, intervals: dd.DataFrame, windows: Sequence[dd.DataFrame]) -> dd.DataFrame:
        """Return all ranges of repeats, with neighbouring data files in the same partition."""
        tasks = self._tasks
        found = [
            map_frames("cuts.merged", tasks.merged, part, meta=CUT_MESSAGES) for part in windows
        ]
        whole = map_frames("cuts.repeats", tasks.cuts, intervals, meta=CUT_MESSAGES)
        return shuffle_by_group(dd.concat([whole, *found]), self.inputs.files)

    def mark_short(self, intervals: dd.DataFrame, short: dd.DataFrame) -> dd.DataFrame:
        """Return the intervals with their states; ``short`` has the documents that are dropped."""
        mark = self._tasks.mark_short
        return map_with_short(mark, intervals, short, asks=undecided, meta=MARKED)

    def window_cuts(self, intervals: dd.DataFrame) -> _WindowCuts:
        """Return the ranges of repeated windows; the first part is held by the workers."""
        client, files, tasks = self.inputs.client, self.inputs.files, self._tasks
        label = self.stage.kind
        requests = map_frames("cuts.requests", tasks.requests, intervals, meta=REQUESTS)
        readers = min(len(files), _READERS * intervals.npartitions, MAX_TASKS)
        requests = shuffle_by_value(requests, "bucket", readers)
        requests = hold_frame(client, requests, label=label)
        sizes = map_frames("cuts.sizes", tasks.sizes, requests, meta=_SIZES)
        total = compute_frame(client, sizes, label=label).sum()
        read = SnippetReader(files, self.inputs.reader, self.stage.min_bytes)
        snippets = map_frames("cuts.snippets", read.texts, requests, meta=SNIPPETS)
        partitions = min(1 + int(total["bytes"]) // _SNIPPET_BYTES, MAX_TASKS)
        snippets = shuffle_by_range(snippets, "hash", partitions)
        found = map_frames("cuts.windows", tasks.window_cuts, snippets, meta=WINDOW_CUTS)
        windows = map_frames("cuts.hashed", read.windows, requests, meta=INTERVALS)
        windows = shuffle_by_range(windows, "hash", partitions_for(int(total["hashed"])))
        hashed = map_frames("cuts.repeats", tasks.cuts, windows, meta=CUT_MESSAGES)
        return _WindowCuts(hold_frame(client, found, label=label), hashed)


@dataclass(frozen=True)
class _DescribeRanges:
    """The documents of a file that lose passages, and the bytes of these."""

    reader: DocumentReader
    stage: DedupSubstrings

    def __call__(self, file: NumberedFile, repeats: pd.DataFrame) -> CutDocuments:
        names = ("document", "start", "end", "keeper")
        ranges = merge_ranges(CutRanges(*(np.array(repeats[name]) for name in names)))
        rows = np.unique(row_of(ranges.documents))
        texts = buffers(self.reader.read_rows(file, rows, "text"))
        documents = address(np.int64(file.number), rows)
        words = self.stage.snap == "words"
        first = np.searchsorted(ranges.documents, np.append(documents, np.iinfo(np.int64).max))
        cut = snap_ranges(texts, first, ranges, words=words)
        first = np.searchsorted(cut.documents, np.append(documents, np.iinfo(np.int64).max))
        loses = np.flatnonzero(np.diff(first))
        offsets = pa.array(2 * np.append(first[loses], len(cut.documents)), pa.int32())
        bounds = pa.array(np.stack([cut.starts, cut.ends], axis=1).reshape(-1), pa.int32())
        return CutDocuments(
            rows[loses],
            self.reader.read_rows(file, rows, "id").take(pa.array(loses)),
            cut.keepers[first[loses]],
            pa.ListArray.from_arrays(offsets, bounds),
            count_range_chars(texts, first, cut)[loses],
            count_chars(texts)[loses],
        )
