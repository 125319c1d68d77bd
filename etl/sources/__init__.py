"""Sources: from the files that a recipe names to a stream of record batches.

``list_splits`` lists and cuts, ``count_records`` and ``number`` give the pieces of a cut file their
row numbers, ``read`` streams one split. One small module per format.
"""

from etl.sources.reading import count_records, read
from etl.sources.source import Columns, Format, Source, Split
from etl.sources.splits import list_splits, number

__all__ = ["Columns", "Format", "Source", "Split", "count_records", "list_splits", "number", "read"]
