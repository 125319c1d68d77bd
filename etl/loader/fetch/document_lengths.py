"""Read the lengths of all documents of a table: the column ``num_tokens``, about 2 bytes per document.

Of a remote file, the footer and a range per row group are requested, in threads.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl.loader.fetch.row_group_files import MAX_FOOTERS, OpenRowGroup
from etl.loader.fetch.table_index import TableIndex, decoding_error
from etl.loader.fetch.token_stream import read_document_starts

_THREADS = 16
_TASK_GROUPS = 16  # row groups that are read with one opening of a file
_TASKS_AHEAD = 64  # bounds the lengths in memory


def read_lengths(index: TableIndex) -> Iterator[np.ndarray]:
    """Yield the lengths of the documents of each row group, (rows,) int64, in the order of the table.

    Raises StorageError if a file cannot be opened, LoaderError if a row group cannot be decoded or its
    lengths do not add up to its tokens.
    """
    lengths = _Lengths(index)
    tasks = list(_tasks(index))
    if index.remote is None:
        for task in tasks:
            yield from lengths.read(task)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        for first in range(0, len(tasks), _TASKS_AHEAD):
            for part in pool.map(lengths.read, tasks[first : first + _TASKS_AHEAD]):
                yield from part


def _tasks(index: TableIndex) -> Iterator[range]:
    """Yield ranges of row groups of the table, each consecutive in one file."""
    for start, stop in pairwise(index.first_group.tolist()):
        for first in range(start, stop, _TASK_GROUPS):
            yield range(first, min(first + _TASK_GROUPS, stop))


class _Lengths:
    """A reader of the lengths of row groups that keeps a few footers."""

    def __init__(self, index: TableIndex) -> None:
        self._index = index
        # The sections of a file are not next to each other, so its footer is needed again.
        self._footer = lru_cache(MAX_FOOTERS)(self._read_footer)

    def read(self, groups: range) -> list[np.ndarray]:
        """Return the lengths of the documents of consecutive row groups of one file."""
        index = self._index
        path, first = index.locate_group(groups.start)
        footer = self._footer(path, groups.start)
        lengths = []
        with index.open(groups.start) as file:
            for number, group in enumerate(groups, first):
                try:
                    starts = read_document_starts(OpenRowGroup(file, footer, number))
                except (pa.ArrowException, OSError, ValueError) as error:
                    raise decoding_error(index.uri(path), number, error) from error
                if starts[-1] != index.group_tokens[group]:
                    problem = ValueError(
                        f"num_tokens adds up to {starts[-1]}, but the row group has "
                        f"{index.group_tokens[group]} tokens"
                    )
                    raise decoding_error(index.uri(path), number, problem)
                lengths.append(np.diff(starts))
        return lengths

    def _read_footer(self, path: str, group: int) -> pq.FileMetaData:
        with self._index.open(group) as file:
            try:
                return pq.read_metadata(file)
            except (pa.ArrowException, OSError) as error:
                raise decoding_error(self._index.uri(path), group, error) from error
