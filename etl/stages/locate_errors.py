"""Say in which rows a stage has failed."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from etl import schemas
from etl.errors import StageError, TokenlakeError
from etl.stages.base import Stage


@contextmanager
def locate_errors(stage: Stage, documents: pa.Table, rows: pa.BooleanArray) -> Iterator[None]:
    """Raise errors of a stage as StageError with source and rows; pass on errors that have a location."""
    try:
        yield
    except Exception as error:
        if isinstance(error, TokenlakeError) and error.where is not None:
            raise
        address = documents.select(schemas.ADDRESS).filter(rows)
        first, last = address.take([0, len(address) - 1]).to_pylist()
        end = f" to {last['row']}" if last["source"] == first["source"] else f" to {last['source']}"
        where = f"{first['source']} rows {first['row']}{end}"
        if isinstance(error, TokenlakeError):
            raise StageError(error.what, where=where, hint=error.hint) from error
        what = f"{stage.kind} failed: {type(error).__name__}: {error}"
        raise StageError(what, where=where) from error
