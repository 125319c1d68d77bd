"""What a data file is to the log: a path, and the rows in it that are struck; or a part of such a file."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from etl.delta.deletion_vectors import path_of


class LogicalFile(NamedTuple):
    """A data file with its deletion vector: with another vector, it is another one to the log."""

    path: str  # inside the table
    vector: str | None = None  # as in ``Table.data_files``
    part: tuple[int, int] | None = (
        None  # if only a part is meant: its first position, and one past its last
    )

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """Return the file of an entry in the list of data files, or of units in them."""
        return cls(entry["path"], entry["vector"], entry.get("part"))

    @property
    def stored_paths(self) -> list[str]:
        """The paths inside the table of the data file and of the file with its vector, if there is one."""
        stored = None if self.vector is None else path_of(self.vector)
        return [self.path] if stored is None else [self.path, stored]
