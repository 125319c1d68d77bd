"""Read a split of any format as a stream of batches, or count its records."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from etl import storage
from etl.errors import SourceError, StorageError, error_line
from etl.schemas import RAW
from etl.sources import batches
from etl.sources.content_digests import RowsDigest
from etl.sources.formats import FORMATS
from etl.sources.limit_and_share import take_part
from etl.sources.source_settings import Source
from etl.sources.split import Split

_FIRST_BYTES = 1 << 20  # of a batch of first records
_HINT = "download the file again, set source.format if the extension is wrong, or leave it out"


def read_split(split: Split, source: Source, *, batch_bytes: int = 16 << 20) -> Iterator[pa.Table]:
    """Yield the split's records in order, as batches of schema ``schemas.RAW``.

    A batch has at most ``batch_bytes`` of texts, ids, URLs and metadata, and at most 8192 rows; a larger
    document is the only row of its batch. A record without a usable text is a row with a ``reason``. Raises
    SourceError if the file has changed since it was listed, is damaged, or lacks a column that the
    recipe names.
    """
    with _listed_file(split):
        tables = FORMATS[split.format].read(split, source, batch_bytes=batch_bytes)
        checked = (batches.check_texts(table, source.max_text_bytes) for table in tables)
        bounded = batches.bound_batches(checked, batch_bytes)
        is_part = split.max_rows is not None or split.max_text_bytes is not None
        taken = take_part(bounded, split) if is_part else bounded
        yield from taken if split.address is None else map(partial(_rename, split.address), taken)


def _rename(source: str, batch: pa.Table) -> pa.Table:
    """Return a batch under the name by which the lake knows the file."""
    index = batch.schema.get_field_index("source")
    names = pa.repeat(pa.scalar(source), batch.num_rows)
    return batch.set_column(index, batch.schema.field(index), names)


def digest_rows(split: Split, source: Source) -> int:
    """Return the digest of a split's rows, see ``RowsDigest``; raises SourceError as ``read_split`` does."""
    rows = RowsDigest()
    for batch in read_split(split, source):
        rows.update(batch)
    return rows.value()


def read_first(split: Split, source: Source, max_rows: int) -> pa.Table:
    """Return the first records of a split as a table of schema ``schemas.RAW``, without reading the rest.

    Raises SourceError as ``read_split`` does.
    """
    tables = [RAW.empty_table()]
    missing = max_rows
    for table in read_split(split, source, batch_bytes=_FIRST_BYTES):
        tables.append(table.slice(0, missing))
        missing -= tables[-1].num_rows
        if missing <= 0:
            break
    return pa.concat_tables(tables)


def count_records(split: Split) -> int:
    """Return how many row numbers the split uses, for ``number_splits``; only for pieces of a file.

    Raises SourceError if the file has changed since it was listed, or is damaged.
    """
    with _listed_file(split):
        return FORMATS[split.format].count_records(split)


@contextmanager
def _listed_file(split: Split) -> Iterator[None]:
    """Check, after it was read, that the file has not changed since it was listed; name it in every error.

    A change explains any error before it.
    """
    try:
        try:
            yield
        except Exception as error:
            _check_unchanged(split, error)
            raise
        _check_unchanged(split)
    except (pa.ArrowException, OSError, StorageError, UnicodeDecodeError) as error:
        what = error.what if isinstance(error, StorageError) else error_line(error)
        hint = error.hint if isinstance(error, StorageError) else None
        raise SourceError(
            f"cannot be read as {split.format} ({what})", where=split.uri, hint=hint or _HINT
        ) from error


def _check_unchanged(split: Split, cause: Exception | None = None) -> None:
    """Raise SourceError if the file is not the file that was listed."""
    now = storage.file_info(split.uri)
    if now is None and split.version is not None:
        raise SourceError(
            f"the file of version {split.version} of a Delta table no longer exists (VACUUM?)",
            where=split.uri,
            hint="run again: the table is then listed again",
        ) from cause
    if now is None:
        raise SourceError(
            "the file no longer exists",
            where=split.uri,
            hint="restore it: it existed when the source was listed",
        ) from cause
    # The log of a Delta table has no fingerprints: its data files are immutable.
    same = now.size == split.size and (
        split.format == "delta" or now.is_as_listed(split.file_fingerprint)
    )
    if not same:
        raise SourceError(
            f"the file has changed since it was listed ({split.size} bytes then, {now.size} now)",
            where=split.uri,
            hint="run again when no other process writes to it",
        ) from cause
