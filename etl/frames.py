"""Convert what notebooks have to Arrow and back: texts, dicts, and frames of Arrow, Polars and pandas.

Columns are exchanged by Arrow's C stream protocol, so pandas is not imported here. Columns that are not taken
may have values that Arrow does not have, and keep their types.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from etl.errors import TableError, error_line

Frame = Any
"""A frame of a kind that ``with_columns`` returns: an Arrow table, or a DataFrame of Polars or pandas."""

_HINT = "give a list of texts or of dicts, an Arrow table, or a frame of Polars, pandas or Dask"
_SAME_TYPES = "give all values of a column the same type; texts are strings"


def to_frame(data: Any, text: str) -> Frame:
    """Return data as a frame: one of Polars or pandas as it is, other Arrow data as an Arrow table.

    Texts, dicts and a dict of columns become a frame of Polars, and texts its column ``text``. Raises
    TableError if data is nothing of these.

    >>> to_frame([{"text": "a"}, {"text": "b", "label": 1}], "text").to_dicts()
    [{'text': 'a', 'label': None}, {'text': 'b', 'label': 1}]
    """
    if _is_pandas(data) or isinstance(data, pa.Table | pl.DataFrame):
        return data
    if hasattr(data, "to_frame"):  # a Series
        return to_frame(data.to_frame(name=text), text)
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return pa.table({text: data})
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    if isinstance(data, str | bytes):
        hint = "write [text] for one text; `etl.read(PATH)` reads files"
        raise TableError("a string is not a list of documents", hint=hint)
    if isinstance(data, Mapping):
        return _from_columns(data)
    if not isinstance(data, Iterable) or isinstance(data, pl.LazyFrame):
        hint = "call .collect() first" if hasattr(data, "collect") else _HINT
        raise TableError(f"{type(data).__qualname__} is not a type of documents", hint=hint)
    return _from_documents([*data], text)


def column_names(frame: Frame) -> list[str]:
    """Return the names of the columns of a frame, repeated ones too."""
    return [*(frame.column_names if isinstance(frame, pa.Table) else frame.columns)]


def take(frame: Frame, names: Sequence[str]) -> pa.Table:
    """Return columns as an Arrow table; raise TableError if one occurs twice, or has values of two types."""
    counts = Counter(column_names(frame))
    for name in names:
        if counts[name] > 1:
            raise TableError(
                f"{counts[name]} columns are named {name!r}", hint="rename all but one"
            )
    if isinstance(frame, pa.Table):
        return frame.select(names)
    try:
        if isinstance(frame, pl.DataFrame):  # in types that Arrow 26 can compute with
            return frame.select(names).to_arrow(compat_level=pl.CompatLevel.oldest())
        return pa.table(frame[[*names]]).select(names)  # without the index of pandas
    except (pa.ArrowException, pl.exceptions.PolarsError, ValueError, TypeError) as error:
        what = f"a column of {', '.join(names)} cannot be converted to Arrow ({error_line(error)})"
        raise TableError(what, hint=_SAME_TYPES) from error


def with_columns(frame: Frame, columns: pa.Table) -> Frame:
    """Return a frame with columns replaced in their places, and others added after them."""
    if isinstance(frame, pl.DataFrame):
        return frame.with_columns(pl.DataFrame(columns).get_columns())
    if isinstance(frame, pa.Table):
        for name in columns.column_names:
            index = frame.schema.get_field_index(name)
            column = columns.field(name), columns[name]
            frame = frame.append_column(*column) if index < 0 else frame.set_column(index, *column)
        return frame
    added = columns.to_pandas()
    added.index = frame.index
    return frame.assign(**dict(added.items()))


def _is_pandas(data: object) -> bool:
    pandas: Any = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _from_documents(documents: list[Any], text: str) -> pl.DataFrame:
    """Return texts, or documents as dicts, as a frame; a key that a document lacks is null."""
    if all(isinstance(document, Mapping) for document in documents) and documents:
        names = dict.fromkeys(name for document in documents for name in document)
        return _from_columns({n: [document.get(n) for document in documents] for n in names})
    for index, document in enumerate(documents):
        if not isinstance(document, str | bytes | None):
            kind = type(document).__name__
            what = f"has the type {kind}, which is neither a text nor one of dicts only"
            raise TableError(what, where=f"documents[{index}]", hint=_HINT)
    return _from_columns({text: documents or pa.array([], pa.string())})


def _from_columns(columns: Mapping[Any, Any]) -> pl.DataFrame:
    """Return columns as a frame; raise TableError if they differ in length or one has values of two types."""
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise TableError(f"{name!r} is not the name of a column", hint="write it as a string")
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            what = f"the column {name!r} is not a list: {values!r:.60}"
            raise TableError(what, hint="write [document] for one document")
        is_arrow = hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__")
        try:
            arrays[name] = values if is_arrow else pa.array(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            what = f"the column {name!r} cannot be converted to Arrow ({error_line(error)})"
            raise TableError(what, hint=_SAME_TYPES) from error
    lengths = {name: len(array) for name, array in arrays.items()}
    if len({*lengths.values()}) > 1:
        sizes = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise TableError("the columns differ in length", hint=f"their lengths are {sizes}")
    return pl.DataFrame(pa.table(arrays))
