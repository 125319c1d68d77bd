"""The Sample stage: keep a reproducible fraction of the documents."""

from typing import Final, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from pydantic import Field

from etl.kernels.bytes.one_chunk import one_chunk
from etl.stages.base import Filter, Rules
from etl.text import url_columns

By = Literal["row", "id", "url", "host", "content"]

sample_position = pl.col("sample_position")
"""The position of a document in the random order given by a seed: 0 <= position < 1."""

_COLUMN: Final = {"id": "id", "url": "url", "host": "url", "content": "text"}
_BITS: Final = 53  # of a hash: the precision of a float64


class Sample(Filter):
    """Keep a fraction of the documents, chosen by a hash, independent of how the input is partitioned.

    A larger fraction keeps all documents that a smaller one keeps; another ``seed`` chooses others. ``by``
    is what is hashed, so documents with equal values are kept or rejected together: ``row`` is the address
    (the input file's URI and the record's number), ``id`` the user's id, ``url`` the URL, ``host`` its
    host, and ``content`` the text at this stage. Where the value is null, the address is used.
    """

    kind: Literal["sample"] = "sample"
    example = "sample: {fraction: 0.1, by: host}"
    shorthand = "fraction"
    thresholds = ("fraction",)
    fraction: float = Field(ge=0, le=1)
    """The share of documents to keep, from 0 to 1."""
    by: By = "row"
    """What is hashed: documents with the same value are kept or rejected together."""
    seed: int = Field(default=0, ge=0, lt=1 << 64)
    """Another seed chooses other documents."""

    def columns(self) -> dict[str, str]:
        """Return the column ``sample_position``."""
        return {"sample_position": "share of documents before it"}

    def rules(self) -> Rules:
        """Return the rule ``sample.out``: the position is not below the fraction."""
        return {"out": sample_position >= self.fraction}

    def signals(self) -> list[str]:
        """Return the columns of the address, of the hashed value, and of the position."""
        return list(dict.fromkeys(["source", "row", *self._hashed(), *super().signals()]))

    def measure(self, table: pa.Table) -> pa.Table:
        """Compute the position of each row; it is never null."""
        rows = zip(table["source"].to_pylist(), table["row"].to_pylist(), strict=True)
        keys = [f"{source}\n{row}" for source, row in rows]
        if column := _COLUMN.get(self.by):
            values = pl.Series(column, one_chunk(table[column]), pl.String)
            values = url_columns.extract_hosts(values) if self.by == "host" else values
            keys = [
                key if value is None else value
                for key, value in zip(keys, values.to_list(), strict=True)
            ]
        return pa.table({"sample_position": pa.array(hash_positions(keys, self.seed))})

    def _hashed(self) -> list[str]:
        return [_COLUMN[self.by]] if self.by in _COLUMN else []


def hash_positions(keys: list[str], seed: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each key: the first 53 bits of its XXH3 hash with a seed.

    >>> hash_positions(["a", "b", "a"], seed=0).round(3).tolist()
    [0.901, 0.341, 0.901]
    """
    digest = xxhash.xxh3_64_intdigest  # 0.2 us per key plus 0.1 us per kilobyte
    hashes = (digest(key.encode(), seed) >> (64 - _BITS) for key in keys)
    result: NDArray[np.float64] = np.fromiter(hashes, np.float64, len(keys)) / 2**_BITS
    return result
