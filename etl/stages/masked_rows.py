"""Select rows of a batch by a mask, and spread values of the selected rows over all rows."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.kernels.bytes.one_chunk import one_chunk


def select(table: pa.Table, rows: pa.BooleanArray) -> pa.Table:
    """Return the selected rows; without a copy if these are all."""
    return table if pc.all(rows).as_py() else table.filter(rows)


def spread(values: pa.ChunkedArray, rows: pa.BooleanArray) -> pa.Array:
    """Return the values of the selected rows as a column of all rows, null for the others."""
    array = one_chunk(values)
    return array if len(array) == len(rows) else array.take(indices_among(rows))


def indices_among(rows: pa.BooleanArray) -> pa.Array:
    """Return the index of each selected row among all selected rows; null for the others."""
    mask = rows.to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(mask) - 1, mask=~mask)
