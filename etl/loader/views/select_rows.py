"""The index of a view: the row groups of a table with only the rows that the view selects.

A row that is read n times is in n copies of its row group. The copies are spread over the index, so that even
without a shuffle, each part of an epoch has the documents in the proportions of the view, and the
repetitions of a document are far from each other.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from etl.errors import LoaderError
from etl.loader.fetch.file_cache import FileCache
from etl.loader.fetch.selected_rows import MappedArray, StruckRows, TableRows
from etl.loader.fetch.table_index import TableIndex
from etl.loader.views.evaluate import evaluate
from etl.loader.views.join import join, rows_of
from etl.loader.views.pinned_documents import Pinned
from etl.loader.views.view import View

_FORMAT = (
    1  # increase it when the selected rows or their order change: older states are then refused
)
_PARTS = 256  # of the index, each with its share of every copy; chosen here: 0.4 % of an epoch
_ROWS_AT_ONCE = 1 << 22

_TIMES, _GROUP, _COPY, _TOKENS, _DOCUMENTS = (
    f"{name}.npy" for name in ("times", "group", "copy", "tokens", "documents")
)
"""The files of a selection: by row of the table, how often it is read; by row group of the index, the row
group of the table, the number of the copy, and the tokens and non-empty documents that are selected."""


def join_rows(index: TableIndex, pinned: Pinned, cache: FileCache) -> tuple[TableRows, Path]:
    """Return the rows of the row groups of a table, and the folder with their files."""
    struck = index.rows.numbers if isinstance(index.rows, StruckRows) else np.zeros(0, np.int64)
    parts = (pinned.tokens.digest(), pinned.documents.digest(), index.rows_digest)
    folder = cache.open(_key("join", *parts), partial(join, pinned, struck))
    return rows_of(index, pinned, folder), folder


def select_rows(
    index: TableIndex, rows: TableRows, *, view: View, pinned: Pinned, cache: FileCache
) -> tuple[TableIndex, TableRows, Path]:
    """Return the index of the rows that a view selects, these rows, and the folder with their files.

    Raises LoaderError if the view is not valid for the table, or selects no tokens.
    """
    settings = {**view.settings(), "columns": None}
    key = _key("rows", _FORMAT, index.digest(), pinned.documents.digest(), settings)
    folder = cache.open(key, partial(_select, index, rows, view, pinned))
    group, copy, tokens, documents = (
        np.load(folder / name) for name in (_GROUP, _COPY, _TOKENS, _DOCUMENTS)
    )
    taken = index.take(group)
    selected = replace(
        rows,
        first=rows.first[group],
        count=rows.count[group],
        times=MappedArray(str(folder / _TIMES)),
        copy=copy,
        stored_tokens=taken.stored_tokens,
        digest=key,
    )
    taken = replace(taken, group_tokens=tokens, group_documents=documents, rows=selected)
    return taken, selected, folder


def _key(kind: str, *parts: object) -> str:
    return f"{kind}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def _select(index: TableIndex, rows: TableRows, view: View, pinned: Pinned, folder: Path) -> None:
    """Evaluate a view, and write the files of its selection to a folder."""
    times_of = evaluate(view, pinned.documents)
    count = len(rows.document.values)
    times = np.lib.format.open_memmap(folder / _TIMES, mode="w+", dtype=np.uint8, shape=(count,))
    for start in range(0, count, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        times[part] = times_of[rows.document.values[part]]
        if rows.times is not None:
            times[part] *= rows.times.values[part]
    times.flush()
    columns = zip(*_count(rows, times), strict=True)
    group, copy, tokens, documents = (np.concatenate(column) for column in columns)
    if not tokens.any():
        raise LoaderError(
            f"the view selects no tokens: of {pinned.documents.num_rows:,} kept documents, it selects "
            f"{np.count_nonzero(times_of):,}",
            where=index.url,
            hint="check where, repeat and split of View; `etl show` prints the columns of documents",
        )
    order = _spread(group, copy, tokens)
    for name, values, kind in (
        (_GROUP, group, np.int64),
        (_COPY, copy, np.uint8),
        (_TOKENS, tokens, np.int32),
        (_DOCUMENTS, documents, np.int32),
    ):
        np.save(folder / name, values[order].astype(kind))


def _count(rows: TableRows, times: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the selected tokens and documents of row groups and copies that have some.

    Each item has four arrays: the row group, the copy, its tokens and its non-empty documents.
    """
    order = np.argsort(rows.first, kind="stable")  # the order of the files
    order = order[rows.count[order] > 0]
    part_of = rows.first[order] // _ROWS_AT_ONCE
    yield (np.zeros(0, np.int64),) * 4
    if not len(order):
        return
    for groups in np.split(order, np.flatnonzero(np.diff(part_of)) + 1):
        first, last = rows.first[groups], groups[-1]
        part = slice(int(first[0]), int(rows.first[last] + rows.count[last]))
        # The index lacks row groups without live rows: theirs, never selected, count to the one before.
        group_of = np.repeat(np.arange(len(groups)), np.diff(first, append=part.stop))
        lengths, part_times = rows.lengths.values[part], times[part]
        for copy in range(int(part_times.max())):
            has = np.flatnonzero((part_times > copy) & (lengths > 0))
            documents = np.bincount(group_of[has], minlength=len(groups))
            tokens = np.bincount(group_of[has], lengths[has], len(groups)).astype(np.int64)
            used = np.flatnonzero(tokens)
            yield groups[used], np.full(len(used), copy), tokens[used], documents[used]


def _spread(group: np.ndarray, copy: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return the order of the row groups of all copies in the index.

    Each copy is cut into ``_PARTS`` of about equal tokens. A part of the index has one part of each copy; of
    K copies, the parts of copy k are moved back by k / K of the index.

    >>> group, copy = np.array([0, 1, 2, 3, 0, 1]), np.array([0, 0, 0, 0, 1, 1])
    >>> _spread(group, copy, np.ones(6, np.int64)).tolist()
    [0, 5, 1, 2, 4, 3]
    """
    place = np.zeros(len(group), np.int64)
    copies = int(copy.max()) + 1
    for number in range(copies):
        members = np.flatnonzero(copy == number)
        members = members[np.argsort(group[members], kind="stable")]
        ends = np.cumsum(tokens[members], dtype=np.float64)
        middles = (ends - tokens[members] / 2) / ends[-1]
        place[members] = (middles * _PARTS).astype(np.int64) + number * _PARTS // copies
    return np.lexsort((group, copy, place % _PARTS))
