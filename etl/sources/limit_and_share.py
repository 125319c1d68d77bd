"""Read a part of a source, spread over its files, without reading the rest."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from etl.sources.source_settings import Source
from etl.sources.split import Split
from etl.sources.spread import spread

_MAX_SPLITS = 4096  # of a limit: more would read few records each


def choose_part(splits: Iterable[Split], source: Source) -> Iterator[Split]:
    """Yield the splits to read of a source with ``limit`` or ``share``, with the limits of each.

    Pieces of a file whose records would have to be counted are replaced by the whole file, which is read
    from its start.
    """
    pieces = _countable(splits)
    if (share := source.share) is not None:
        for split in pieces:
            num_bytes = int(split.bytes * share)
            if split.format == "jsonl" and split.compression is None:  # bytes are known exactly
                yield replace(split, bytes=num_bytes, stop=split.start + max(num_bytes, 1))
            else:
                most = max(int(split.work * share), 1)
                yield replace(split, bytes=num_bytes, max_text_bytes=most)
    elif source.limit is not None:
        chosen = spread(pieces, min(source.limit, _MAX_SPLITS))
        for index, split in enumerate(chosen):
            rows = source.limit // len(chosen) + (index < source.limit % len(chosen))
            yield replace(split, max_rows=rows)


def _countable(splits: Iterable[Split]) -> Iterator[Split]:
    for _, group in groupby(splits, key=lambda split: split.uri):
        pieces = [*group]
        if any(piece.first_row is None for piece in pieces):
            yield replace(pieces[0], start=0, stop=None, first_row=0, bytes=pieces[0].size)
        else:
            yield from pieces


def take_part(tables: Iterator[pa.Table], split: Split) -> Iterator[pa.Table]:
    """Yield the records of a split up to its limits; at least one record if there is any."""
    rows, text_bytes = split.max_rows, split.max_text_bytes
    for table in tables:
        taken = table
        if rows is not None:
            taken = table.slice(0, rows)
            rows -= len(taken)
        if text_bytes is not None:
            ends = pc.cumulative_sum(pc.fill_null(pc.binary_length(taken["text"]), 0).cast("int64"))
            below = pc.sum(pc.less(ends, text_bytes)).as_py() or 0
            text_bytes -= ends[-1].as_py() if len(ends) else 0
            taken = taken.slice(0, below + 1)
        yield taken
        if (rows is not None and rows <= 0) or (text_bytes is not None and text_bytes <= 0):
            return
