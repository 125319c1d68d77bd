"""An entry of a commit: a finished unit of work."""

from collections.abc import Sequence
from dataclasses import dataclass

from etl.parquet.data_file import DataFile
from etl.sources.content_digests import Content
from etl.sources.split import Split


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A finished unit of work: its key, its data files, the split that they were read from, and its content.

    The unit has ``arrival``, or without it the open one. If the split was compared with a file that the
    table holds, and is the same, it has the identity of that file, and the entry only adds its name.
    """

    key: str
    data_files: Sequence[DataFile] = ()
    split: Split | None = None
    content: Content | None = None
    arrival: int | None = None
    is_name: bool = False
