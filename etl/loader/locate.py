"""A sample -> the documents behind it, so that a loss spike can be read.

It reads four small columns of the one or two row groups that the sample lies in, and no tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from etl.loader.index import Index, damaged
from etl.loader.plan import Plan, Stream

_COLUMNS = ("id", "source", "row", "num_tokens")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Consecutive tokens of one document in a window: where they stand, and where they come from."""

    start: int  # the first one's place in the window: 0 to seq_len
    count: int
    document_start: int  # the first one's place in the document
    id: str | None
    source: str
    row: int
    file: str  # of the token table, inside it
    row_group: int


def locate(index: Index, plan: Plan, stream: Stream, *, window: int) -> list[Part]:
    """The documents of a window of an epoch's stream, in order; their counts add up to seq_len + 1."""
    first = window * plan.seq_len
    stop = first + plan.seq_len + 1
    return [
        part
        for place in stream.places(first, stop)
        for part in _parts(index, int(stream.groups[place]), stream.start(place), first, stop)
    ]


def locate_document(index: Index, stream: Stream, *, document: int, num_tokens: int) -> list[Part]:
    """The one part that a padded row is: a document of an epoch's stream, cut after ``num_tokens``."""
    (place,) = stream.places(document, document + 1)
    path, group, columns = _read(index, int(stream.groups[place]))
    counts = np.array(columns["num_tokens"].to_pylist(), np.int64)
    row = int(np.flatnonzero(counts)[document - stream.start(place)])
    found = columns.slice(row, 1).to_pylist()[0]
    return [
        Part(
            start=0,
            count=min(int(counts[row]), num_tokens),
            document_start=0,
            id=found["id"],
            source=found["source"],
            row=found["row"],
            file=path,
            row_group=group,
        )
    ]


def _parts(index: Index, number: int, base: int, first: int, stop: int) -> Iterator[Part]:
    """The parts of [first, stop) in one row group, whose first token is the stream's ``base``."""
    path, group, columns = _read(index, number)
    counts: list[Any] = columns["num_tokens"].to_pylist()
    ends = base + np.cumsum(counts, dtype=np.int64)
    begins = np.concatenate([[base], ends[:-1]])
    inside = np.flatnonzero((begins < stop) & (ends > first) & (ends > begins))
    rows = columns.slice(inside[0], inside[-1] - inside[0] + 1).to_pylist()
    for place in inside.tolist():
        row = rows[place - int(inside[0])]
        start, end = max(int(begins[place]), first), min(int(ends[place]), stop)
        yield Part(
            start=start - first,
            count=end - start,
            document_start=start - int(begins[place]),
            id=row["id"],
            source=row["source"],
            row=row["row"],
            file=path,
            row_group=group,
        )


def _read(index: Index, number: int) -> tuple[str, int, Any]:
    """The file of a row group of the table, its place there, and its small columns, a pa.Table."""
    path, group = index.group(number)
    with index.open(number) as source:
        try:
            file = pq.ParquetFile(source, pre_buffer=False)
            return (
                path,
                group,
                file.read_row_group(group, columns=list(_COLUMNS), use_threads=False),
            )
        except (pa.ArrowException, OSError) as error:
            raise damaged(index.uri(path), group, error) from error
