"""Input sources: list files, cut them into splits, and stream each split as record batches.

``list_splits`` lists the files and cuts them, ``count_records`` and ``number`` assign row numbers to the
pieces of a cut file, and ``read`` streams one split. Each format has a small module.
"""

from etl.sources.reading import count_records, read
from etl.sources.source import Columns, Format, Source, Split
from etl.sources.splits import list_splits, number

__all__ = ["Columns", "Format", "Source", "Split", "count_records", "list_splits", "number", "read"]
