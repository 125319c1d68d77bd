"""Groups of neighbouring units of work, whose rows in ``duplicates`` share a data file."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.dedup.numbered_files import file_of

FILES_PER_DUPLICATES_FILE: Final = 64
"""Neighbouring units whose duplicates share a data file of ``duplicates``."""


def group_of(documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the group of each document, given by address."""
    return file_of(documents) // FILES_PER_DUPLICATES_FILE
