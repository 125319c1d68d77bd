"""Replace the text of a table and add the counts of a transform as columns."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def rewritten(table: pa.Table, text: pa.Array, counts: Mapping[str, NDArray[np.int64]]) -> pa.Table:
    """Return the table with another ``text`` and columns of counts: float64, null where the text is null.

    >>> table = pa.table({"text": ["a", None], "row": [0, 1]})
    >>> rewritten(table, pa.array(["b", None]), {"mine": np.array([1, 0])}).to_pylist()
    [{'text': 'b', 'row': 0, 'mine': 1.0}, {'text': None, 'row': 1, 'mine': None}]
    """
    null = pc.is_null(text).to_numpy(zero_copy_only=False) if text.null_count else None
    columns = {name: pa.array(values.astype(float), mask=null) for name, values in counts.items()}
    for name, values in {"text": text, **columns}.items():
        index = table.schema.get_field_index(name)
        table = (
            table.append_column(name, values)
            if index < 0
            else table.set_column(index, name, values)
        )
    return table
