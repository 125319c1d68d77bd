"""Find the samples with tokens of a document: the inverse of ``find_documents.py``.

The ids and lengths of all documents are read once, in their small columns, and no tokens. The rest is
arithmetic: a document's place in the table, its windows in the stream of an epoch, and their samples.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np

from etl.loader.fetch.table_index import TableIndex
from etl.loader.find_documents import Locator
from etl.loader.order.unit_plan import UnitPlan
from etl.loader.table_windows import TableWindows


@dataclass(frozen=True, kw_only=True)
class StoredDocument:
    """A document in the row groups of an index; a view that repeats it has several."""

    id: str
    group: int  # its row group in the index
    tokens: range  # in that row group, with the prefix of a view
    nth: int  # the non-empty documents of the row group before it


def find_documents(index: TableIndex, ids: Collection[str]) -> Iterator[StoredDocument]:
    """Yield the documents with some ids, in the order of the table."""
    wanted = set(ids)
    for group in range(len(index.group_tokens)):
        columns = index.select(group, index.read_row_group(group, ("id", "num_tokens")))
        names = columns["id"].to_pylist()
        if wanted.isdisjoint(names):
            continue
        counts = np.array(columns["num_tokens"].to_pylist(), np.int64)
        counts = index.lengths_as_read(group, counts)
        ends = np.cumsum(counts)
        nth: np.ndarray = np.cumsum(counts > 0) - (counts > 0)
        for row in (row for row, name in enumerate(names) if name in wanted):
            stop = int(ends[row])
            tokens = range(stop - int(counts[row]), stop)
            yield StoredDocument(id=names[row], group=group, tokens=tokens, nth=int(nth[row]))


class SampleFinder:
    """Finds the samples of one epoch of a table that have tokens of a document."""

    def __init__(self, windows: TableWindows, epoch: int) -> None:
        self._windows, self._epoch = windows, epoch
        self._plan = windows.epochs.plan(epoch)
        self._stream = self._plan.stream(epoch)
        self.locator: Locator = windows.locator(epoch)
        """Finds the documents of a sample of the epoch."""

    def find(self, document: StoredDocument) -> list[int]:
        """Return the samples, ascending; in a packed window, the label of the last token counts, too."""
        if not document.tokens:
            return []
        find_sample: Callable[[int, int], int] = self._plan.find_sample
        windows = {w for w in self._find_windows(document) if 0 <= w < self._plan.num_samples}
        return sorted(find_sample(self._epoch, window) for window in windows)

    def _find_windows(self, document: StoredDocument) -> Iterator[int]:
        """Yield the windows of the stream that have tokens of a document."""
        plan, stream = self._plan, self._stream
        if isinstance(plan, UnitPlan):
            yield from self._find_best_fit(plan, document)
            return
        start = stream.start(int(np.flatnonzero(stream.groups == document.group)[0]))
        if self._windows.format.is_padded:
            yield start + document.nth
            return
        first, stop = start + document.tokens.start, start + document.tokens.stop
        yield from range(-(-(first - plan.seq_len) // plan.seq_len), (stop - 1) // plan.seq_len + 1)

    def _find_best_fit(self, plan: UnitPlan, document: StoredDocument) -> Iterator[int]:
        start = plan.row_groups.start(document.group)
        tokens = range(start + document.tokens.start, start + document.tokens.stop)
        for unit in plan.find_units(document.group, tokens):
            windows = self.locator.unit_windows(plan, unit)
            is_inside = (windows.tokens < tokens.stop) & (
                windows.tokens + windows.counts > tokens.start
            )
            numbers = np.searchsorted(windows.firsts, np.flatnonzero(is_inside), side="right") - 1
            first = self._stream.start(int(np.flatnonzero(self._stream.groups == unit)[0]))
            yield from (first + number for number in numbers.tolist())
