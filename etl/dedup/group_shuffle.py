"""Shuffle rows by the groups of units of work that share a data file of ``duplicates``."""

import dask.dataframe as dd

from etl.compute.frame_shuffles import shuffle_by_value
from etl.dedup import file_groups
from etl.dedup.stored_file_list import StoredFileList


def shuffle_by_group(frame: dd.DataFrame, files: StoredFileList) -> dd.DataFrame:
    """Return a frame with the rows of a group, whose number is the column ``bucket``, in one partition."""
    groups = 1 + len(files) // file_groups.FILES_PER_DUPLICATES_FILE
    return shuffle_by_value(frame, "bucket", min(frame.npartitions, groups))
