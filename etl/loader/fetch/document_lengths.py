"""Read the lengths of all documents of a table: the column ``num_tokens``, about 2 bytes per document.

Of a remote file, a range per row group is requested, in threads.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from etl.loader.fetch.row_group_files import open_files
from etl.loader.fetch.selected_row_groups import open_row_groups
from etl.loader.fetch.table_index import TableIndex, decoding_error

_THREADS = 16
_GROUPS_AHEAD = 1024  # bounds the lengths in memory


def read_lengths(index: TableIndex, groups: Sequence[int]) -> Iterator[np.ndarray]:
    """Yield the lengths of the documents of some row groups, each (rows,) int64, in the given order.

    Raises StorageError if a file cannot be opened, LoaderError if a row group cannot be decoded or its
    lengths do not add up to its tokens.
    """
    row_groups = open_row_groups(index, open_files(index))

    def read(group: int) -> np.ndarray:
        starts = row_groups.document_starts(group)
        if starts[-1] != index.group_tokens[group]:
            path, number = index.locate_group(group)
            problem = ValueError(
                f"num_tokens adds up to {starts[-1]}, but the row group has "
                f"{index.group_tokens[group]} tokens"
            )
            raise decoding_error(index.uri(path), number, problem)
        return np.diff(starts)

    if index.remote is None:
        yield from map(read, groups)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        for first in range(0, len(groups), _GROUPS_AHEAD):
            yield from pool.map(read, groups[first : first + _GROUPS_AHEAD])
