"""Find the documents behind a sample, for example to read the text of a loss spike.

Reads four small columns of the one or two row groups that hold the sample, and no tokens.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl.loader.fetch.table_index import TableIndex, decoding_error
from etl.loader.order.epoch import EpochPlan, EpochStream

_COLUMNS = ("id", "source", "row", "num_tokens")


@dataclass(frozen=True, kw_only=True)
class DocumentSpan:
    """Consecutive tokens of one document in a window, with their origin."""

    start: int  # offset of the first token in the window: 0 to seq_len
    count: int
    document_start: int  # offset of the first token in the document, which begins after its prefix
    id: str | None
    source: str
    row: int
    file: str  # path relative to the token table
    row_group: int
    num_prefix: int = 0  # the first tokens of the span that belong to the prefix of a view


def locate_window(
    index: TableIndex, plan: EpochPlan, stream: EpochStream, *, window: int
) -> list[DocumentSpan]:
    """Return the documents of a window of an epoch's stream; their counts add up to seq_len + 1."""
    first = window * plan.seq_len
    stop = first + plan.seq_len + 1
    return [
        span
        for i in stream.group_indices(first, stop)
        for span in _spans_in_group(index, int(stream.groups[i]), stream.start(i), first, stop)
    ]


def locate_document(
    index: TableIndex, stream: EpochStream, *, document: int, num_tokens: int
) -> list[DocumentSpan]:
    """Return the document of a padded row, truncated after ``num_tokens``."""
    (group_index,) = stream.group_indices(document, document + 1)
    path, group, columns = _read_columns(index, int(stream.groups[group_index]))
    counts = np.array(columns["num_tokens"].to_pylist(), np.int64)
    prefixes = index.prefix_lengths(int(stream.groups[group_index]), counts)
    row = int(np.flatnonzero(counts)[document - stream.start(group_index)])
    record = columns.slice(row, 1).to_pylist()[0]
    return [
        DocumentSpan(
            start=0,
            count=min(int(counts[row] + prefixes[row]), num_tokens),
            document_start=0,
            id=record["id"],
            source=record["source"],
            row=record["row"],
            file=path,
            row_group=group,
            num_prefix=min(int(prefixes[row]), num_tokens),
        )
    ]


def without_prefixes(spans: Iterable[DocumentSpan]) -> list[DocumentSpan]:
    """Return the spans of a window from which the prefixes were removed; it is shorter by these."""
    spans = [span for span in spans if span.count > span.num_prefix]
    counts = [span.count - span.num_prefix for span in spans]
    starts = accumulate(counts, initial=0)
    parts = zip(spans, starts, counts, strict=False)
    return [replace(span, start=start, count=count, num_prefix=0) for span, start, count in parts]


def _spans_in_group(
    index: TableIndex, number: int, base: int, first: int, stop: int
) -> Iterator[DocumentSpan]:
    """Yield the documents of the tokens [first, stop) in a row group that starts at token ``base``."""
    path, group, columns = _read_columns(index, number)
    counts = np.array(columns["num_tokens"].to_pylist(), np.int64)
    prefixes = index.prefix_lengths(number, counts)
    ends = base + np.cumsum(counts + prefixes)
    starts = np.concatenate([[base], ends[:-1]])
    inside = np.flatnonzero((starts < stop) & (ends > first) & (ends > starts))
    records = columns.slice(inside[0], inside[-1] - inside[0] + 1).to_pylist()
    for row in inside.tolist():
        record = records[row - int(inside[0])]
        start, end = max(int(starts[row]), first), min(int(ends[row]), stop)
        text = int(starts[row] + prefixes[row])  # where its own tokens begin
        yield DocumentSpan(
            start=start - first,
            count=end - start,
            document_start=max(start - text, 0),
            id=record["id"],
            source=record["source"],
            row=record["row"],
            file=path,
            row_group=group,
            num_prefix=max(min(end, text) - start, 0),
        )


def _read_columns(index: TableIndex, number: int) -> tuple[str, int, Any]:
    """Return the file of a row group, its number there, and its small columns as a pa.Table."""
    path, group = index.locate_group(number)
    with index.open(number) as source:
        try:
            file = pq.ParquetFile(source, pre_buffer=False)
            columns = file.read_row_group(group, columns=list(_COLUMNS), use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise decoding_error(index.uri(path), group, error) from error
    return path, group, index.select(number, columns)
