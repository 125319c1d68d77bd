"""Deduplicate substrings: cut every passage of a least size that occurs earlier, in whichever document.

Windows, anchors, intervals and chunks are defined in ``etl.kernels.hashing.window_anchors``; which intervals
and windows are repeats, in ``etl.kernels.hashing.repeated_windows``.

1. The intervals of all documents are shuffled by key: 40 bytes each, 7 to 8 for each kilobyte of text. Of
   intervals with equal keys and chunks, all but the first are repeats.
2. Where one key has different chunks (the ends of repeated passages), the bytes of their first intervals are
   read and shuffled by key, and their windows are compared. If a key has very many chunks, such as that of
   a notice on a million pages, two hashes of each window are shuffled instead, by the first hash, so that
   no partition must hold all of them.
3. The ranges of repeats are merged and sent to their documents. Documents that would become too short are
   dropped, and the others compared again without them, as in ``etl.dedup.paragraphs``.

Decided documents take part by their stored keys; their bytes are read only where 2. needs them. As each
window belongs to one interval, and intervals of different keys share no window, partitions of keys are
decided independently, and decisions do not depend on their number.

Equal chunks are trusted to be equal bytes: key and chunk have 127 bits together. Windows are compared by
their bytes, except for those keys with very many chunks.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

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
    task_batches,
)
from etl.compute.frame_tasks import map_frames
from etl.dedup.compare_intervals import CUT_MESSAGES, CompareIntervals
from etl.dedup.cut_rows import CutDocuments, CutRowWriter, count_values
from etl.dedup.dedup_pass import PassInput, PassResult
from etl.dedup.document_reader import DocumentReader
from etl.dedup.key_lookup import SHORT_CHECK, StoredKeys
from etl.dedup.numbered_files import NumberedFile, address, row_of
from etl.dedup.short_documents import (
    DECIDED,
    DECIDED_SHORT,
    empty_numbers,
    leave_out_short,
    shuffle_by_bucket,
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
from etl.kernels.hashing.sorted_sets import among
from etl.kernels.hashing.window_anchors import LOCAL
from etl.stages.dedup_substrings import DedupSubstrings

CHUNKS_PER_KEY: Final = 1 << 14
"""The most chunks of a key whose bytes are compared in one task; chosen here: 10 MB of text."""

_SNIPPET_BYTES: Final = 1 << 25  # in a partition; with 50 bytes for each window, 0.3 GB of memory
_READERS: Final = (
    8  # tasks that read snippets, per partition of intervals: each has 20 to 50 MB of them
)
_INTERVALS_PER_ROW: Final = 48  # of a typical web page; only decides how many files a task reads
_SPREAD: Final = np.int64(
    -7046029254386353131
)  # odd: documents' own numbers are close to each other
_SIZES = empty_numbers("bytes", "hashed")


def find_repeated_substrings(
    inputs: PassInput, stage: DedupSubstrings, earlier: PassResult
) -> PassResult:
    """Cut the passages that occur earlier; drop documents that become too short.

    Of several new documents, the first by address keeps a passage. Documents that other stages drop are not
    compared.
    """
    client = inputs.client
    intervals = hold_frame(client, _shared_intervals(inputs, earlier), label=stage.kind)
    earlier = earlier.write(inputs)
    describe = _DescribeRanges(inputs.reader, stage)
    writer = CutRowWriter(inputs.files, inputs.reader, inputs.name, stage.min_chars, describe)
    cuts = hold_frame(client, _cuts(inputs, stage, intervals), label=stage.kind)
    short = writer.write_short(client, cuts, stage.kind)
    short_files = short.data_files()
    if short_files:
        cuts = _cuts(inputs, stage, leave_out_short(intervals, short.short()))
    cut = writer.write_cut(client, cuts, stage.kind)
    new = (*short_files, *cut.data_files())
    return replace(earlier, data_files=(*earlier.data_files, *new))


def _shared_intervals(inputs: PassInput, earlier: PassResult) -> dd.DataFrame:
    """Return the intervals of all documents whose key occurs more than once, and all local ones.

    Documents that earlier passes drop are left out.
    """
    files, reader = inputs.files, inputs.reader
    stored = StoredKeys.of(inputs.keys, files, "cut", reader)
    numbers, rows = files.chosen(lambda f: "cut" in f.kinds and "cut" not in f.keyed)
    parts = task_batches(numbers, rows * _INTERVALS_PER_ROW)
    num_intervals = count_values(inputs, parts, "anchor_keys")
    read = partial(read_intervals, reader=reader)
    intervals = files.frame(parts, read=read, meta=INTERVALS, label="cuts.intervals")
    intervals = earlier.leave_out(intervals, parts, "document")
    intervals = shuffle_by_range(intervals, "hash", partitions_for(num_intervals, stored.rows))
    return map_frames("cuts.shared", ShareIntervals(stored), intervals, meta=INTERVALS)


def read_intervals(file: NumberedFile, *, reader: DocumentReader) -> pd.DataFrame:
    """Return the intervals of a file, with the columns of ``INTERVALS``."""
    found = intervals_of(reader.read(file, schemas.ANCHORS.names))
    columns = {
        name: found[name].to_numpy() for name in ("row", "hash", "chunk", "start", "windows")
    }
    rows, chunks = columns["row"], columns["chunk"]
    documents = address(np.int64(file.number), rows)
    # Local intervals are compared with none, and all have the key 0: the document decides their partition.
    hashes = np.where(chunks == LOCAL, documents * _SPREAD, columns["hash"])
    ordinals = columns["start"]
    if file.decided:
        is_short = among(rows, reader.listed_rows(file, [schemas.SHORT]))
        ordinals = np.where(is_short, DECIDED_SHORT, DECIDED)
    frame = pd.DataFrame(
        {
            "hash": hashes,
            "chunk": chunks,
            "document": documents,
            "ordinal": ordinals,
            "windows": columns["windows"],
        }
    )
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
                "windows": np.zeros(len(checks), np.int64),
            }
        )
        both = pd.concat([intervals[INTERVALS.columns], decided], ignore_index=True)
        frame = pl.DataFrame({name: both[name].to_numpy() for name in INTERVALS.columns})
        compared = frame.filter(pl.col("chunk") != LOCAL)
        several, new = pl.len().over("hash") > 1, pl.col("ordinal").max().over("hash") >= 0
        shared = pl.concat([compared.filter(several, new), frame.filter(pl.col("chunk") == LOCAL)])
        return pd.DataFrame({name: shared[name].to_numpy() for name in INTERVALS.columns})


def _cuts(inputs: PassInput, stage: DedupSubstrings, intervals: dd.DataFrame) -> dd.DataFrame:
    """Return the ranges of repeats, with neighbouring data files in the same partition."""
    compare = CompareIntervals(stage.min_bytes, CHUNKS_PER_KEY)
    requests = map_frames("cuts.requests", compare.requests, intervals, meta=REQUESTS)
    readers = min(len(inputs.files), _READERS * intervals.npartitions, MAX_TASKS)
    requests = shuffle_by_value(requests, "bucket", readers)
    requests = hold_frame(inputs.client, requests, label=stage.kind)
    sizes = map_frames("cuts.sizes", compare.sizes, requests, meta=_SIZES)
    total = compute_frame(inputs.client, sizes, label=stage.kind).sum()
    read = SnippetReader(inputs.files, inputs.reader, stage.min_bytes)
    snippets = map_frames("cuts.snippets", read.texts, requests, meta=SNIPPETS)
    partitions = min(1 + int(total["bytes"]) // _SNIPPET_BYTES, MAX_TASKS)
    snippets = shuffle_by_range(snippets, "hash", partitions)
    frames = [
        map_frames("cuts.repeats", compare.cuts, intervals, meta=CUT_MESSAGES),
        map_frames("cuts.repeats", compare.window_cuts, snippets, meta=CUT_MESSAGES),
    ]
    if total["hashed"]:
        windows = map_frames("cuts.hashed", read.windows, requests, meta=INTERVALS)
        windows = shuffle_by_range(windows, "hash", partitions_for(int(total["hashed"])))
        frames.append(map_frames("cuts.repeats", compare.cuts, windows, meta=CUT_MESSAGES))
    return shuffle_by_bucket(dd.concat(frames), inputs.files)


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
