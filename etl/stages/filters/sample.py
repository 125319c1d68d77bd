"""Keep a fraction of the documents, always the same one."""

from typing import Final, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from pydantic import Field

from etl.kernels.bytes.utf8 import one_chunk
from etl.stages.base import Filter, Rules
from etl.text import urls

By = Literal["row", "id", "url", "host", "content"]

sample_position = pl.col("sample_position")
"""Where a document stands in the order that a seed gives to all of them: 0 to less than 1."""

_COLUMN: Final = {"id": "id", "url": "url", "host": "url", "content": "text"}
_BITS: Final = 53  # of a hash: as many as a float64 holds


class Sample(Filter):
    """Keep a fraction of the documents, chosen by a hash: the same ones however the input is cut.

    What 0.1 keeps, 0.2 keeps as well; another ``seed`` keeps others. ``by`` says what is hashed, and so
    what stays together: each row by its address (the input file's URI and the record's number), the
    user's ``id``, the ``url``, the URL's ``host``, or the ``content``: the text as it is at this stage.
    Where that is null, the address stands in.
    """

    kind: Literal["sample"] = "sample"
    shorthand = "fraction"
    thresholds = ("fraction",)
    fraction: float = Field(ge=0, le=1)
    by: By = "row"
    seed: int = Field(default=0, ge=0, lt=1 << 64)

    def columns(self) -> dict[str, str]:
        """``sample_position``."""
        return {"sample_position": "share of documents before it"}

    def rules(self) -> Rules:
        """``sample.out``: the position is not below the fraction."""
        return {"out": sample_position >= self.fraction}

    def signals(self) -> list[str]:
        """The address, what is hashed, and the position."""
        return list(dict.fromkeys(["source", "row", *self._reads(), *super().signals()]))

    def measure(self, table: pa.Table) -> pa.Table:
        """The position of each row, never null."""
        addresses_of = zip(table["source"].to_pylist(), table["row"].to_pylist(), strict=True)
        keys = [f"{source}\n{row}" for source, row in addresses_of]
        if column := _COLUMN.get(self.by):
            found = pl.Series(column, one_chunk(table[column]), pl.String)
            found = urls.hosts(found) if self.by == "host" else found
            keys = [
                key if value is None else value
                for key, value in zip(keys, found.to_list(), strict=True)
            ]
        return pa.table({"sample_position": pa.array(positions(keys, self.seed))})

    def _reads(self) -> list[str]:
        return [_COLUMN[self.by]] if self.by in _COLUMN else []


def positions(keys: list[str], seed: int) -> NDArray[np.float64]:
    """A number of [0, 1) for each key: the first 53 bits of its XXH3 with a seed.

    >>> positions(["a", "b", "a"], seed=0).round(3).tolist()
    [0.901, 0.341, 0.901]
    """
    digest = xxhash.xxh3_64_intdigest  # 0.2 us a key, and 0.1 us a kilobyte
    hashes = (digest(key.encode(), seed) >> (64 - _BITS) for key in keys)
    found: NDArray[np.float64] = np.fromiter(hashes, np.float64, len(keys)) / 2**_BITS
    return found
