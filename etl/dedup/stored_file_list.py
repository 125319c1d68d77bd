"""Keep the numbered files as a list in storage, of which driver and workers read parts.

A million files would take half a gigabyte on the driver and would be sent to every task that may need
one of them. The list is stored next to the data files that deduplication writes, with the same kind of name,
and is removed at the end. ``etl vacuum`` removes the list of a killed run with the run's other files.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from etl import storage
from etl.dedup.numbered_files import NumberedFile
from etl.delta.logical_file import LogicalFile
from etl.errors import StorageError
from etl.kernels.hashing.sorted_sets import between
from etl.parquet.data_file import DataFileWriter
from etl.parquet.data_file_reader import open_data_file, read_row_groups
from etl.parquet.layout import Layout

_AT_ONCE = 4096  # files held as Python objects, half a kilobyte each
_FILE = {"path": pa.string(), "vector": pa.string(), "part": pa.list_(pa.int64())}
_FILES = pa.list_(pa.struct(_FILE))
_SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "source": pa.string(),
        "unit": pa.string(),
        "files": _FILES,
        "rows": pa.int64(),
        "decided": pa.bool_(),
        "earlier": pa.bool_(),
        "duplicates": _FILES,
        "kinds": pa.list_(pa.string()),
        "keyed": pa.list_(pa.string()),
        "lake": pa.string(),
        "judged": _FILES,
    }
)
_LAYOUT = Layout(
    statistics=("number",),
    dictionary=("source", "lake"),
    bulk="unit",
    row_group_bytes=1 << 17,  # 4096 files
    file_bytes=1 << 62,  # the list is always one file
)


@dataclass(frozen=True)
class StoredFileList:
    """A stored list of numbered files, numbered from 0 and iterated in that order."""

    table: str  # URL of the table that it is stored in
    path: str
    length: int

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[NumberedFile]:
        for rows in read_row_groups(self.table, self.path):
            yield from _files(rows)

    def take(self, numbers: NDArray[np.int64]) -> list[NumberedFile]:
        """Return the files with these numbers (ascending, unique)."""
        return _files(self._read(numbers, _SCHEMA.names))

    def fields(self, numbers: NDArray[np.int64], names: Sequence[str]) -> pd.DataFrame:
        """Return fields of the files with these numbers (ascending, unique), indexed by number."""
        table = self._read(numbers, ["number", *names])
        return pd.DataFrame(table.to_pandas(types_mapper=pd.ArrowDtype)).set_index("number")

    def _read(self, numbers: NDArray[np.int64], names: Sequence[str]) -> pa.Table:
        tables = [_SCHEMA.empty_table().select(names)]
        with open_data_file(self.table, self.path, names) as file:
            for group in range(file.num_row_groups):
                bounds = file.bounds(group, "number")
                assert bounds is not None, "the list has statistics"
                part = between(numbers, *bounds)
                if len(part):
                    tables.append(file.row_group(group).take(pa.array(part - bounds[0])))
        return pa.concat_tables(tables)

    def chosen(
        self, is_chosen: Callable[[NumberedFile], bool]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers and row counts of the files for which ``is_chosen`` returns True."""
        files = ((file.number, file.rows) for file in self if is_chosen(file))
        pairs = np.fromiter(chain.from_iterable(files), np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def frame(
        self,
        parts: Sequence[NDArray[np.int64]],
        *args: Sequence[Any],
        read: Callable[..., pd.DataFrame],
        meta: pd.DataFrame,
        label: str,
    ) -> dd.DataFrame:
        """Return the frames that ``read`` returns for each file, one partition for each part.

        A part is an array of file numbers, as for ``take``. ``args`` are further arguments of ``read``, each
        with one value per part; ``label`` names the tasks.
        """
        return dd.from_map(_read_part, parts, *args, files=self, read=read, meta=meta, label=label)


@contextmanager
def store_file_list(files: Iterable[NumberedFile], url: str, name: str) -> Iterator[StoredFileList]:
    """Write a list of files, at least one, and remove it when the context ends.

    The files must be numbered from 0. The list is stored in the table at ``url``; ``name`` is the prefix of
    its file name. Raises WriteError if it cannot be written.
    """
    writer = DataFileWriter(url, _SCHEMA, _LAYOUT, name=name)
    remaining = iter(files)
    while batch := [vars(file) for file in islice(remaining, _AT_ONCE)]:
        writer.append(pa.Table.from_pylist(batch, _SCHEMA))
    (data_file,) = writer.close()
    try:
        yield StoredFileList(url, data_file.path, data_file.rows)
    finally:
        with suppress(StorageError):  # a list that remains is harmless
            storage.remove(storage.join(url, data_file.path))


def _read_part(
    numbers: NDArray[np.int64], *args: Any, files: StoredFileList, read: Callable[..., pd.DataFrame]
) -> pd.DataFrame:
    return pd.concat([read(file, *args) for file in files.take(numbers)], ignore_index=True)


def _files(table: pa.Table) -> list[NumberedFile]:
    rows = table.to_pylist()
    return [NumberedFile(**{name: _hashable(value) for name, value in row.items()}) for row in rows]


def _hashable(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return LogicalFile(**{name: _hashable(each) for name, each in value.items()})
    return value
