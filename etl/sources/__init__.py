"""Input sources: list files, cut them into splits, and stream each split as record batches.

``list_splits`` lists the files and cuts them, ``list_source`` does so for a lake that holds rows of some of
them, ``count_records`` and ``number_splits`` assign row numbers to the pieces of a cut file, and
``read_split`` streams one split. ``formats`` has one reader module per format.
"""

from etl.sources.formats.delta import ReadBefore
from etl.sources.listing import SourceListing, list_source, list_splits, number_splits
from etl.sources.read import count_records, read_split
from etl.sources.settings import Columns, Source
from etl.sources.split import Format, Split

__all__ = [
    "Columns",
    "Format",
    "ReadBefore",
    "Source",
    "SourceListing",
    "Split",
    "count_records",
    "list_source",
    "list_splits",
    "number_splits",
    "read_split",
]
