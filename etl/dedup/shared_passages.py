"""Shuffle passages of documents by their hashes: new passages, and stored ones of decided documents."""

from collections.abc import Callable
from dataclasses import dataclass

import dask.dataframe as dd
import pandas as pd

from etl.compute.frame_shuffles import partitions_for, shuffle_by_range, task_batches
from etl.compute.frame_tasks import map_frames
from etl.dedup.cut_rows import count_values
from etl.dedup.dedup_pass import PassInput, PassResult
from etl.dedup.key_lookup import StoredKeys
from etl.dedup.numbered_files import NumberedFile


@dataclass(frozen=True, kw_only=True)
class Passages:
    """The passages that a stage compares, and how they are read.

    ``share`` returns the task that adds the passages of decided documents to a partition, and leaves out
    those that cannot be repeats.
    """

    meta: pd.DataFrame  # its columns: ``hash``, ``document``, ``ordinal``, and others
    column: str  # of ``texts``: lists with an element for each passage
    per_row: int  # of a typical web page; only decides how many files a task reads
    label: str  # of the tasks that read
    read: Callable[[NumberedFile], pd.DataFrame]
    share: Callable[[StoredKeys], Callable[[pd.DataFrame], pd.DataFrame]]


def shared_passages(inputs: PassInput, passages: Passages, earlier: PassResult) -> dd.DataFrame:
    """Return the passages of all documents that may be repeats, in partitions by ``hash``.

    Documents that earlier passes drop are left out.
    """
    files = inputs.files
    stored = StoredKeys.of(inputs.keys, files, "cut", inputs.reader)
    numbers, rows = files.chosen(lambda f: "cut" in f.kinds and "cut" not in f.keyed)
    parts = task_batches(numbers, rows * passages.per_row)
    num_new = count_values(inputs, parts, passages.column)
    frame = files.frame(parts, read=passages.read, meta=passages.meta, label=passages.label)
    frame = earlier.leave_out(frame, parts, "document")
    frame = shuffle_by_range(frame, "hash", partitions_for(num_new, stored.rows))
    return map_frames("cuts.shared", passages.share(stored), frame, meta=passages.meta)
