"""Read the row groups of the data files of a token table from their footers.

The footers of a remote table are one request per file. A machine reads each footer once: later processes take
them from the cache.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from etl.errors import LoaderError
from etl.loader.fetch.file_cache import cached_arrays
from etl.loader.fetch.range_requests import VERIFY, Ranges, Remote, read_footer
from etl.parquet.page_marks import find_marks, thin_marks
from etl.parquet.parquet_file import FileMetaData
from etl.parquet.plain_pages import PlainChunk, plain_chunk

_FORMAT = 2  # increase it when the arrays change
_FOOTER_THREADS = 16
# Up to this many local files are read without threads, which are no faster for cached files and keep 20 MB.
_FEW_FILES = 1024
# The marks of all pages of so many tokens take 16 MB. Of a larger table, every nth mark is kept.
_MARKED_TOKENS = 16 * 10**9
_COLUMN = [("start", "<i8"), ("size", "<i8"), ("full_size", "<i8"), ("codec", "i1")]
CHUNKS = np.dtype([("tokens", _COLUMN), ("num_tokens", _COLUMN), ("has_empty", "?")])
"""The places of two columns of a row group, as in ``PlainChunk``, and if it has documents without tokens.

The codec is -1 if only pyarrow can read the column.
"""
_UNKNOWN = PlainChunk(0, 0, 0, -1)
_MAX_GROUP_TOKENS = (1 << 31) - 1  # the limit of the int32 offsets of list<int32>


class FileGroups(NamedTuple):
    """The G row groups of F files."""

    first_group: np.ndarray  # (F + 1,) int64: file f has groups first_group[f]:first_group[f + 1]
    tokens: np.ndarray  # (G,) int32
    documents: np.ndarray  # (G,) int32, without empty documents
    rows: np.ndarray  # (G,) int32
    chunks: np.ndarray  # (G,) CHUNKS
    marks: np.ndarray  # (F,) objects: the marks of some pages, as in the footer


def read_row_groups(
    uris: Sequence[str],
    file_tokens: Sequence[int],
    file_bytes: Sequence[int],
    *,
    remote: Remote | None,
) -> FileGroups:
    """Return the row groups of files; without ``remote``, the files are local.

    Raises LoaderError if a file does not have its tokens, and StorageError if it cannot be read.
    """
    if remote is None:
        return _read(uris, file_tokens, file_bytes, None)

    def read() -> dict[str, np.ndarray]:
        groups = _read(uris, file_tokens, file_bytes, remote)
        sizes = np.array([*map(len, groups.marks)], np.int64)
        marks = np.frombuffer(b"".join(groups.marks), np.uint8)
        return {**groups._asdict(), "marks": marks, "marks_ends": np.cumsum(sizes)}

    key = [_FORMAT, *zip(uris, file_tokens, file_bytes, strict=True)]
    arrays = cached_arrays("footers", key, read)
    ends, content = arrays.pop("marks_ends").tolist(), arrays.pop("marks").tobytes()
    starts = [0, *ends[:-1]]
    marks = [content[start:end] for start, end in zip(starts, ends, strict=False)]
    return FileGroups(**arrays, marks=_as_array(marks))


def _read(
    uris: Sequence[str],
    file_tokens: Sequence[int],
    file_bytes: Sequence[int],
    remote: Remote | None,
) -> FileGroups:
    read = partial(
        _read_groups,
        ranges=None if remote is None else Ranges(remote),
        every=marked_page(sum(file_tokens)),
    )
    if remote is None and len(uris) <= _FEW_FILES:
        groups = list(map(read, uris, file_tokens, file_bytes))
    else:
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            groups = list(pool.map(read, uris, file_tokens, file_bytes))
    counts = [counts for counts, _, _ in groups]
    tokens, documents, rows = np.concatenate([*counts, np.empty((3, 0), np.int32)], axis=1)
    return FileGroups(
        np.cumsum([0, *(len(chunks) for _, chunks, _ in groups)], dtype=np.int64),
        tokens,
        documents,
        rows,
        np.concatenate([*(chunks for _, chunks, _ in groups), np.empty(0, CHUNKS)]),
        _as_array([marks for _, _, marks in groups]),
    )


def marked_page(num_tokens: int) -> int:
    """Return the n such that marks of every nth page of a table take little memory."""
    return 1 + num_tokens // _MARKED_TOKENS


def _as_array(values: list[bytes]) -> np.ndarray:
    """Return an array of objects; np.array would make one of equally long bytes."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _read_groups(
    uri: str, file_tokens: int, file_bytes: int, *, ranges: Ranges | None, every: int
) -> tuple[np.ndarray, np.ndarray, bytes]:
    """Return the tokens, non-empty documents and rows of each row group of a file, its chunks and marks.

    The arrays are (3, groups) int32, (groups,) CHUNKS and bytes. The tokens come from the statistics of
    token_end. The documents follow from the number of values, because an empty list counts as one. The marks
    are every nth of the file.
    """
    footer = read_footer(uri, file_bytes, ranges)
    total, leaf, length = _column_indices(footer) if footer.num_row_groups else (0, 0, 0)
    counts, before = np.zeros((3, footer.num_row_groups), np.int32), 0
    chunks = np.full(footer.num_row_groups, np.array((_UNKNOWN, _UNKNOWN, False), CHUNKS))
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if group.num_rows == 0:
            continue
        statistics: Any = group.column(total).statistics
        known = statistics is not None and statistics.has_min_max
        end = int(statistics.max) if known else -1
        tokens, before = end - before, end
        values = group.column(leaf).num_values  # an empty list counts as one
        in_range = values - group.num_rows <= tokens <= min(values, _MAX_GROUP_TOKENS)
        if not in_range or group.num_rows > _MAX_GROUP_TOKENS:
            raise LoaderError(
                f"row group {number} has {values} token values, but token_end implies {tokens}",
                where=uri,
                hint="write this table only with `etl`: other tools break the running total token_end",
            )
        counts[:, number] = tokens, group.num_rows - (values - tokens), group.num_rows
        columns = (plain_chunk(group.column(i)) or _UNKNOWN for i in (leaf, length))
        chunks[number] = (*map(tuple, columns), values != tokens)
    if before != file_tokens:
        raise LoaderError(
            f"the file has {before} tokens, but the log records {file_tokens}",
            where=uri,
            hint=VERIFY,
        )
    return counts, chunks, thin_marks(find_marks(footer.metadata), every)


def _column_indices(footer: FileMetaData) -> tuple[int, int, int]:
    """Return the indices of the columns token_end, tokens and num_tokens in a file."""
    # Without footer.schema: it forms a reference cycle of 35 kB per file with the footer.
    group = footer.row_group(0)
    names = [group.column(i).path_in_schema for i in range(group.num_columns)]
    leaf = next(i for i, name in enumerate(names) if name.startswith("tokens."))
    return names.index("token_end"), leaf, names.index("num_tokens")
