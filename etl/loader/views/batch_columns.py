"""Add columns of the documents to the batches.

The values are kept in the order of ``documents``, in Arrow files that are mapped into memory, one for each
column. A batch looks up the documents of its windows by arithmetic: from the order of the epoch, the lengths
of the rows, and the number of each row's document. So values cost no request to the lake, and for tables in
any order the work is the same.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from etl.loader.batches.document_boundaries import Batch
from etl.loader.fetch.file_cache import FileCache
from etl.loader.fetch.selected_rows import TableRows
from etl.loader.fetch.token_transform import TransformedDocuments
from etl.loader.one_pass import Reader
from etl.loader.order.best_fit_packing import UnitWindows
from etl.loader.order.epoch import EpochPlan, EpochStream
from etl.loader.order.unit_plan import UnitPlan
from etl.loader.views.pinned_documents import PinnedTable, RowGroups

_VALUES, _FIRSTS = "values.arrow", "firsts.npy"
_ZERO = np.zeros(1, np.int64)
_CACHED_GROUPS = 1024  # row groups, 16 bytes for each document
_CACHED_BATCHES = 64  # of values: views of the mapped file


class ColumnValues:
    """A column of the documents in a mapped file, by the numbers of the documents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def of(documents: PinnedTable, column: str, cache: FileCache) -> "ColumnValues":
        """Return a column of the documents, which is copied to the cache if it is not there."""
        digest = hashlib.sha256(f"{documents.digest()} {column}".encode()).hexdigest()[:32]
        return ColumnValues(cache.open(f"column-{digest}", partial(_write, documents, column)))

    def take(self, numbers: np.ndarray) -> list[Any]:
        """Return the values of some documents as Python objects."""
        places = np.searchsorted(self._firsts, numbers, side="right") - 1
        offsets = numbers - self._firsts[places]
        pairs = zip(places.tolist(), offsets.tolist(), strict=True)
        return [self._batch(place)[offset].as_py() for place, offset in pairs]

    @cached_property
    def _firsts(self) -> np.ndarray:
        firsts: np.ndarray = np.load(self.folder / _FIRSTS)
        return firsts

    @cached_property
    def _batch(self) -> Any:
        file = pa.ipc.open_file(pa.memory_map(str(self.folder / _VALUES)))
        # Without a reference to self, which would keep the file open until a collection of garbage.
        return lru_cache(_CACHED_BATCHES)(lambda number: file.get_batch(number).column(0))

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder}


def _write(documents: PinnedTable, column: str, folder: Path) -> None:
    """Copy a column of the documents to an Arrow file in a folder, and write where its batches begin."""
    schema = pa.schema([documents.schema.field(column)])
    firsts = [0]
    with pa.ipc.new_file(str(folder / _VALUES), schema) as file:
        for _, part in documents.read([column], _concatenate):
            for batch in part.to_batches():
                file.write_batch(batch)
                firsts.append(firsts[-1] + batch.num_rows)
    np.save(folder / _FIRSTS, np.array(firsts[:-1], np.int64))


def _concatenate(groups: RowGroups) -> pa.Table:
    parts = list(groups)
    return pa.concat_tables(parts) if parts else pa.table({})


def _documents_of(
    rows: TableRows, transformed: TransformedDocuments | None, group: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the documents of a row group: their numbers, and their ends as they are read."""
    documents, ends = rows.documents_of(group)
    if transformed is not None:
        lengths = np.diff(ends, prepend=0)
        ends = np.cumsum(lengths + transformed.added_to(group, lengths))
    return documents, ends


class SampleDocuments:
    """The documents of the samples of an epoch, found without reading the table."""

    def __init__(
        self,
        rows: TableRows,
        plan: EpochPlan,
        epoch: int,
        transformed: TransformedDocuments | None,
    ) -> None:
        self._rows = rows
        self._plan = plan
        self._epoch = epoch
        self._stream: EpochStream = plan.stream(epoch)
        # Not of a method: this object would refer to itself, and keep files open.
        self._group = lru_cache(_CACHED_GROUPS)(partial(_documents_of, rows, transformed))
        if isinstance(plan, UnitPlan):
            self._unit = lru_cache(2 * plan.lanes)(partial(_pack_unit, plan, self._group))
        self._block = lru_cache(2 * plan.lanes)(partial(plan.block, epoch))

    def of(self, sample: int, *, has_prefixes: bool = True) -> np.ndarray:
        """Return the numbers of the documents of a sample, in its order, (n,) int64.

        The documents of a window have tokens in its inputs; the label of the last token does not count.
        """
        if isinstance(self._plan, UnitPlan):
            return self._of_pieces(self._plan, sample)
        first = self._first(sample)
        if self._plan.overlap == 0:  # the stream consists of documents
            index = self._stream.group_index(first)
            documents, _ = self._group(int(self._stream.groups[index]))
            place = first - self._stream.start(index)
            return documents[place : place + 1]
        stop = first + self._plan.seq_len
        if has_prefixes:
            return self._overlapping(first, stop)[0]
        documents, ends, sizes = self._overlapping(first, stop + 1)
        texts = ends - sizes + self._rows.prefix_lengths(documents)
        is_shortened = (np.minimum(texts, stop + 1) > np.maximum(ends - sizes, first)).any()
        # A shortened window also has the label of its last token among its inputs.
        has_tokens = np.maximum(texts, first) < np.minimum(ends, stop + bool(is_shortened))
        inside: np.ndarray = documents[has_tokens]
        return inside

    def _of_pieces(self, plan: UnitPlan, sample: int) -> np.ndarray:
        """Return the numbers of the documents of the pieces of a best-fit window, (n,) int64."""
        window = plan.find_window(self._epoch, self._stream, sample)
        index = self._stream.group_index(window)
        documents, firsts = self._unit(int(self._stream.groups[index]))
        number = window - self._stream.start(index)
        inside: np.ndarray = documents[firsts[number] : firsts[number + 1]]
        return inside

    def ends_at_start(self, sample: int) -> bool:
        """Return whether a document begins with the last label of a window."""
        last = self._first(sample) + self._plan.seq_len
        _, ends, sizes = self._overlapping(last, last + 1)
        return int(ends[0] - sizes[0]) == last

    def _first(self, sample: int) -> int:
        """Return where a sample begins in the stream of the epoch."""
        position, lane = divmod(sample, self._plan.lanes)
        number, slot = divmod(position, self._plan.block_windows)
        start, order = self._block(lane, number)
        return (start + int(order[slot])) * self._plan.seq_len

    def _overlapping(self, first: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the documents of the tokens [first, stop): numbers, ends in the stream, and sizes."""
        index = self._stream.group_index(first)
        base = self._stream.start(index)
        parts = []
        while base < stop:
            documents, ends = self._group(int(self._stream.groups[index]))
            begin, last = ends.searchsorted((first - base, stop - base - 1), side="right").tolist()
            part = slice(begin, last + 1)
            before = ends[begin - 1 : begin] if begin else _ZERO
            parts.append((documents[part], ends[part] + base, np.diff(ends[part], prepend=before)))
            base, index = base + int(ends[-1]), index + 1
        if len(parts) == 1:
            return parts[0]
        documents, ends, sizes = (np.concatenate(column) for column in zip(*parts, strict=True))
        return documents, ends, sizes


def _pack_unit(
    plan: UnitPlan, documents_of: Callable[[int], tuple[np.ndarray, np.ndarray]], unit: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the document of each piece of a unit, (P,) int64, and the first piece of each window.

    ``documents_of`` returns the documents of a row group, and their ends.
    """
    numbers, ends, strands = [], [], []
    for _, span in plan.unit_spans(unit):
        starts = [np.zeros(0, np.int64)]
        for group in plan.span_groups(span):
            documents, group_ends = documents_of(group)
            numbers.append(documents)
            ends.append(plan.row_groups.start(group) + group_ends)
            starts += [ends[-1] - np.diff(group_ends, prepend=0)]
        strands.append((np.append(np.concatenate(starts), ends[-1][-1]), span))
    windows = UnitWindows.of(strands, plan.window_tokens)
    places = np.searchsorted(np.concatenate(ends), windows.tokens, side="right")
    return np.concatenate(numbers)[places], windows.firsts


class ReaderWithColumns:
    """A reader of an epoch's batches that adds columns of the documents."""

    def __init__(
        self,
        reader: AbstractContextManager[Reader],
        columns: dict[str, ColumnValues],
        documents: Callable[[int], np.ndarray],
        *,
        is_padded: bool,
    ) -> None:
        self._context = reader
        self._columns = columns
        self._documents = documents  # of a sample
        self._is_padded = is_padded
        self._stack = ExitStack()

    def batch(self, samples: Sequence[int]) -> Batch:
        """Return a batch with a list for each column, which has an item for each row."""
        batch = self._reader.batch(samples)
        numbers = [self._documents(sample) for sample in samples]
        ends = np.cumsum([len(part) for part in numbers]).tolist()
        for name, column in self._columns.items():
            values = column.take(np.concatenate(numbers))
            if not self._is_padded:
                values = [
                    values[end - len(part) : end] for part, end in zip(numbers, ends, strict=True)
                ]
            batch[name] = values
        return batch

    def __enter__(self) -> Self:
        self._reader = self._stack.enter_context(self._context)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
