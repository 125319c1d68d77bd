"""Find the documents behind samples, for example to read the text of a loss spike.

Reads four small columns of the one or two row groups that hold a sample, and no tokens. The columns are kept
for the next samples, so that many samples in about the order of the stream are found quickly.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate

import numpy as np
import pyarrow as pa

from etl.loader.fetch.table_index import TableIndex
from etl.loader.order.best_fit_packing import UnitWindows
from etl.loader.order.epoch import EpochPlan
from etl.loader.order.unit_plan import UnitPlan

_COLUMNS = ("id", "source", "row", "num_tokens")
_KEPT_GROUPS = 16  # row groups; one of 1.5 M tokens takes 100 kB


@dataclass(frozen=True, kw_only=True)
class DocumentSpan:
    """Consecutive tokens of one document in a window, with their origin."""

    start: int  # offset of the first token in the window: 0 to seq_len
    count: int
    document_start: int  # of the first token, in the transformed document after its prefix
    id: str | None
    source: str
    row: int
    file: str  # path relative to the token table
    row_group: int
    num_prefix: int = 0  # the first tokens of the span that belong to the prefix of a view


@dataclass(frozen=True)
class _Group:
    """The D documents of a row group, with the path of its file and its number there."""

    path: str
    number: int
    columns: pa.Table
    ends: np.ndarray  # (D,) int64, tokens of the row group up to the end of each document
    prefixes: np.ndarray  # (D,) int64, tokens of the prefix of each


class Locator:
    """Finds the documents behind the samples of one epoch."""

    def __init__(
        self,
        index: TableIndex,
        plan: EpochPlan,
        *,
        epoch: int,
        truncated_at: int | None,
        has_prefixes: Callable[[int], bool],
    ) -> None:
        """Plan the epoch.

        ``truncated_at`` is the number of tokens at which padded documents are cut, ``has_prefixes`` says of
        a sample whether it keeps the prefixes of its documents.
        """
        self._index = index
        self._plan = plan
        self._epoch = epoch
        self._truncated_at = truncated_at
        self._has_prefixes = has_prefixes
        self._stream = plan.stream(epoch)
        self._read = lru_cache(_KEPT_GROUPS)(partial(_read_group, index))

    def locate(self, sample: int) -> list[DocumentSpan]:
        """Return the documents of a sample; the counts of a packed window add up to seq_len + 1."""
        spans = self._locate(sample)
        return spans if self._has_prefixes(sample) else _without_prefixes(spans)

    def _locate(self, sample: int) -> list[DocumentSpan]:
        if isinstance(self._plan, UnitPlan):
            window = self._plan.find_window(self._epoch, self._stream, sample)
            return list(self._locate_pieces(self._plan, window))
        window = self._plan.window(self._epoch, sample)
        if self._truncated_at is not None:
            return self._locate_document(window, self._truncated_at)
        first = window * self._plan.seq_len
        stop = first + self._plan.seq_len + 1
        return [
            span
            for i in self._stream.group_indices(first, stop)
            for span in self._spans_in_group(i, first, stop)
        ]

    def _locate_document(self, document: int, num_tokens: int) -> list[DocumentSpan]:
        (index,) = self._stream.group_indices(document, document + 1)
        group = self._read(int(self._stream.groups[index]))
        counts = np.diff(group.ends, prepend=0)
        row = int(np.flatnonzero(counts)[document - self._stream.start(index)])
        count = min(int(counts[row]), num_tokens)
        return [_span(group, row, start=0, first=0, count=count)]

    def unit_windows(self, plan: UnitPlan, unit: int) -> UnitWindows:
        """Return the best-fit windows of a unit."""
        strands, rows = [], plan.row_groups
        for _, span in plan.unit_spans(unit):
            groups = plan.span_groups(span)
            ends = [rows.start(group) + self._read(group).ends for group in groups]
            strands.append((np.concatenate([[rows.start(groups[0])], *ends]), span))
        return UnitWindows.of(strands, plan.window_tokens)

    def _locate_pieces(self, plan: UnitPlan, window: int) -> Iterator[DocumentSpan]:
        """Yield the documents of a best-fit window of the stream; they are in its inputs."""
        unit_index = self._stream.group_index(window)
        windows, rows = (
            self.unit_windows(plan, int(self._stream.groups[unit_index])),
            plan.row_groups,
        )
        pieces = windows.pieces(window - self._stream.start(unit_index))
        column = 0
        for first, count in zip(
            windows.tokens[pieces].tolist(), windows.counts[pieces].tolist(), strict=True
        ):
            number = rows.group_index(first)
            begin = first - rows.start(number)
            group = self._read(number)
            row = int(np.searchsorted(group.ends, begin, side="right"))
            before = int(group.ends[row - 1]) if row else 0
            yield _span(group, row, start=column, first=begin - before, count=count)
            column += count

    def _spans_in_group(self, index: int, first: int, stop: int) -> Iterator[DocumentSpan]:
        """Yield the documents of the stream's tokens [first, stop) in the row group at an index of it."""
        group, base = self._read(int(self._stream.groups[index])), self._stream.start(index)
        # The first document that ends after ``first``, and all that begin before ``stop``.
        row = int(np.searchsorted(group.ends, first - base, side="right"))
        start = int(group.ends[row - 1]) if row else 0
        while row < len(group.ends) and base + start < stop:
            end = int(group.ends[row])
            if end > start:
                begin = max(base + start, first)
                count = min(base + end, stop) - begin
                yield _span(
                    group, row, start=begin - first, first=begin - base - start, count=count
                )
            row, start = row + 1, end


def _read_group(index: TableIndex, number: int) -> _Group:
    path, group = index.locate_group(number)
    columns = index.select(number, index.read_row_group(number, _COLUMNS))
    # Not np.asarray: Arrow's conversion imports pandas, 40 MB.
    counts = np.array(columns["num_tokens"].to_pylist(), np.int64)
    prefixes = index.prefix_lengths(number, counts)
    counts = index.lengths_as_read(number, counts)
    columns = columns.select(["id", "source", "row"]).combine_chunks()
    return _Group(path, group, columns, np.cumsum(counts), prefixes)


def _without_prefixes(spans: Iterable[DocumentSpan]) -> list[DocumentSpan]:
    """Return the spans of a window from which the prefixes were removed; it is shorter by these."""
    spans = [span for span in spans if span.count > span.num_prefix]
    counts = [span.count - span.num_prefix for span in spans]
    starts = accumulate(counts, initial=0)
    parts = zip(spans, starts, counts, strict=False)
    return [replace(span, start=start, count=count, num_prefix=0) for span, start, count in parts]


def _span(group: _Group, row: int, *, start: int, first: int, count: int) -> DocumentSpan:
    """Return a span of a document from its token ``first`` on, counted with its prefix."""
    prefix = int(group.prefixes[row])
    id_, source, number = (column[row].as_py() for column in group.columns.columns)
    return DocumentSpan(
        start=start,
        count=count,
        document_start=max(first - prefix, 0),
        id=id_,
        source=source,
        row=number,
        file=group.path,
        row_group=group.number,
        num_prefix=min(max(prefix - first, 0), count),
    )
