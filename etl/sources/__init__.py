"""Input sources: list files, cut them into splits, and stream each split as record batches.

``list_splits`` lists the files and cuts them, ``count_records`` and ``number_splits`` assign row numbers to
the pieces of a cut file, and ``read_split`` streams one split. ``formats`` has one reader module per format.
"""

from etl.sources.listing import list_splits, number_splits
from etl.sources.read import count_records, read_split
from etl.sources.settings import Columns, Source
from etl.sources.split import Format, Split

__all__ = [
    "Columns",
    "Format",
    "Source",
    "Split",
    "count_records",
    "list_splits",
    "number_splits",
    "read_split",
]
