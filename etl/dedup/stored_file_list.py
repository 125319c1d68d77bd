"""The data files of a barrier, numbered, as a list in storage: driver and workers read what they need of it.

A million data files would be half a gigabyte on the driver, and would go to each task that may need one of
them. The list lies beside the data files that the barrier writes, named like them, for as long as it takes;
what a killed run leaves goes with its other files (``etl vacuum``).
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
import pyarrow.parquet as pq
from numpy.typing import NDArray

from etl import storage
from etl.dedup.numbered_files import NumberedFile
from etl.delta.data_file import DataFileWriter
from etl.delta.layout import Layout
from etl.errors import StorageError
from etl.kernels.hashing.sorted_sets import between

_AT_ONCE = 4096  # as Python's objects, half a kilobyte each
_SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "source": pa.string(),
        "path": pa.string(),
        "rows": pa.int64(),
        "decided": pa.bool_(),
        "duplicates": pa.list_(pa.string()),
        "kinds": pa.list_(pa.string()),
        "keyed": pa.list_(pa.string()),
        "lake": pa.string(),
    }
)
_LAYOUT = Layout(
    statistics=("number",),
    dictionary=("source", "lake"),
    bulk="path",
    row_group_bytes=1 << 18,  # some thousands of files
    file_bytes=1 << 62,  # never a second one
)


@dataclass(frozen=True)
class StoredFileList:
    """Data files with the numbers from 0 on; iterated in their order."""

    uri: str
    length: int

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[NumberedFile]:
        with self._open() as parquet:
            for group in range(parquet.num_row_groups):
                yield from _files(parquet.read_row_group(group, use_threads=False))

    def take(self, numbers: NDArray[np.int64]) -> list[NumberedFile]:
        """The files with these numbers (ascending, each once)."""
        return _files(self._read(numbers, _SCHEMA.names))

    def fields(self, numbers: NDArray[np.int64], names: Sequence[str]) -> pd.DataFrame:
        """Some of the fields of the files with these numbers (ascending, each once), by their number."""
        found = self._read(numbers, ["number", *names])
        return pd.DataFrame(found.to_pandas(types_mapper=pd.ArrowDtype)).set_index("number")

    def _read(self, numbers: NDArray[np.int64], names: Sequence[str]) -> pa.Table:
        found = [_SCHEMA.empty_table().select(names)]
        with self._open() as parquet:
            for group in range(parquet.num_row_groups):
                known = parquet.metadata.row_group(group).column(0).statistics
                part = between(numbers, known.min, known.max)
                if len(part):
                    table = parquet.read_row_group(group, columns=names, use_threads=False)
                    found.append(table.take(pa.array(part - known.min)))
        return pa.concat_tables(found)

    def chosen(
        self, is_chosen: Callable[[NumberedFile], bool]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of the files for which something is true, and how many rows each of them has."""
        found = ((file.number, file.rows) for file in self if is_chosen(file))
        pairs = np.fromiter(chain.from_iterable(found), np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def frame(
        self,
        parts: Sequence[NDArray[np.int64]],
        *given: Sequence[Any],
        read: Callable[..., pd.DataFrame],
        meta: pd.DataFrame,
        label: str,
    ) -> dd.DataFrame:
        """What ``read`` says of each file: a partition for each part of their numbers (as for ``take``).

        ``given`` are further arguments of ``read``, one for each part; ``label`` names the tasks.
        """
        return dd.from_map(_read_part, parts, *given, files=self, read=read, meta=meta, label=label)

    @contextmanager
    def _open(self) -> Iterator[pq.ParquetFile]:
        with storage.open_input(self.uri) as file:
            yield pq.ParquetFile(file, pre_buffer=False)


@contextmanager
def store_file_list(files: Iterable[NumberedFile], url: str, name: str) -> Iterator[StoredFileList]:
    """A list of data files, one at least, for as long as the context lasts.

    ``url`` is the table beside whose data files it lies; ``name`` is the head of its own. The files are
    numbered from 0 on. Raises WriteError if there is no room.
    """
    writer = DataFileWriter(url, _SCHEMA, _LAYOUT, name=name)
    remaining = iter(files)
    while batch := [vars(file) for file in islice(remaining, _AT_ONCE)]:
        writer.append(pa.Table.from_pylist(batch, _SCHEMA))
    (fragment,) = writer.close()
    uri = storage.join(url, fragment.path)
    try:
        yield StoredFileList(uri, fragment.rows)
    finally:
        with suppress(StorageError):  # it is in nobody's way
            storage.remove(uri)


def _read_part(
    numbers: NDArray[np.int64],
    *given: Any,
    files: StoredFileList,
    read: Callable[..., pd.DataFrame],
) -> pd.DataFrame:
    return pd.concat([read(file, *given) for file in files.take(numbers)], ignore_index=True)


def _files(table: pa.Table) -> list[NumberedFile]:
    rows = table.to_pylist()
    return [NumberedFile(**{name: _plain(value) for name, value in row.items()}) for row in rows]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
