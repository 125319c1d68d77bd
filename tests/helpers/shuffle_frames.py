"""A frame with a column of each type that is shuffled."""

from typing import Final

import dask.dataframe as dd
import numpy as np
import pandas as pd

ROWS: Final = 500
PARTS: Final = 6


def read(part: int) -> pd.DataFrame:
    """Return the rows of a part."""
    rng = np.random.default_rng(part)
    value = rng.integers(-(2**63), 2**63 - 1, ROWS, dtype=np.int64)
    rank = np.where(rng.random(ROWS) < 0.3, np.nan, rng.random(ROWS))
    return pd.DataFrame({"value": value, "rank": rank, "is_new": rank > 0.5})


def frame() -> dd.DataFrame:
    """Return the rows of all parts."""
    return dd.from_map(read, range(PARTS), meta=read(0)[:0])


def values(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the rows in some order; NaN equals NaN."""
    return sorted(tuple(map(str, row)) for row in rows[["value", "rank", "is_new"]].to_numpy())
