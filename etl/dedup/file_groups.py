"""Groups of neighbouring units of work, whose rows in ``duplicates`` share a data file."""

from typing import Final

import dask.dataframe as dd
import numpy as np
from numpy.typing import NDArray

from etl.compute.frame_shuffles import shuffle_by_value
from etl.dedup.numbered_files import file_of
from etl.dedup.stored_file_list import StoredFileList

FILES_PER_DUPLICATES_FILE: Final = 64
"""Neighbouring units whose duplicates share a data file of ``duplicates``."""


def group_of(documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the group of each document, given by address."""
    return file_of(documents) // FILES_PER_DUPLICATES_FILE


def shuffle_by_group(frame: dd.DataFrame, files: StoredFileList) -> dd.DataFrame:
    """Return a frame with the rows of a group, whose number is the column ``bucket``, in one partition."""
    groups = 1 + len(files) // FILES_PER_DUPLICATES_FILE
    return shuffle_by_value(frame, "bucket", min(frame.npartitions, groups))
