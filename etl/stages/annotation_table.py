"""Read an outside table of annotations: Parquet files, or a version of a Delta table.

A key is a binary value that the table and the documents have in common: the bytes of an id, of a URL, of an
address or of a content hash.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from polars.exceptions import PolarsError
from pyarrow import types

from etl import storage
from etl.delta.live_rows import read_live_row_groups
from etl.delta.logical_file import LogicalFile
from etl.delta.table import Table
from etl.errors import RecipeError, StorageError, TableError, error_line, nearest_names
from etl.kernels.bytes.one_chunk import one_chunk
from etl.parquet.parquet_file import open_parquet
from etl.schemas import ADDRESS, CONTENT_HASH
from etl.settings_files.settings import Settings
from etl.storage import FileInfo
from etl.storage.referenced_files import (
    find_referenced_files,
    find_unreadable_files,
    hash_file,
)
from etl.storage.urls import is_glob

Key = Literal["id", "url", "address", "content_hash"]

KEY_COLUMNS: Final[Mapping[Key, tuple[str, ...]]] = {
    "id": ("id",),
    "url": ("url",),
    "address": ADDRESS,
    "content_hash": (CONTENT_HASH.name,),
}
"""The columns of ``documents`` that make a key."""

_ROWS: Final = 65536  # of a Parquet file that are in memory at once
_BUFFER_BYTES: Final = 1 << 20
_CACHE_SECONDS: Final = 10
_SEPARATOR: Final = "\0"  # of an address, whose parts do not contain it


class Label(Settings):
    """A string that a column of the table may have: its signal is 1 where the column has it, else 0."""

    column: str
    """The column with the strings."""
    equals: str
    """The string."""


@dataclass(frozen=True)
class AnnotationTable:
    """The files of an outside table, as they were listed."""

    url: str
    version: int | None  # of a Delta table
    files: tuple[FileInfo, ...] = ()  # of a table that is not Delta
    data_files: tuple[LogicalFile, ...] = ()  # of a Delta table
    schema: pa.Schema | None = None  # of a Delta table, without the columns that name its folders

    @classmethod
    def open(cls, path: str, version: int | None) -> Self:
        """List the files of a table.

        Raises RecipeError if there are none, if one cannot be read, or if the version does not exist.
        """
        url = storage.normalize(path)
        if version is not None:
            return cls._open_delta(url, version)
        if not is_glob(url) and Table.exists(url):
            raise RecipeError(
                "this is a Delta table, and `version` is not set",
                where=url,
                hint=f"write `version: {Table.open(url).version}`, which is the newest",
            )
        files = find_referenced_files(url)
        for error in find_unreadable_files(url):
            raise RecipeError(error.what, where=error.where, hint=error.hint) from error
        return cls(url, None, files)

    @classmethod
    def _open_delta(cls, url: str, version: int) -> Self:
        try:
            table = Table.open(url, version)
            entries = tuple(map(LogicalFile.of, table.files("path", "size", "vector")))
        except TableError as error:
            hint = "correct the path and `version`; without `version`, the path names Parquet files"
            raise RecipeError(error.what, where=error.where, hint=hint) from error
        stored = [field for field in table.schema if field.name not in table.partition_columns]
        return cls(url, version, (), entries, pa.schema(stored))

    @property
    def identity(self) -> str:
        """A digest of the files: of their content, or of the names of data files, which never change."""
        parts = [hash_file(file) for file in self.files]
        parts += [repr(file) for file in self.data_files]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def read(self, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
        """Yield some rows at a time with the URL of their file.

        Raises RecipeError if a file is not Parquet, is damaged, or does not have a column.
        """
        if self.schema is not None:
            _check_columns(columns, self.schema.names, self.url)
            wanted = pa.schema([self.schema.field(name) for name in columns])
            try:
                for file in self.data_files:
                    uri = storage.join(self.url, file.path)
                    for rows in read_live_row_groups(self.url, file, wanted):
                        yield uri, rows
            except (TableError, StorageError) as error:
                raise RecipeError(error.what, where=error.where, hint=error.hint) from error
        for info in self.files:
            for rows in _read_parquet(info.uri, columns):
                yield info.uri, rows


def open_recently(path: str, version: int | None) -> AnnotationTable:
    """Return ``AnnotationTable.open``; of a remote table, the result may be 10 seconds old.

    This is for calls that are made for every batch.
    """
    url = storage.normalize(path)
    if storage.is_local(url):
        return AnnotationTable.open(url, version)
    return _open_remote(url, version, int(time.monotonic() // _CACHE_SECONDS))


@lru_cache(maxsize=16)
def _open_remote(url: str, version: int | None, _period: int) -> AnnotationTable:
    return AnnotationTable.open(url, version)


def _read_parquet(uri: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    try:
        with storage.open_input(uri) as source:
            file = open_parquet(source, buffer_size=_BUFFER_BYTES)
            _check_columns(columns, file.schema_arrow.names, uri)
            for batch in file.iter_batches(_ROWS, columns=[*columns], use_threads=False):
                yield pa.Table.from_batches([batch])
    except StorageError as error:
        raise RecipeError(error.what, where=uri, hint=error.hint) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"cannot be read as Parquet ({error_line(error)})",
            where=uri,
            hint="annotations are Parquet files, or a Delta table with `version`",
        ) from error


def _check_columns(columns: Sequence[str], known: Sequence[str], where: str) -> None:
    for name in columns:
        if name not in known:
            hint = nearest_names(name, known)
            raise RecipeError(f"the table has no column {name!r}", where=where, hint=hint)


def read_keys(rows: pa.Table, key: Key, columns: Sequence[str]) -> pa.Array:
    r"""Return the key of each row (binary), null where a part of it is null.

    Raises ValueError for columns of another type than the key has.

    >>> rows = pa.table({"source": ["file:///a"], "row": [7]})
    >>> read_keys(rows, "address", ["source", "row"]).to_pylist()
    [b'file:///a\x007']
    """
    parts = [one_chunk(rows[name]) for name in columns]
    if key == "content_hash":
        return _as_hash(parts[0], columns[0])
    for name, kind in zip(columns, (part.type for part in parts), strict=True):
        is_number = types.is_integer(kind) or types.is_null(kind)
        if not is_number and (name == "row" or not _is_text(kind)):
            raise ValueError(
                f"the column {name!r} has the type {kind}, which is not that of {key!r}"
            )
    texts = [part.cast(pa.string()) for part in parts]
    joined = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, _SEPARATOR)
    return joined.cast(pa.binary())


def _as_hash(column: pa.Array, name: str) -> pa.Array:
    """Return content hashes: binary, or in hexadecimal digits."""
    if _is_text(column.type):
        try:
            digits = pl.Series(column.cast(pa.string()), dtype=pl.String)
            column = digits.str.decode("hex", strict=True).to_arrow()
        except PolarsError as error:
            raise ValueError(f"the column {name!r} has strings that are not hexadecimal") from error
    is_binary = types.is_binary(column.type) or types.is_large_binary(column.type)
    if not (is_binary or types.is_fixed_size_binary(column.type)):
        raise ValueError(
            f"the column {name!r} has the type {column.type}, which is not that of a hash"
        )
    return column.cast(pa.binary())


def show_key(value: bytes, key: Key) -> str:
    """Return a key as an error shows it."""
    if key == "content_hash":
        return value.hex()
    return repr(value.decode().replace(_SEPARATOR, " row "))


def read_values(rows: pa.Table, signals: Mapping[str, str | Label]) -> NDArray[np.float64]:
    """Return the signals of each row, (rows, signals); NaN for null.

    Raises ValueError for columns of other types than numbers and Booleans, or strings for a label.
    """
    values = np.empty((rows.num_rows, len(signals)))
    for number, (name, source) in enumerate(signals.items()):
        column = one_chunk(rows[source.column if isinstance(source, Label) else source])
        values[:, number] = _as_numbers(column, name, source).fill_null(np.nan)
    return values


def _as_numbers(column: pa.Array, name: str, source: str | Label) -> pa.Array:
    kind = column.type
    if isinstance(source, Label):
        if not _is_text(kind):
            raise ValueError(
                f"the column {source.column!r} has the type {kind}, but `equals` needs strings"
            )
        return pc.equal(column.cast(pa.string()), source.equals).cast(pa.float64())
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if not (is_number or types.is_boolean(kind) or types.is_null(kind)):
        form = f"; write `{name}: {{column: {source}, equals: VALUE}}` for one of its strings"
        raise ValueError(
            f"the column {source!r} has the type {kind}, but a signal is a number or a Boolean"
            f"{form if _is_text(kind) else ''}"
        )
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"the column {source!r} has integers that are not exact as float64"
        ) from error


def _is_text(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
