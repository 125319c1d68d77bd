"""The Annotate stage: join columns of an outside table to documents, as signals."""

import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
import polars as pl
import pyarrow as pa
from pydantic import Field, PrivateAttr, model_validator

from etl.errors import RecipeError
from etl.stages.annotation_index import (
    AnnotationIndex,
    ConflictingKeyError,
    Values,
    build_index,
    find_rows,
    hash_keys,
)
from etl.stages.annotation_table import (
    KEY_COLUMNS,
    AnnotationTable,
    Key,
    Label,
    open_recently,
    read_keys,
    read_values,
    show_key,
)
from etl.stages.base import Filter, Rules
from etl.storage.file_sets import FileSet, describe_path

PREFIX: Final = "annotate_"
"""The beginning of the names of all columns that annotations add."""

_NAME: Final = r"[a-z][a-z0-9_]*"
_EXAMPLES: Final = 3  # of keys in an error

Signals = tuple[tuple[str, str | Label], ...]
"""The names of signals, each with the column that it is read from."""


class Annotate(Filter):
    """Join columns of an outside table to documents, by a key; a document without a row there is kept.

    ``table`` is a Parquet file, a folder or glob of them, or a Delta table at a ``version``. ``values`` names
    its columns of numbers or Booleans, which become the columns ``annotate_<name>`` of ``documents``: signals
    for ``where``, the ``keep`` of deduplication, views and reports. A Boolean is 1 or 0. A mapping gives a
    column another name, or makes a signal of a string: ``law: {column: topic, equals: Law}`` is 1 for
    documents with that topic, else 0. A signal is null for documents without a row, and where the table has
    null or NaN. Dates, lists and strings as they are cannot be signals.

    ``key`` says what a row and a document have in common: their ``id``, their ``url`` (as it is written),
    their ``address`` (``source`` and ``row``, as in the tables of a lake), or their ``content_hash`` (binary,
    or in hexadecimal digits; only after the last transform, since it is the hash of the final text). Rows
    with a null as key are left out. A key with two rows is an error, unless they have the same values.

    The table is read once, into an index that workers map into memory: 16 bytes per row, and 8 for each
    value, at most 4.3 GB. The fingerprint covers the content of the files, or the data files of the version.
    With another version of the table, `etl run --apply-change` reads only what comes in.
    """

    kind: Literal["annotate"] = "annotate"
    example: ClassVar[str] = "annotate: {table: scores.parquet, key: url, values: [quality]}"
    paths = ("table",)
    thresholds = ("missing",)
    table: str = Field(min_length=1)
    """The path or URL of the Parquet files, or of a Delta table."""
    version: int | None = Field(default=None, ge=0)
    """The version of the Delta table; null for Parquet files."""
    key: Key
    """What rows of the table and documents have in common."""
    key_column: str | None = None
    """The column of the table with the key, if it has another name than ``key``."""
    values: (
        Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
        | Annotated[
            dict[Annotated[str, Field(pattern=f"^{_NAME}$")], str | Label], Field(min_length=1)
        ]
    )
    """The columns that become signals; a mapping names them."""
    missing: Literal["keep", "reject"] = "keep"
    """What to do with documents that have none of the values."""

    _is_index: bool = PrivateAttr(default=False)  # whether ``table`` is the copy of an index

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.key == "address" and self.key_column is not None:
            raise ValueError("an address has the columns source and row: remove `key_column`")
        if not isinstance(self.values, dict):
            for name in self.values:
                if not re.fullmatch(_NAME, name):
                    raise ValueError(
                        f"the column {name!r} cannot name a signal; write a mapping, as in "
                        f"`values: {{score: {name!r}}}`"
                    )
            if len({*self.values}) < len(self.values):
                raise ValueError(f"a column is named twice: {', '.join(self.values)}")
        return self

    @property
    def signal_sources(self) -> dict[str, str | Label]:
        """The columns or labels that signals are read from, by the names of these."""
        if isinstance(self.values, dict):
            return self.values
        return {name: name for name in self.values}

    def columns(self) -> dict[str, str]:
        """Return the columns ``annotate_<name>``."""
        sources = self.signal_sources.items()
        return {
            f"{PREFIX}{name}": "1 or 0" if isinstance(source, Label) else f"{source} of the table"
            for name, source in sources
        }

    def rules(self) -> Rules:
        """Return the rule ``annotate.<name>_missing``, with the name of the first value."""
        if self.missing == "keep":
            return {}
        is_missing = pl.all_horizontal(pl.col(name).is_null() for name in self.columns())
        return {f"{next(iter(self.signal_sources))}_missing": is_missing}

    def signals(self) -> list[str]:
        """Return the columns of the key, and the stage's own."""
        return [*KEY_COLUMNS[self.key], *self.columns()]

    def identity(self) -> dict[str, Any]:
        """Return the settings, with a digest of the table's files in place of its path.

        Raises RecipeError if the table or the version does not exist.
        """
        opened = AnnotationTable.open(self.table, self.version)
        return {**super().identity(), "table": opened.identity}

    def check(self) -> None:
        """Read the table into its index.

        Raises RecipeError if the table or a column does not exist, a type cannot be a key or a signal, a key
        has two rows with other values, or the table has no rows or too many.
        """
        self._index()

    def files(self) -> dict[str, FileSet]:
        """Return the files of the index, which workers read in place of the table."""
        return {self.table: describe_path(str(self._index().folder))}

    def with_paths(self, paths: Mapping[str, str]) -> Self:
        """Return the stage with a copy of the index in place of the table."""
        stage = super().with_paths(paths)
        stage._is_index = self.table in paths  # noqa: SLF001 - of the same class
        return stage

    def measure(self, table: pa.Table) -> pa.Table:
        """Return the signals of documents, null for documents without a row in the table."""
        size = len(self.columns())
        index = _load(self.table, size) if self._is_index else self._index()
        found = index.find(read_keys(table, self.key, KEY_COLUMNS[self.key]))
        columns = zip(self.columns(), found.T, strict=True)
        return pa.table({name: pa.array(column, from_pandas=True) for name, column in columns})

    def no_match_error(self, documents: pa.Table) -> RecipeError:
        """Return the error that no document has a value from the table; ``documents`` has some keys."""
        opened = AnnotationTable.open(self.table, self.version)
        rows = next(
            (keys for _, keys, _ in self._read(opened) if len(keys)), pa.array([], pa.binary())
        )
        own = read_keys(documents, self.key, KEY_COLUMNS[self.key])
        sides = {"documents have": own, "the table has": rows}
        shown = "; ".join(f"{side} {self._show(keys)}" for side, keys in sides.items())
        return RecipeError(
            f"no document has a value from this table: no {self.key} is in both",
            where=opened.url,
            hint=f"{shown}; set `key` and `key_column` to what they have in common",
        )

    def _show(self, keys: pa.Array) -> str:
        some = keys.drop_null()[:_EXAMPLES].to_pylist()
        return ", ".join(show_key(key, self.key) for key in some) or f"no {self.key}"

    def _index(self) -> AnnotationIndex:
        """Return the index, which is built once per process for a state of the table."""
        opened = open_recently(self.table, self.version)
        return _build(opened, self.key, self.key_column, tuple(self.signal_sources.items()))

    def _read(self, opened: AnnotationTable) -> Iterator[tuple[str, pa.Array, Values]]:
        return _read(opened, self.key, self.key_column, tuple(self.signal_sources.items()))


def _read(
    table: AnnotationTable, key: Key, key_column: str | None, signals: Signals
) -> Iterator[tuple[str, pa.Array, Values]]:
    """Yield the file, the keys and the values of some rows at a time, without null as key."""
    keys = KEY_COLUMNS[key] if key_column is None else (key_column,)
    sources = [source.column if isinstance(source, Label) else source for _, source in signals]
    for file, rows in table.read([*dict.fromkeys([*keys, *sources])]):
        try:
            found = read_keys(rows, key, keys)
            values = read_values(rows, dict(signals))
        except ValueError as error:
            hint = "convert the column, or name another"
            raise RecipeError(str(error), where=file, hint=hint) from error
        is_valid = found.is_valid().to_numpy(zero_copy_only=False)
        yield file, found.drop_null(), values[is_valid]


@lru_cache(maxsize=16)  # a recipe has fewer tables
def _build(
    table: AnnotationTable, key: Key, key_column: str | None, signals: Signals
) -> AnnotationIndex:
    """Return the index of a table, in a temporary folder that is deleted with it.

    Raises RecipeError as ``check`` does.
    """
    folder = Path(tempfile.mkdtemp(prefix="tokenlake-annotations-"))
    parts = (
        (hash_keys(keys), values) for _, keys, values in _read(table, key, key_column, signals)
    )
    with ExitStack() as on_error:
        on_error.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            build_index(parts, num_values=len(signals), folder=folder, table=table.url)
        except ConflictingKeyError as error:
            rows = find_rows(_read(table, key, key_column, signals), error.digest)
            raise _conflict(rows, key, signals) from error
        index = AnnotationIndex(folder, len(signals))
        weakref.finalize(index, on_error.pop_all().close)
    return index


def _conflict(rows: Iterator[tuple[str, bytes, Values]], key: Key, signals: Signals) -> RecipeError:
    """Return the error that a key has two rows with other values, given all of its rows."""
    first, one, before = next(rows)
    second, _, after = next(
        row for row in rows if not np.array_equal(row[2], before, equal_nan=True)
    )
    column = int(np.argmax(~((before == after) | (np.isnan(before) & np.isnan(after)))))
    name = signals[column][0]
    where = "in the same file" if first == second else f"in {second}"
    return RecipeError(
        f"{key} {show_key(one, key)} has two rows with other values: {name} is "
        f"{_shown(before[column])}, and {_shown(after[column])} {where}",
        where=first,
        hint="keep one row for each key",
    )


def _shown(value: float) -> str:
    return "null" if np.isnan(value) else f"{value:g}"


@lru_cache(maxsize=16)
def _load(folder: str, num_values: int) -> AnnotationIndex:
    return AnnotationIndex(Path(folder), num_values)
