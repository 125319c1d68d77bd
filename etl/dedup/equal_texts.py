"""Pair documents whose texts have equal content hashes."""

from typing import Final

import numpy as np
import pandas as pd
import polars as pl

HASHES: Final = pd.DataFrame(
    {name: pd.Series(dtype="int64") for name in ("high", "low", "document")}
    | {"rank": pd.Series(dtype="float64")}
)
"""Halves of content hashes, with the addresses and ranks of their documents."""


def pair_with_best(hashes: pd.DataFrame) -> pd.DataFrame:
    """Return the documents of the arrival that are not the best of their hash, each with its keeper."""
    frame = pl.DataFrame({name: hashes[name].to_numpy() for name in HASHES.columns})
    is_new = pl.col("rank") > -np.inf
    pairs = (
        frame.filter(pl.len().over("high", "low") > 1)
        .sort("high", "low", "rank", "document")
        .with_columns(keeper=pl.col("document").first().over("high", "low"))
        .filter(is_new & (pl.col("document") != pl.col("keeper")))
    )
    return pd.DataFrame({name: pairs[name].to_numpy() for name in ("document", "keeper")})
