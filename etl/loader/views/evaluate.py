"""Evaluate a view: how often each document is read in an epoch, without reading texts or tokens.

Random choices are hashes of a seed and the address or the text, so that neither the files nor other rows
change them.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.errors import LoaderError
from etl.lake.random_keys import random_keys, seed_for, uniform
from etl.loader.views.pinned_documents import PinnedTable, RowGroups
from etl.loader.views.split_sides import COLUMNS, are_on_side
from etl.loader.views.view import View
from etl.schemas import ADDRESS


class _FileTimes(NamedTuple):
    """How often the documents of a data file are read."""

    times: np.ndarray  # (n,) uint8
    nulls: dict[str, int]  # values that are null, for columns of ``repeat`` without a pair for null


def evaluate(view: View, documents: PinnedTable) -> np.ndarray:
    """Return how often each document is read in an epoch, (documents,) uint8.

    Raises LoaderError if a column does not exist or has another type than the view needs, if the condition
    is not valid, or if a column of ``repeat`` has nulls but no pair for them.
    """
    evaluation = _Evaluation.of(view, documents)
    times = np.zeros(documents.num_rows, np.uint8)
    nulls = dict.fromkeys(view.repeat, 0)
    for file, part in documents.read(evaluation.columns, evaluation.evaluate_file):
        times[file.first : file.first + file.rows] = part.times
        for column, count in part.nulls.items():
            nulls[column] += count
    for column, count in nulls.items():
        if count:
            raise LoaderError(
                f"{count:,} documents have no value in {column}, and repeat has no pair for them",
                where=documents.url,
                hint=f"add (None, times) to repeat[{column!r}], or `{column} IS NOT NULL` to where",
            )
    return times


@dataclass(frozen=True)
class _Evaluation:
    """A view with what it needs of the tables; it evaluates files in threads."""

    view: View
    columns: list[str]
    where_columns: list[str]

    @staticmethod
    def of(view: View, documents: PinnedTable) -> "_Evaluation":
        where_columns = _columns_of_where(view.where, documents)
        documents.check_columns(view.repeat)
        for name in view.repeat:
            kind = documents.schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                raise LoaderError(
                    f"repeat needs a numeric column, but {name} is {kind}", where=documents.url
                )
        columns = [*ADDRESS, *where_columns, *view.repeat, *(COLUMNS if view.split else ())]
        return _Evaluation(view, list(dict.fromkeys(columns)), where_columns)

    def evaluate_file(self, groups: RowGroups) -> _FileTimes:
        """Return how often the documents of a file are read."""
        parts, nulls = [np.empty(0, np.uint8)], dict.fromkeys(self.view.repeat, 0)
        for rows in groups:
            is_kept = _holds(self.view.where, rows.select(self.where_columns))
            if self.view.split is not None:
                is_kept &= are_on_side(rows, self.view.split)
            parts.append((self._times(rows, is_kept, nulls) * is_kept).astype(np.uint8))
        return _FileTimes(np.concatenate(parts), nulls)

    def _times(self, rows: pa.Table, is_kept: np.ndarray, nulls: dict[str, int]) -> np.ndarray:
        """Return how often documents are repeated, (n,) float64; count nulls in those that are kept."""
        if not self.view.repeat:
            return np.ones(rows.num_rows)
        total = np.ones(rows.num_rows)
        for column, pairs in self.view.repeat.items():
            values = np.asarray(
                pc.cast(rows[column], pa.float64()).combine_chunks().fill_null(np.nan)
            )
            is_null, limits = np.isnan(values), dict(pairs)
            conditions = [values >= limit for limit in limits if limit is not None]
            choices = [times for limit, times in limits.items() if limit is not None]
            times = np.select(conditions, choices, 0.0) if conditions else np.zeros(len(values))
            times[is_null] = limits.get(None, 0.0)
            if None not in limits:
                nulls[column] += int((is_null & is_kept).sum())
            total *= times
        whole = np.floor(total)
        draws = uniform(random_keys(rows, seed_for("repeat", self.view.seed)))
        repeated: np.ndarray = whole + (draws < total - whole)
        return repeated


@lru_cache
def _polars_process() -> int:
    """Return the process that has used Polars first: this process, or the process that it was forked from."""
    return os.getpid()


def _columns_of_where(where: str | None, documents: PinnedTable) -> list[str]:
    """Return the columns that a condition reads; raise LoaderError if it is not valid."""
    if where is None:
        return []
    if _polars_process() != os.getpid():
        raise LoaderError(
            "this process was forked from one that has evaluated a view, where Polars may wait forever",
            where=documents.url,
            hint="open the view once before the fork: its result is then in the cache",
        )
    import polars as pl  # 40 MB, which later processes find the result without

    from etl.row_condition import check_condition

    nested = (pa.types.is_nested, pa.types.is_binary)
    fields = [field for field in documents.schema if not any(is_(field.type) for is_ in nested)]
    empty: Any = pl.from_arrow(pa.schema(fields).empty_table())
    try:
        return check_condition(where, empty.schema)
    except ValueError as error:
        raise LoaderError(f"where of View: {error}", where=documents.url) from error


def _holds(where: str | None, rows: pa.Table) -> np.ndarray:
    """Return for which rows a condition is true, (n,) bool; null is not."""
    if where is None:
        return np.ones(rows.num_rows, bool)
    import polars as pl

    frame: Any = pl.from_arrow(rows)
    kept: np.ndarray = frame.select(keep=pl.sql_expr(where).fill_null(False))["keep"].to_numpy()
    return kept
