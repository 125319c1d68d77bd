"""Input sources: list files, cut them into splits, and stream each split as record batches.

``listing`` lists the files and cuts them, also for a lake that holds rows of some of them, and assigns row
numbers to the pieces of a cut file, whose records ``read`` counts. ``read`` also streams a split. ``formats``
has one reader module per format. Only the settings are imported here: commands that read no input load
no reader.
"""

from etl.sources.source_settings import Columns, Source
from etl.sources.split import Format, Split

__all__ = ["Columns", "Format", "Source", "Split"]
