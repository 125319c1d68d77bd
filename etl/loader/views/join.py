"""Join the rows of a token table with the rows of ``documents`` by address, in bounded memory.

This is a Grace hash join (Kitsuregawa, Tanaka and Moto-oka 1983): the addresses of both tables are hashed to
64-bit keys, which are distributed by their highest bits over files of about 250 MB. Each of these is then
sorted and searched in memory. The order of the tokens does not matter, so that shuffled tables are joined in
the same way.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from etl.errors import LoaderError
from etl.lake.random_keys import random_keys
from etl.loader.fetch.range_requests import VERIFY, Ranges, open_file
from etl.loader.fetch.selected_rows import MappedArray, TableRows
from etl.loader.fetch.table_index import TableIndex
from etl.loader.views.pinned_documents import Pinned, PinnedTable, RowFile, RowGroups
from etl.parquet.parquet_file import open_parquet

_PART_ROWS = 1 << 24  # of both tables together, 16 bytes each
_SEEDS = (-3, -4, -5)  # of the keys: two documents may have the same key by one of them
_KEYED = np.dtype([("key", "<u8"), ("number", "<i8")])

LENGTHS, DOCUMENT, TIMES, FIRST_ROWS, FIRST_GROUPS = (
    f"{name}.npy" for name in ("lengths", "document", "times", "first_rows", "first_groups")
)
"""The files of a join: by row of the tokens, its length, the number of its document and, if rows are struck,
0 for these and 1 for others; by row group, in the order of the files, its first row; by file, its first row
group. The last two also have the end."""


class _Rows(NamedTuple):
    """The keys and lengths of the rows of a data file."""

    keys: np.ndarray  # (n,) uint64
    lengths: np.ndarray  # (n,) int32; empty for documents
    groups: list[int]  # the rows of each row group


def join(pinned: Pinned, struck: np.ndarray, folder: Path) -> None:
    """Write the files of a join to a folder; ``struck`` rows of the tokens, (n,) int64, need no document.

    Raises LoaderError if rows of the tokens have no document, or if documents have the same address.
    """
    if not any(_join(pinned, struck, folder, seed) for seed in _SEEDS):
        what = "several documents have the same address"
        raise LoaderError(what, where=pinned.documents.url, hint=VERIFY)


def rows_of(index: TableIndex, pinned: Pinned, folder: Path) -> TableRows:
    """Return the rows of the row groups of an index, given the folder with the files of the join."""
    paths = np.array([file.path.encode() for file in pinned.tokens.files])
    first_rows, first_groups = np.load(folder / FIRST_ROWS), np.load(folder / FIRST_GROUPS)
    groups = np.arange(len(index.group_tokens))
    sections = np.searchsorted(index.first_group, groups, side="right") - 1
    in_file = groups - index.first_group[sections]
    if index.sections is not None:
        in_file += index.sections[sections]
    numbers = first_groups[np.searchsorted(paths, index.paths)][sections] + in_file
    count = (first_rows[numbers + 1] - first_rows[numbers]).astype(np.int32)
    lengths, document, times = (
        MappedArray(str(folder / name)) for name in (LENGTHS, DOCUMENT, TIMES)
    )
    rows = TableRows(first_rows[numbers], count, lengths, document)
    if index.rows is None:
        return rows
    return replace(rows, times=times, copy=np.zeros(len(count), np.uint8))


def _join(pinned: Pinned, struck: np.ndarray, folder: Path, seed: int) -> bool:
    """Write the files of a join, and return whether the keys of the documents differ."""
    total = pinned.tokens.num_rows + pinned.documents.num_rows
    bits = max(total - 1, 1).bit_length() - (_PART_ROWS - 1).bit_length()
    parts = [folder / f"{number}.part" for number in range(1 << max(bits, 0))]
    lengths, groups, files = _create(folder / LENGTHS, np.int32, pinned.tokens.num_rows), [0], [0]
    for file, rows in _read(pinned.tokens, seed, ["num_tokens"]):
        inside = slice(*np.searchsorted(struck, (file.first, file.first + file.rows)))
        live = np.delete(np.arange(file.rows), struck[inside] - file.first)
        _spill(parts, "tokens", rows.keys[live], file.first + live)
        lengths[file.first : file.first + file.rows] = rows.lengths
        groups += rows.groups
        files.append(len(groups) - 1)
    np.save(folder / FIRST_ROWS, np.cumsum(groups, dtype=np.int64))
    np.save(folder / FIRST_GROUPS, np.array(files, np.int64))
    for file, rows in _read(pinned.documents, seed, []):
        _spill(parts, "documents", rows.keys, np.arange(file.first, file.first + file.rows))
    document = _create(folder / DOCUMENT, np.int64, pinned.tokens.num_rows)
    unique = [_match(part, document, pinned.tokens) for part in parts]
    written = [lengths, document]
    if len(struck):
        written.append(_create(folder / TIMES, np.uint8, pinned.tokens.num_rows))
        written[-1][:] = 1
        written[-1][struck] = 0
    for array in written:
        array.flush()
    return all(unique)


def _create(path: Path, kind: type, count: int) -> np.memmap:
    return np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=(count,))


def _read(table: PinnedTable, seed: int, columns: list[str]) -> Iterator[tuple[RowFile, _Rows]]:
    return table.read(["source", "row", *columns], partial(_read_file, seed=seed))


def _read_file(groups: RowGroups, *, seed: int) -> _Rows:
    keys, lengths, counts = [np.empty(0, np.uint64)], [np.empty(0, np.int32)], []
    for rows in groups:
        keys.append(random_keys(rows, seed))
        counts.append(rows.num_rows)
        if "num_tokens" in rows.column_names:
            lengths.append(np.asarray(rows["num_tokens"].combine_chunks()))
    return _Rows(np.concatenate(keys), np.concatenate(lengths), counts)


def _spill(parts: list[Path], name: str, keys: np.ndarray, numbers: np.ndarray) -> None:
    """Append keys to the parts that they belong to, each with the number of its row."""
    rows = np.empty(len(keys), _KEYED)
    rows["key"], rows["number"] = keys, numbers
    part_of = (keys >> np.uint64(32)) * np.uint64(len(parts)) >> np.uint64(32)
    rows = rows[np.argsort(part_of, kind="stable")]
    bounds = np.cumsum([0, *np.bincount(part_of.astype(np.int64), minlength=len(parts))])
    for part, (start, stop) in zip(parts, pairwise(bounds.tolist()), strict=True):
        if start < stop:
            with part.with_suffix(f".{name}").open("ab") as file:
                rows[start:stop].tofile(file)


def _match(part: Path, document: np.ndarray, tokens: PinnedTable) -> bool:
    """Set the document of each row of a part; return False if documents have the same key."""
    rows, documents = (_take(part.with_suffix(f".{name}")) for name in ("tokens", "documents"))
    documents = documents[np.argsort(documents["key"])]
    if (documents["key"][1:] == documents["key"][:-1]).any():
        return False
    places = np.searchsorted(documents["key"], rows["key"])
    is_found = places < len(documents)
    is_found[is_found] = documents["key"][places[is_found]] == rows["key"][is_found]
    if not is_found.all():
        raise _missing(tokens, rows["number"][~is_found])
    document[rows["number"]] = documents["number"][places]
    return True


def _take(path: Path) -> np.ndarray:
    """Return the rows in a file, and delete it."""
    if not path.exists():
        return np.empty(0, _KEYED)
    rows = np.fromfile(path, _KEYED)
    path.unlink()
    return rows


def _missing(tokens: PinnedTable, numbers: np.ndarray) -> LoaderError:
    """Return the error for rows of the tokens without a document; it names the first one."""
    number = int(numbers.min())
    file = next(file for file in tokens.files if number < file.first + file.rows)
    ranges = None if tokens.remote is None else Ranges(tokens.remote)
    with open_file(tokens.uri(file), file.size, ranges) as source:
        rows = open_parquet(source).read(["source", "row"], use_threads=False)
    row = rows.slice(number - file.first, 1).to_pylist()[0]
    return LoaderError(
        f"{len(numbers):,} or more rows have no document, such as row {row['row']:,} of {row['source']}",
        where=tokens.uri(file),
        hint=VERIFY,
    )
