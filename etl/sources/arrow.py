"""Arrow IPC files (Feather V2) and streams; a record batch is the least that can be read.

Files are cut by record batches; a stream (as Hugging Face's ``datasets`` writes) is read whole.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyarrow import ipc

from etl import storage
from etl.errors import SourceError, StorageError
from etl.sources import columnar
from etl.sources.source import Source, Split, needed

_FILE_MAGIC = b"ARROW1"


def cut(whole: Split, split_bytes: int) -> list[Split]:
    """Pieces of about ``split_bytes``, of whole record batches; opens larger files only.

    Where a piece begins is known only once the records before it are counted. A file that cannot be
    opened gives one split, whose reading then fails by itself.
    """
    if whole.size <= split_bytes:
        return [whole]
    try:
        with storage.open_input(whole.uri) as file:
            if not _is_file(file):
                return [whole]
            count = ipc.open_file(file).num_record_batches
    except (StorageError, pa.ArrowException, OSError, UnicodeDecodeError):
        return [whole]
    step = max(1, count * split_bytes // whole.size)
    return [
        replace(
            whole,
            start=start,
            stop=min(start + step, count),
            first_row=0 if start == 0 else None,
            bytes=whole.size * min(step, count - start) // count,
        )
        for start in range(0, count, step)
    ] or [whole]


def read(split: Split, source: Source, batch_bytes: int) -> Iterator[pa.Table]:
    """The split's rows as tables of schema RAW."""
    row = split.known_first_row
    with storage.open_input(split.uri) as file:
        for batch in _batches(file, split, source):
            _check(batch, split)
            step = columnar.batch_rows(batch.nbytes / max(len(batch), 1), batch_bytes)
            for start in range(0, len(batch), step):
                piece = batch.slice(start, step)
                yield columnar.raw(piece, split, source, row)
                row += len(piece)


def count_records(split: Split) -> int:
    """The rows of the split's record batches; reads their first column only."""
    with storage.open_input(split.uri) as file:
        reader = ipc.open_file(file, options=ipc.IpcReadOptions(included_fields=[0]))
        batches = range(reader.num_record_batches)[split.start : split.stop]
        return sum(len(reader.get_batch(index)) for index in batches)


def _batches(file: pa.NativeFile, split: Split, source: Source) -> Iterator[pa.RecordBatch]:
    if not _is_file(file):
        stream = ipc.open_stream(file)
        names = needed(source, stream.schema.names, split)
        yield from (batch.select(names) for batch in stream)
        return
    schema = ipc.open_file(file).schema
    names = needed(source, schema.names, split)
    options = ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names])
    reader = ipc.open_file(file, options=options)
    for index in range(reader.num_record_batches)[split.start : split.stop]:
        yield reader.get_batch(index)


def _check(batch: pa.RecordBatch, split: Split) -> None:
    """Raise ArrowInvalid where offsets or indices lead outside; Arrow believes what a file says of them.

    Text that is not UTF-8 is let through: its rows get a reason. Raises SourceError for a column of a type
    that Arrow has in C++ alone.
    """
    for number, field in enumerate(batch.schema):
        try:
            array = batch.column(number)
        except KeyError as error:
            raise SourceError(
                f"column {field.name!r} is {field.type}, which pyarrow cannot hold",
                where=split.uri,
                hint="leave it out of source.metadata",
            ) from error
        _as_bytes(array).validate(full=True)


def _as_bytes(array: pa.Array) -> pa.Array:
    """Text as the bytes that it is, without a copy."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(array.indices, _as_bytes(array.dictionary))
    views = {
        pa.string(): pa.binary(),
        pa.large_string(): pa.large_binary(),
        pa.string_view(): pa.binary_view(),
    }
    return array.view(views[array.type]) if array.type in views else array


def _is_file(file: pa.NativeFile) -> bool:
    magic = file.read(len(_FILE_MAGIC))
    file.seek(0)
    return bool(magic == _FILE_MAGIC)
