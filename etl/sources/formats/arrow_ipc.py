"""Reader for Arrow IPC files (Feather V2) and streams.

The smallest readable unit is a record batch. Files are cut between record batches; a stream, the format
that Hugging Face's ``datasets`` writes, is read whole.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import ipc

from etl import storage
from etl.errors import SourceError, StorageError, error_line
from etl.sources.columns import columns_to_read
from etl.sources.formats import arrow_messages, columnar
from etl.sources.parts import KnownPart, cut_split
from etl.sources.source_settings import Source
from etl.sources.split import Split

EXTENSIONS: tuple[str, ...] = (".arrow", ".feather", ".ipc")
COMPRESSIBLE: bool = False

_FILE_MAGIC = b"ARROW1"


def cut(whole: Split, source: Source, known: Sequence[KnownPart]) -> list[Split]:
    """Cut a file into pieces of about ``split_bytes``, each of whole record batches.

    Only files larger than ``split_bytes`` are opened. The first row of a piece is unknown until the
    records before it are counted. Where a file cannot be opened, reading it reports the error.
    """
    count = _count_batches(whole, source) if known or whole.size > source.split_bytes else 0
    step = max(1, count * source.split_bytes // max(whole.size, 1))
    pieces = cut_split(whole, range(step, count, step), known)
    if not count:
        return [replace(piece, bytes=whole.size) for piece in pieces]
    return [
        replace(piece, bytes=whole.size * ((piece.stop or count) - piece.start) // count)
        for piece in pieces
    ]


def _count_batches(whole: Split, source: Source) -> int:
    """Return the number of record batches at which a file can be cut; 0 if it cannot be cut or opened.

    A file without the text column is not cut, so that its error is reported once.
    """
    try:
        with storage.open_input(whole.uri) as file:
            if not _is_ipc_file(file):
                return 0
            if source.columns.text not in pa.ipc.open_file(file).schema.names:
                return 0
            return len(arrow_messages.read_blocks(file, whole)[1])
    except (SourceError, StorageError, pa.ArrowException, OSError, UnicodeDecodeError):
        return 0


class _Rejected(NamedTuple):
    """A record batch that is not read, with the reason."""

    rows: int
    reason: str
    error: str


def read(split: Split, source: Source, *, batch_bytes: int) -> Iterator[pa.Table]:
    """Yield the split's rows as tables of schema RAW.

    The rows of a record batch that takes too much memory have a reason, as have the rows of a damaged one
    if readable rows are kept. A stream ends where a message is damaged, which is then one row.
    """
    row = split.known_first_row
    with storage.open_input(split.uri) as file:
        for batch in _batches(file, split, source):
            if isinstance(batch, _Rejected):
                rows = range(row, row + batch.rows)
                yield from columnar.reject_rows(rows, batch.error, split, batch.reason)
                row += batch.rows
                continue
            step = columnar.choose_batch_rows(batch.nbytes / max(len(batch), 1), batch_bytes)
            pieces = (batch.slice(start, step) for start in range(0, len(batch), step))
            for piece in columnar.gather(pieces, batch_bytes):
                yield from columnar.convert(piece, split, source, row)
                row += len(piece)


def count_records(split: Split) -> int:
    """Return the number of rows in the split's record batches, reading only their metadata."""
    with storage.open_input(split.uri) as file:
        _, blocks = arrow_messages.read_blocks(file, split)
        messages = (
            arrow_messages.read_message(file, block.offset, split)
            for block in blocks[split.start : split.stop]
        )
        return sum(message.rows for message in messages if message is not None)


def _batches(
    file: pa.NativeFile, split: Split, source: Source
) -> Iterator[pa.RecordBatch | _Rejected]:
    """Yield the record batches that can be read, and the others as rejected."""
    if not _is_ipc_file(file):
        yield from _stream_batches(file, split, source)
        return
    dictionaries, blocks = arrow_messages.read_blocks(file, split)
    held = 0
    for block in dictionaries:
        message = arrow_messages.read_message(file, block.offset, split)
        held += _check_held(message.memory, held, split) if message is not None else 0
    schema = ipc.open_file(file).schema
    names = columns_to_read(source, schema.names, split)
    options = ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names])
    reader = ipc.open_file(file, options=options)
    for index in range(reader.num_record_batches)[split.start : split.stop]:
        message = arrow_messages.read_message(file, blocks[index].offset, split)
        if message is not None and message.memory + held > arrow_messages.MAX_BATCH_BYTES:
            yield _too_large(message)
        else:
            rows = 1 if message is None else message.rows
            yield _read_valid(partial(reader.get_batch, index), rows, split, source)


def _stream_batches(
    file: pa.NativeFile, split: Split, source: Source
) -> Iterator[pa.RecordBatch | _Rejected]:
    first = arrow_messages.read_message(file, 0, split)
    file.seek(0)
    stream = ipc.open_stream(file)
    names = columns_to_read(source, stream.schema.names, split)
    position = end = file.tell() if first is None else first.end
    held = 0
    while (message := _next_message(file, end, split, source)) is not None:
        if isinstance(message, _Rejected):
            yield message
            return
        start, end = end, message.end
        if message.kind == arrow_messages.DICTIONARY:
            held += _check_held(message.memory, held, split)
            continue
        if message.memory + held <= arrow_messages.MAX_BATCH_BYTES:
            file.seek(position)
            read = partial(_read_columns, stream, names)
            yield _read_valid(read, message.rows, split, source)
        elif start == position:
            yield _too_large(message)
        else:
            _check_held(message.memory, held, split)
        position = end


def _next_message(
    file: pa.NativeFile, offset: int, split: Split, source: Source
) -> arrow_messages.Message | _Rejected | None:
    """Return the next message of a stream; a damaged one as rejected if readable rows are kept."""
    try:
        return arrow_messages.read_message(file, offset, split)
    except pa.ArrowInvalid as error:
        if source.damaged == "quarantine":
            raise
        return _Rejected(1, "damaged", error_line(error))


def _read_columns(stream: Any, names: list[str]) -> pa.RecordBatch:
    return stream.read_next_batch().select(names)


def _read_valid(
    read: Callable[[], pa.RecordBatch], rows: int, split: Split, source: Source
) -> pa.RecordBatch | _Rejected:
    """Return a record batch; a damaged one as rejected if readable rows are kept."""
    try:
        batch = read()
        _validate(batch, split)
    except (pa.ArrowException, OSError) as error:
        if source.damaged == "quarantine" or not columnar.is_damage(error):
            raise
        return _Rejected(rows, "damaged", f"the record batch is damaged ({error_line(error)})")
    return batch


def _too_large(message: arrow_messages.Message) -> _Rejected:
    error = (
        f"the record batch takes {message.memory >> 20} MB of memory, but the limit is"
        f" {arrow_messages.MAX_BATCH_BYTES >> 20} MB"
    )
    return _Rejected(message.rows, "too_large", error)


def _check_held(memory: int, held: int, split: Split) -> int:
    """Return the size of a dictionary; raise SourceError if all that is held is too large."""
    if memory + held > arrow_messages.MAX_BATCH_BYTES:
        raise SourceError(
            f"the dictionaries take {memory + held >> 20} MB of memory, but the limit is"
            f" {arrow_messages.MAX_BATCH_BYTES >> 20} MB",
            where=split.uri,
            hint="write the rows to several files, or without dictionaries",
        )
    return memory


def _validate(batch: pa.RecordBatch, split: Split) -> None:
    """Raise ArrowInvalid if an offset or index is out of bounds; Arrow does not check the offsets in a file.

    Text that is not UTF-8 is accepted here: its rows get a reason later. Raises SourceError for a column
    type that only Arrow's C++ library supports.
    """
    for index, field in enumerate(batch.schema):
        try:
            array = batch.column(index)
        except KeyError as error:
            raise SourceError(
                f"column {field.name!r} has type {field.type}, which pyarrow does not support",
                where=split.uri,
                hint="list the columns to keep in source.metadata, without this one",
            ) from error
        _as_binary(array).validate(full=True)


def _as_binary(array: pa.Array) -> pa.Array:
    """Return text as binary, without a copy; other types as they are."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(array.indices, _as_binary(array.dictionary))
    views = {
        pa.string(): pa.binary(),
        pa.large_string(): pa.large_binary(),
        pa.string_view(): pa.binary_view(),
    }
    return array.view(views[array.type]) if array.type in views else array


def _is_ipc_file(file: pa.NativeFile) -> bool:
    magic = file.read(len(_FILE_MAGIC))
    file.seek(0)
    return bool(magic == _FILE_MAGIC)
