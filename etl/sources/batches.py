"""Check the texts of batches and bound the size of batches."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.schemas import RAW
from etl.sources.records import MAX_ROWS

_BOUNDED = ("text", "id", "url", "metadata", "media_type")


def check_texts(table: pa.Table, max_text_bytes: int) -> pa.Table:
    """Return the table with a reason in each row whose text is null, blank or too large.

    Rows with a reason have a null text, including those that had a reason before.
    """
    text, given = table["text"], table["reason"]
    missing = pc.is_null(text)
    length = pc.binary_length(text)
    long = pc.greater(length, max_text_bytes)
    blank = is_blank(text)
    bad = pc.or_(missing, pc.fill_null(pc.or_(long, blank), False))
    if given.null_count == len(given) and not pc.any(bad).as_py():
        return table
    null = pa.scalar(None, pa.string())
    detected = pc.if_else(blank, "source.empty_text", pc.if_else(long, "source.too_large", null))
    detected = pc.if_else(missing, "source.null_text", detected)
    reason = pc.coalesce(given, detected)
    text = replace_with_null(text, pc.is_valid(reason))
    table = table.set_column(RAW.get_field_index("text"), RAW.field("text"), text)
    return table.set_column(RAW.get_field_index("reason"), RAW.field("reason"), reason)


def is_blank(texts: pa.StringArray) -> pa.BooleanArray:
    r"""Return which texts are empty or only white space; null for a null text.

    >>> is_blank(pa.array([" a", "\n ", "", None])).to_pylist()
    [False, True, True, None]
    """
    return pc.or_(pc.equal(pc.binary_length(texts), 0), pc.utf8_is_space(texts))


def replace_with_null(values: pa.Array, mask: pa.Array) -> pa.Array:
    """Return the values with null where ``mask`` is true; uses memory only for the other values."""
    return values.take(pa.array(np.arange(len(values)), mask=np.asarray(mask)))


def bound_batches(tables: Iterable[pa.Table], batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the same rows in batches of at most ``batch_bytes`` of strings and MAX_ROWS rows.

    A larger document is the only row of its batch. Each column of a batch is one chunk.
    """
    held: list[pa.Table] = []
    held_rows, held_bytes = 0, 0
    for table in tables:
        for piece, size in _pieces(table, batch_bytes):
            rows = piece.num_rows
            if held and (held_rows + rows > MAX_ROWS or held_bytes + size > batch_bytes):
                yield pa.concat_tables(held).combine_chunks()
                held, held_rows, held_bytes = [], 0, 0
            held.append(piece)
            held_rows, held_bytes = held_rows + rows, held_bytes + size
    if held:
        yield pa.concat_tables(held).combine_chunks()


def _pieces(table: pa.Table, batch_bytes: int) -> Iterator[tuple[pa.Table, int]]:
    """Yield pieces of the table that fit into a batch, with the size of each in bytes."""
    lengths = [pc.fill_null(pc.binary_length(table[name]), 0) for name in _BOUNDED]
    ends = np.cumsum(sum(np.asarray(length, np.int64) for length in lengths))
    start, before = 0, 0
    while start < table.num_rows:
        fits = int(np.searchsorted(ends, before + batch_bytes, side="right"))
        stop = min(max(fits, start + 1), start + MAX_ROWS)
        size = int(ends[stop - 1]) - before
        yield table.slice(start, stop - start), size
        start, before = stop, before + size
