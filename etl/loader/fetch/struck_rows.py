"""Leave rows out of the index of a token table: those that deletion vectors strike, and some documents.

The files and their row groups remain as they are, so that the index needs to know where the struck rows are:
16 bytes for each. The vectors say which rows they are, and the lengths of the documents in the row groups
concerned say which tokens. Documents are found by their addresses, in two small columns of the whole table.
All of this is read once on a machine, and then taken from the cache.
"""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from etl.delta.deletion_vectors import read_struck
from etl.loader.fetch.document_lengths import read_lengths
from etl.loader.fetch.file_cache import cached_arrays
from etl.loader.fetch.selected_rows import StruckRows
from etl.loader.fetch.table_index import TableIndex
from etl.parquet.data_file_reader import Positions

_FORMAT = 1  # increase it when the arrays change
_THREADS = 16  # of which each waits for an object store

Address = tuple[str, int]
"""The ``source`` and the ``row`` of a document."""


def leave_out_struck(
    index: TableIndex,
    rows: np.ndarray,
    vectors: Sequence[str | None],
    *,
    addresses: Sequence[Address] = (),
) -> TableIndex:
    """Return the index of the rows that are not struck, without the documents with some addresses.

    ``index`` has all rows; ``rows`` (G,) int32 are the rows of its row groups, and ``vectors`` (F,) the
    deletion vectors of its files. Raises TableError if a vector is missing or damaged, and as
    ``read_lengths`` does.
    """
    by_file = {file: vector for file, vector in enumerate(vectors) if vector is not None}
    if not by_file and not addresses:
        return index
    named = [(index.path(file), vector) for file, vector in by_file.items()]
    key: list[object] = [_FORMAT, index.url, named]
    if addresses:
        key += [addresses, index.digest()]
    arrays = cached_arrays("struck", key, partial(_read, index, rows, by_file, addresses))
    if not len(arrays["numbers"]):
        return index
    digest = hashlib.sha256(b"\n".join(index.paths.tolist()))
    digest.update(arrays["numbers"].astype("<i8").tobytes())
    firsts = np.cumsum(rows, dtype=np.int64) - rows
    struck = StruckRows(
        firsts, rows, **arrays, stored_tokens=index.group_tokens, digest=digest.hexdigest()
    )
    groups = np.searchsorted(firsts + rows, struck.numbers, side="right")
    lengths = struck.stops - struck.starts
    tokens, documents = (
        np.bincount(groups, weights, len(rows)).astype(np.int32)
        for weights in (lengths, lengths > 0)
    )
    return replace(
        index,
        group_tokens=index.group_tokens - tokens,
        group_documents=index.group_documents - documents,
        rows=struck,
    )


def _read(
    index: TableIndex, rows: np.ndarray, by_file: dict[int, str], addresses: Sequence[Address]
) -> dict[str, np.ndarray]:
    """Return ``numbers``, ``starts`` and ``stops`` of the struck rows, as ``StruckRows`` has them."""
    ends = np.cumsum(np.append(0, rows), dtype=np.int64)  # of the rows before each row group
    bounds = ends[index.first_group]

    def read(file: int) -> Positions:
        first, stop = bounds[file : file + 2].tolist()
        entry = {"path": index.path(file), "vector": by_file[file], "physical_rows": stop - first}
        return read_struck(index.url, entry) + np.int64(first)

    wanted = set(addresses)

    def find(group: int) -> np.ndarray:
        columns = index.read_row_group(group, ("source", "row"))
        pairs = zip(*(column.to_pylist() for column in columns.columns), strict=True)
        found = [position for position, address in enumerate(pairs) if address in wanted]
        numbers: np.ndarray = np.array(found, np.int64) + ends[group]
        return numbers

    groups = range(len(rows)) if wanted else range(0)
    with ThreadPoolExecutor(1 if index.remote is None else _THREADS) as pool:
        parts = [*pool.map(read, by_file), *pool.map(find, groups)]
    numbers = np.unique(np.concatenate(parts))
    places = np.searchsorted(numbers, ends)
    concerned = np.flatnonzero(np.diff(places)).tolist()
    starts, stops = np.empty((2, len(numbers)), np.int32)
    for group, lengths in zip(concerned, read_lengths(index, concerned), strict=True):
        part = slice(*places[group : group + 2].tolist())
        inside = numbers[part] - ends[group]
        stops[part] = np.cumsum(lengths)[inside]
        starts[part] = stops[part] - lengths[inside]
    return {"numbers": numbers, "starts": starts, "stops": stops}
