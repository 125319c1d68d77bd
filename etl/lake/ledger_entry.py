"""What a commit of a ledger adds, rewrites or drops."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from etl.delta.logical_file import LogicalFile
from etl.lake.input_log import InputLog
from etl.parquet.data_file import DataFile
from etl.parquet.layout import Layout
from etl.sources.content_digests import Content
from etl.sources.split import Split


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A finished unit of work: its key, its data files, the split that they were read from, and its content.

    The unit has ``arrival``, or without it the open one. If the split was compared with a file that the
    table holds, and is the same, it has the identity of that file, and the entry only adds its name.

    ``pack`` has the keys of all units whose rows are in the same data files, which the entry of the first
    has: they are committed together or not at all.
    """

    key: str
    data_files: Sequence[DataFile] = ()
    split: Split | None = None
    content: Content | None = None
    arrival: int | None = None
    is_name: bool = False
    pack: Collection[str] = ()

    def transactions(self, inputs: InputLog, open_arrival: int) -> dict[str, int]:
        """Return the transactions of the entry in a table whose log says ``inputs`` of its input files."""
        if self.split is not None and self.is_name:
            return inputs.describe_name(self.split)
        described = {} if self.split is None else inputs.describe_unit(self.split, self.content)
        return {self.key: self.arrival or open_arrival} | described


@dataclass(frozen=True)
class Rewrite:
    """A replacement of data files by others with the same live rows."""

    remove: Sequence[LogicalFile]
    data_files: Sequence[DataFile]


@dataclass(frozen=True, kw_only=True)
class Drop:
    """What a table loses when an epoch starts; by default nothing."""

    paths: Collection[str] = ()  # data files to remove
    keys: Collection[str] = ()  # units of work that must be done again
    files: Collection[str] = ()  # addresses of input files that are no longer known
    add: Sequence[LedgerEntry] = ()  # units of work that are done, with their data files
    rest: Sequence[DataFile] = ()  # new files with the rows of ``paths`` that stay
    rebuild: tuple[pa.Schema, Layout] | None = None  # drop all rows: a new generation
    first_arrival: int | None = None  # of a rebuilt table: all earlier arrivals count as this one
    open_arrival: int = 1  # at least, of the units that are committed next
    change: int | None = None  # of the recipe, which the table has then followed
    is_void: bool = False  # whether the table belongs to no recipe any more, with all files removed
    is_undo: bool = False  # whether it undoes changes by other programs

    @property
    def data_files(self) -> list[DataFile]:
        """The data files to add."""
        return [*(file for entry in self.add for file in entry.data_files), *self.rest]
