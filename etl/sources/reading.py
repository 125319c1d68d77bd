"""Read one split as a stream of batches, or count its records, whatever its format."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from etl import storage
from etl.errors import SourceError, StorageError, said
from etl.sources import arrow, csv, jsonl, parquet, rows, text
from etl.sources.source import Source, Split


def read(split: Split, source: Source, *, batch_bytes: int = 16 << 20) -> Iterator[pa.Table]:
    """The split's records in order, in batches of schema ``schemas.RAW``.

    A batch has at most ``batch_bytes`` of text and metadata and 8192 rows; a larger document is one
    by itself. A record without a text to use is a row with a ``reason``. Raises SourceError if the
    file has changed since it was listed, is damaged, or lacks a column that the recipe names.
    """
    with _told_of(split):
        tables = _tables(split, source, batch_bytes)
        checked = (rows.checked(table, source.max_text_bytes) for table in tables)
        yield from rows.bounded(checked, batch_bytes)


def count_records(split: Split) -> int:
    """How many ordinals the split takes up, for ``number``; of files that were cut only.

    Raises SourceError if the file has changed since it was listed, or is damaged.
    """
    with _told_of(split):
        return arrow.count_records(split) if split.format == "arrow" else jsonl.count_records(split)


def _tables(split: Split, source: Source, batch_bytes: int) -> Iterator[pa.Table]:
    match split.format:
        case "jsonl":
            return jsonl.read(split, source)
        case "csv":
            return csv.read(split, source)
        case "text":
            return text.read(split, source)
        case "warc":
            from etl.sources import warc  # its parsers are loaded where they are needed

            return warc.read(split, source, batch_bytes)
        case "arrow":
            return arrow.read(split, source, batch_bytes)
        case "parquet" | "delta":
            return parquet.read(split, source, batch_bytes)


@contextmanager
def _told_of(split: Split) -> Iterator[None]:
    """Check that the file is the one that was listed, and name it in whatever goes wrong."""
    try:
        now = storage.info(split.uri)
        if now is None:
            raise SourceError("the file is gone", where=split.uri, hint="it was there when listed")
        same = now.size == split.size and (
            split.format == "delta" or now.fingerprint == split.fingerprint
        )
        if not same:
            raise SourceError(
                f"the file has changed since it was listed ({split.size} bytes then, {now.size} now)",
                where=split.uri,
                hint="run again when nobody writes to it",
            )
        yield
    except (pa.ArrowException, OSError, StorageError, UnicodeDecodeError) as error:
        what = error.what if isinstance(error, StorageError) else said(error)
        raise SourceError(
            f"cannot be read as {split.format} ({what})",
            where=split.uri,
            hint="fetch the file again, give source.format if its ending misleads, or leave it out",
        ) from error
